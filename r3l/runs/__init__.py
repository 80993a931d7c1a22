"""What a run leaves: directory, manifest, metrics, logs; GPU locks and preemption. May import core, config."""
