"""Files and folders: where they lie, how they are named, written, read, unpacked and checked."""
