"""Verbs about this project's stored runs, for an installed package: `r3l stored ...`."""

from __future__ import annotations

from typing import Annotated

import typer

from r3l.cli.arguments import AsJson
from r3l.cli.printing import print_result


def fetch(
    source: Annotated[str, typer.Argument(help="r3l-stored-VERSION.zip, which comes with the wheel: a file or a URL.")],
    as_json: AsJson = False,
) -> None:
    """Unpack the stored runs into $R3L_CACHE/stored, where `compare`, `reproduced`, `power` and `verify` find them.

    A checkout has them already, in results/stored.

    Example: `r3l stored fetch r3l-stored-0.1.0.zip`
    """
    from r3l.runs import stored_archive
    from r3l.runs.places import find_runs

    folder = stored_archive.fetch(source)
    runs = len(find_runs(folder))
    print_result({"folder": str(folder), "runs": runs}, as_json, f"{runs} stored runs in {folder}")


def path(as_json: AsJson = False) -> None:
    """Print where the stored runs lie, for `--results` of `table`, `figure` and `report`.

    Example: `r3l stored path`
    """
    from r3l.runs.stored_archive import stored_runs

    folder = str(stored_runs())
    print_result({"folder": folder}, as_json, folder)
