"""Tokens in, tokens out. Knows no job, queue, store, terminal."""
