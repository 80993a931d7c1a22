"""Dialogs as tokens: chat templates, their rendering, and the tokens that end a turn."""
