"""Task sets of ALFWorld; the JSON files hold the committed ids and digests."""
