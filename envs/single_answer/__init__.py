"""Problems that end with one answer: what mathematics and puzzles share."""
