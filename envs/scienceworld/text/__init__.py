"""Dialogues of ScienceWorld: prompts, parsing of responses, rules that end an episode."""
