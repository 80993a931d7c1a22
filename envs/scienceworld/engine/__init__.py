"""Engine of ScienceWorld: the simulator in a Java process, and a cache of its observations."""
