"""The verb that holds our code against the released code: `r3l released`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import AsJson, output
from r3l.cli.printing import print_shown
from r3l.core.errors import check_known


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
    out: Annotated[Path | None, output("Also write the rows as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Hold our code against clones of the two releases on generated cases, and list what differs and why.

    `R3L_RELEASE` and `RLTF_RELEASE` name the clones; one of them is enough. **This executes code of the clones**:
    single functions, taken out of their files once the commit is checked, in a process with an empty environment.
    Exits with 1 where a difference has no reason in docs/audit.md.

    Example: `r3l released advantages losses` after `export R3L_RELEASE=~/R3L`
    """
    from rich.console import Group

    from r3l.files.writing import writable, write_json_atomic
    from r3l.released import clones, compare, report
    from r3l.released.checks import SUBJECTS
    from r3l.report.render import to_terminal

    for subject in subjects or ():
        check_known("subject", subject, SUBJECTS)
    found = clones.find(checked=not files)
    outcomes = compare.run(subjects or list(SUBJECTS), found.folders)
    rows = report.rows(outcomes)
    content = {"rows": rows, "source": found.source}
    if out:
        with writable(out):
            write_json_atomic(out, content)
    shown = to_terminal(report.table(rows, found.source))
    print_shown(content, as_json, Group(shown, *report.examples(outcomes)))
    if any(row["unexplained"] for row in rows):
        raise typer.Exit(1)
