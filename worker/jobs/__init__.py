"""What a wake-up does with the results it claims."""
