"""Dialogues of ALFWorld, one module per form: prompts, parsing of responses, rules that end an episode."""
