"""Files and folders: paths, names, writing, reading, unpacking, digests."""
