"""Pages of every command, option, metric and interface, made from the code when the site is built
(hooks.py)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from typer import Context
from typer.cli import get_docs_for_click
from typer.main import get_command

from r3l.cli import app
from r3l.config.options import CITED, Option, environment_options, method_options, run_options
from r3l.runs.metrics import METRICS_BY_NAME

INTERFACES = {
    "Methods": ["r3l.core.method.TrainedMethod", "r3l.core.method.ImitationMethod", "r3l.core.method.Batch"],
    "Rollouts": [
        "r3l.core.rollout.RolloutContext",
        "r3l.core.rollout.play_group",
        "r3l.reflection.reflect",
        "r3l.retry.retry",
        "baselines.teacher",
    ],
    "Tasks and trajectories": ["r3l.core.task.Task", "r3l.core.trajectory"],
    "Advantages and losses": ["r3l.core.advantages", "r3l.core.losses"],
    "Environments": [
        "envs.base.one_file",
        "r3l.core.environment",
    ],
}
HEAD = """# The command line

Every command of `r3l`, as `r3l COMMAND --help` shows it. Bad input is
one paragraph on stderr and exit code 2; a run that is stopped exits with 75: re-run to resume.
Ctrl-C exits with 130, and `r3l run`, `compare` and `tune`, which stop their runs first, with 75.

"""


def commands() -> str:
    """Every command, as its ``--help`` shows it, by Typer's own generator."""
    program = get_command(app)
    _prepare(program)
    body = get_docs_for_click(obj=program, ctx=Context(program), name="r3l")
    return HEAD + body.split("\n", 2)[2].strip() + "\n"


def _prepare(command: Any) -> None:
    """Show complete first sentences in lists of commands, which Typer cuts after 45 characters; drop
    ``--help``."""
    command.short_help = " ".join((command.help or "").split("\n\n")[0].split())
    command.add_help_option = False
    for part in getattr(command, "commands", {}).values():
        _prepare(part)


def options() -> str:
    """Every option of methods, environments and runs."""
    return f"""# Options

Every hyperparameter as the code declares it (`r3l.core.option`): allowed values, default, meaning and the source of
the default. Files of `configs/` have only values that differ, with their own sources.

## Methods

Defaults are those of profile `paper`. Set one with a variant: `r3l train --method r3l@alpha=5`.

{_table(method_options(), ("option", "used_by", "values", "default", "meaning", "source"))}
## Environments

Set one with `r3l train --env math --set env_settings.options.attempts=3`.

{_table(environment_options(), ("option", "used_by", "values", "default", "meaning", "source"))}
## Runs

Set one with `r3l train --set train.lr=1e-4`. An option without a default has its value in each tier. `cluster` is
set in `configs/models/`.

{_table(run_options(), ("option", "values", "default", "meaning", "source"))}"""


def _table(rows: Sequence[Option], columns: tuple[str, ...]) -> str:
    lines = ["| " + " | ".join(columns).replace("_", " ") + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [_cell(column, getattr(row, column)) for column in columns]
        lines.append("| " + " | ".join(cells) + " |")
    return '<div class="options" markdown>\n\n' + "\n".join(lines) + "\n\n</div>\n"


def _cell(column: str, text: str) -> str:
    if column in ("meaning", "source"):
        return CITED.sub(_link, text.replace("|", "\\|"))
    return ", ".join(f"`{part}`" for part in re.split(r" \| |, ", text)) if text else ""


def _link(cited: re.Match[str]) -> str:
    anchor = f"#{cited[0].lower()}" if cited[0][1] == "-" else ""
    return f"[{cited[0]}](audit.md{anchor})"


def metrics() -> str:
    """Every key of metrics.jsonl."""
    head = """# Metrics

A run writes a line of metrics for every step to `metrics.jsonl`. These are its keys, from
`r3l/runs/metrics.py`. The [glossary](index.md#glossary) explains the words. `/*` means a family of
metrics that differ in their last part.

The kind of a value:

- *step*: a mean, a share or a state of this step;
- *total*: a count of this step, added up over the run in `result.json`;
- *time*, and *fault* (something that failed and was repaired): not added up, so that `result.json` repeats byte for
  byte.

| metric | unit | kind | meaning |
|---|---|---|---|
"""
    lines = "".join(f"| `{m.name}` | {m.unit} | {m.kind} | {m.meaning} |\n" for m in METRICS_BY_NAME.values())
    return head + re.sub(r"\b[AB]-\d+", lambda cited: f"[{cited[0]}](audit.md#{cited[0].lower()})", lines)


def interfaces() -> str:
    """Signatures and docstrings that a new method or environment uses (mkdocstrings)."""
    parts = [
        f"## {heading}\n\n" + "\n\n".join(f"::: {name}" for name in names)
        for heading, names in INTERFACES.items()
    ]
    axes = "Tensors end in their axes: `_B` row, `_T` token, `_G` group member. `envs` is installed as `r3l.envs`."
    return "\n\n".join(["# Interfaces", axes, *parts])
