"""The task sets of ScienceWorld; committed ids and digests are the JSON files."""
