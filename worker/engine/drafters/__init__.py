"""Whoever proposes tokens. One file each; they never import each other."""
