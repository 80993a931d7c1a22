"""Sampling: the policy over many live dialogs, and its decoders (torch, CUDA graphs, vLLM)."""
