"""The engine of one process: sampler, trainer, checkpoints; torch and transformers on one device."""
