"""Adapters for environments of other libraries: a YAML file names one, an adapter makes it usable in r3l."""
