"""The text side of ScienceWorld: prompts, the reading of responses, ending rules."""
