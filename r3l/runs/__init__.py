"""What a run leaves and holds while it runs: files, manifest, metrics, logs, locks, signals. May import core and
config."""
