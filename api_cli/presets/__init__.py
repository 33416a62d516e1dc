"""Grids that a user can run by name, or copy and change."""
