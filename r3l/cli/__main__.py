"""`python -m r3l.cli`, the same as `r3l`."""

from r3l.cli import main

main()
