"""The released code that the project is held against, read from the user's clone; no text of it is kept here."""
