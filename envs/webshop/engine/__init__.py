"""Engine of WebShop: catalogue, search, pages, sessions and rewards."""
