"""The text side of ALFWorld: prompts, the reading of responses, ending rules."""
