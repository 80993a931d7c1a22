"""The world: the puzzles, their generators and verifiers."""
