"""The verb that shows where the registered comparisons stand: `r3l registered`."""

from __future__ import annotations

from r3l.cli.arguments import AsJson, StoredRuns
from r3l.cli.printing import print_shown


def registered(
    results: StoredRuns = None,
    as_json: AsJson = False,
) -> None:
    """Where the primary comparisons of docs/preregistration.md stand, by its own test and stopping rule.

    Example: `r3l registered`
    """
    from r3l.report import records
    from r3l.report.registered import load_registered, of_start_models, registered_rows, registered_table
    from r3l.report.render import to_terminal
    from r3l.runs.places import runs_of
    from r3l.runs.stored_archive import stored_runs

    plan = load_registered()
    paths = runs_of(results or stored_runs(), [plan.method, plan.against], plan.tier, plan.envs)
    rows = registered_rows(of_start_models(records.load(paths), plan), plan)
    print_shown({"rows": [row.flat() for row in rows]}, as_json, to_terminal(registered_table(rows, plan)))
