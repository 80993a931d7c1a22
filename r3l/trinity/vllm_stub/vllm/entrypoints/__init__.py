"""Part of the vLLM stub (see the package)."""
