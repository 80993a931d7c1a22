"""The trinity engine: unmodified Trinity-RFT trains the methods of this package (docs/tiers.md)."""
