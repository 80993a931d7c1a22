"""The verb that shows where the registered comparisons stand: `r3l registered`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import AsJson
from r3l.cli.compare import runs_of
from r3l.cli.printing import print_shown
from r3l.core.paths import STORED


def registered(
    results: Annotated[Path | None, typer.Option(help="Where runs lie. Default: those of this project.")] = None,
    as_json: AsJson = False,
) -> None:
    """Where the primary comparisons of docs/preregistration.md stand, by its own test and stopping rule.

    Example: `r3l registered`
    """
    from r3l.config import resolve
    from r3l.report import records
    from r3l.report.registered import load_registered, registered_rows, registered_table
    from r3l.report.table.terminal import to_terminal

    plan = load_registered()
    models = {env: Path(resolve(plan.tier, env, plan.against, 0).model).name for env in plan.envs}
    paths = runs_of(results or STORED, plan.tier, plan.envs, [plan.method, plan.against])
    found = [path for path in paths if path.parts[-4] == models[path.parts[-5]]]
    rows = registered_rows(records.load(found), plan)
    print_shown({"rows": rows}, as_json, to_terminal(registered_table(rows, plan)))
