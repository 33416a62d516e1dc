"""The data sets that ship: one JSONL file each, written for this project."""
