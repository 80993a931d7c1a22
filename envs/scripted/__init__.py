"""Scripted experts with an error model, and the demonstrations that they give."""
