"""The verb that holds fresh runs against the stored ones: `r3l reproduced`."""

from __future__ import annotations

from r3l.cli.arguments import RESULTS, AsJson, Results, StoredRuns
from r3l.cli.printing import print_shown


def reproduced(
    results: Results = RESULTS,
    stored: StoredRuns = None,
    as_json: AsJson = False,
) -> None:
    """For every run here: is it the stored one, episode by episode; if not, how far apart are they, and what differs?

    Example: `r3l reproduced`
    """
    from r3l.report.reproduction import lines, reproduction
    from r3l.runs.stored_archive import stored_runs

    rows = reproduction(results, stored or stored_runs())
    print_shown({"runs": rows}, as_json, "\n".join(lines(rows)))
