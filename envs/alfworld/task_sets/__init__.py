"""The task sets of ALFWorld; committed ids and digests are the JSON files."""
