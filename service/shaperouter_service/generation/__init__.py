"""What can be asked of a generation: its options and their limits. Pure Python."""
