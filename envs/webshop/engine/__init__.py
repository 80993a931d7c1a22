"""The world: catalogue, search, pages and rewards of the shop."""
