"""The verb that holds our code against the released code: `r3l released`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import AsJson, check_known
from r3l.cli.printing import print_shown


def released(
    subjects: Annotated[list[str] | None, typer.Argument(help="advantages, losses, ... Default: all.")] = None,
    files: Annotated[
        bool,
        typer.Option(
            "--files",
            help="The variables name folders with single files of the pinned commits: neither git nor commit is "
            "checked, what is not there does not run, and the table says so.",
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the table: NAME.csv, .tex and .md beside it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Hold our code against clones of the two releases on generated cases, and list what differs and why.

    `R3L_RELEASE` and `RLTF_RELEASE` name the clones; one of them is enough. **This executes code of the clones**:
    single functions, taken out of their files once the commit is checked, in a process with an empty environment.
    Exits with 1 where a difference has no reason in docs/audit.md.

    Example: `R3L_RELEASE=~/R3L RLTF_RELEASE=~/rltf r3l released`

    Example: `R3L_RELEASE=~/R3L r3l released advantages losses`
    """
    from rich.console import Group

    from r3l.released import clones, compare, report
    from r3l.released.checks import SUBJECTS
    from r3l.report import tables
    from r3l.report.table.terminal import to_terminal

    for subject in subjects or ():
        check_known("subject", subject, SUBJECTS)
    found = clones.find(checked=not files)
    outcomes = compare.run(subjects or list(SUBJECTS), found.folders)
    rows = report.rows(outcomes)
    printed = report.table(rows, found.source)
    if out:
        tables.write(rows, printed, out)
    print_shown(
        {"rows": rows, "source": found.source}, as_json, Group(to_terminal(printed), *report.examples(outcomes))
    )
    if any(row["unexplained"] for row in rows):
        raise typer.Exit(1)
