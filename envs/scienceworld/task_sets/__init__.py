"""Task sets of ScienceWorld; the JSON files hold the committed ids, digests and solutions."""
