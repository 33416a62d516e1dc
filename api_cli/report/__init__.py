"""A job's figures as one page that opens anywhere, without a network, and as CSV."""
