"""Tables, figures and the HTML report, made offline from the files that runs leave.

How a cell of Table 1 comes about, such as ``0.731 ± 0.017`` of GRPO in ALFWorld. The command ``table`` of
r3l/cli/table.py calls, in this order:

1. ``reading.read_runs``: all runs as one DataFrame, whose columns ``frame`` explains. The five seeds of GRPO
   are five rows of the group ``all``, each with its success on every task (``task_success``).
2. ``tables.selected`` and ``tables.build``: the runs and rows that a file of configs/tables shows.
3. ``scores.score_rows``: one row for each environment, method and task group, as in the csv file. Its
   ``_row`` takes the five seeds' means over tasks to ``r3l.stats.intervals.t_interval`` (their mean, with
   its interval) and compares them with the baseline and with ``published`` numbers.
4. ``paper_table.paper_table``: the cell's row and column; ``labels.plus_minus``: its text.
5. ``table.Table``: columns that fit the terminal; ``table.write``: CSV, Markdown and LaTeX.

With ``--full`` ``full_table`` takes the place of ``paper_table``: a line for each row of scores.

The other files:

- further rows: ``measures`` (what training counted), ``budget`` (what it cost), ``updates`` (metrics of each
  update)
- differences: ``compare`` (a method against others), ``power`` (seeds that a difference takes),
  ``registered``
- claims: ``claims`` and ``claim_learning`` (their tests), ``claim_verdicts`` (makes and judges
  ``claim_rows``), ``claims_table``
- probes: ``probes`` (side by side), ``probe_map`` (against what training gained), ``map_rule`` (what they
  predict), ``map_table``
- one evaluation: ``protocol_scores``, ``reproduction`` (against the stored run); learning rates: ``tuning``
- logged groups: ``trajectories`` (packed for the HTML page), ``trajectory_view`` (printed)
- workflows: ``progress``, ``gpu_hours``; settings: ``options``; names and numbers as printed: ``labels``
- ``figures`` and ``html`` take the same frame
"""
