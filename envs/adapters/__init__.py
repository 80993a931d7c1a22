"""Environments of other libraries: a YAML file names one, an adapter makes it an environment of r3l."""
