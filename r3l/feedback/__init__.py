"""Reflections and critiques: their prompts, how they are written and read, and audits of them."""
