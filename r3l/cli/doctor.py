"""The verb that checks this machine: `r3l doctor`."""

from __future__ import annotations

import typer

from r3l.cli.arguments import AsJson, Tier
from r3l.cli.printing import print_shown


def doctor(tier: Tier = "nano", as_json: AsJson = False) -> None:
    """Check that this machine can run a tier; exit code 2 if something fails.

    Example: `r3l doctor --tier nano`
    """
    from r3l.workflow import doctor as checks

    results = checks.examine(tier)
    content = {"tier": tier, "ok": all(c.ok for c in results), "checks": [vars(c) for c in results]}
    print_shown(content, as_json, checks.render(results))
    if not all(check.ok for check in results):
        raise typer.Exit(2)
