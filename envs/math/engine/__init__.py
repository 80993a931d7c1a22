"""The world: graders of answers."""
