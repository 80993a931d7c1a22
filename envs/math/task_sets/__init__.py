"""The task sets of mathematics; committed ids and digests are the JSON files."""
