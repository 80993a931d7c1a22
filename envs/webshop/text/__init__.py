"""Dialogues of WebShop: prompts, parsing of responses, rules that end an episode."""
