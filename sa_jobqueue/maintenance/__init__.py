"""What keeps the table healthy, in every runner and without a leader."""
