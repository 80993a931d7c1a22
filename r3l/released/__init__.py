"""The paper's released code, read from the user's clone of it; no text of it is kept here."""
