"""`python -m r3l.cli`, as the Snakefile calls it."""

from r3l.cli import main

main()
