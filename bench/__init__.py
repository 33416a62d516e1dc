"""Measurements: nocka's engine beside what a user would pick instead."""
