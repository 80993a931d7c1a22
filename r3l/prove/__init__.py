"""The proof kit for one GPU: what is run there, in an order and within a time, and how it is carried to it.

May import all but workflow, report and cli.
"""
