"""Tables, figures and the HTML report, made offline from the files that runs leave.

How a cell of Table 1 comes about, in this order: ``frame`` (stored runs as one DataFrame), ``tables`` (which
of them a file of configs/tables shows), ``scores`` (the rows of its csv file) with ``published`` (the numbers
to compare with), ``paper_table`` (what is printed of them), ``table`` (terminal, Markdown, LaTeX, CSV).

The other files:

- further rows: ``measures`` (what training counted), ``budget`` (what it cost), ``updates`` (metrics of each
  update)
- differences: ``compare`` (a method against others), ``power`` (seeds that a difference takes),
  ``registered``
- claims: ``claims`` and ``claim_learning`` (their tests), ``claim_verdicts``, ``claims_table``
- probes: ``probes`` (side by side), ``probe_map`` (what they predict) and ``map_table``
- one evaluation: ``protocol_scores``, ``reproduction`` (against the stored run); learning rates: ``tuning``
- logged groups: ``trajectories`` (packed for the HTML page), ``trajectory_view`` (printed)
- workflows: ``progress``, ``gpu_hours``; settings: ``options``; names, p-values in print: ``labels``
- ``figures`` and ``html`` take the same frame

May import core, config, runs, evaluation, stats and workflow (the plan and its status); only the CLI imports
it.
"""
