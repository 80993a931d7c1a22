"""Task sets of WebShop; the JSON files hold the committed ids and digests."""
