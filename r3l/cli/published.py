"""The verb that checks published numbers: `r3l published`."""

from __future__ import annotations

from r3l.cli.arguments import AsJson
from r3l.cli.printing import print_shown


def published(as_json: AsJson = False) -> None:
    """Check every published number: other values of the same quantity, and whether the score is a multiple of 1/n.

    Example: `r3l published`
    """
    from r3l.report.published import load
    from r3l.report.published_checks import check, summary, summary_table
    from r3l.report.render import to_terminal

    rows = check(load())
    content = {"rows": [row.flat() for row in rows], "summary": summary(rows)}
    print_shown(content, as_json, to_terminal(summary_table(rows)))
