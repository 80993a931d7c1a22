"""The single-process engine: sampler, trainer, checkpoints; torch and transformers on one device."""
