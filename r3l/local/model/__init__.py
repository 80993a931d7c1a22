"""The model: forward pass, weights, LoRA, precision."""
