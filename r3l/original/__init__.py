"""The released code that the project is compared with, read from the user's clone; no text of it is kept
here.
"""
