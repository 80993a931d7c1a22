"""The task sets of the puzzles; committed ids and digests are the JSON files."""
