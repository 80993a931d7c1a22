"""The task sets of WebShop; committed ids and digests are the JSON files."""
