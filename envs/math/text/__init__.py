"""The text side of mathematics: prompts, the reading of responses, ending rules."""
