"""The world: the simulator in its Java process, and its cache."""
