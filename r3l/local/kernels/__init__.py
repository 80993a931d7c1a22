"""Attention on a CPU in machine code, and the decoder that uses it."""
