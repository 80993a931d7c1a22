"""Files of a run: directory, manifest, metrics, logs; GPU locks and preemption."""
