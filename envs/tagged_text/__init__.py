"""Responses with one thought and one action in tags: what the agentic environments share."""
