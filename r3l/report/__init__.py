"""Tables, figures and the HTML report, made offline from the files that runs leave.

Read in this order: ``frame`` (stored runs as one DataFrame), ``scores``, ``measures`` and ``budget`` (the
rows of a table, which its csv file holds), ``paper_table`` (what is printed of scores), ``table`` (terminal,
Markdown, LaTeX, CSV); ``tables`` makes them from a file of configs/tables. ``figures`` and ``html`` take the
same frame. ``compare``, ``registered`` and ``claim_verdicts`` judge differences with r3l.stats.

May import core, config, runs, evaluation, stats and workflow (the plan and its status); only the CLI imports
it.
"""
