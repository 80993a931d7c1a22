"""Moved to r3l.config. Until readers follow."""

from r3l.config.run import feedback_source

__all__ = ["feedback_source", "in_words_of_today"]
in_words_of_today = dict
