"""`r3l demo`: shows what R3L does."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from r3l.cli.arguments import StoredRuns
from r3l.core.errors import DataError
from r3l.processes.parent import end_with_parent

STEPS = 3
PAUSE = 0.5  # seconds between two scenes on a terminal
LIVE = (f"train.steps={STEPS}", "train.tasks_per_step=4", "workers=1")


def demo(
    env: Annotated[str, typer.Option(help="Environment in which the demo makes three updates.")] = "math",
    stored: StoredRuns = None,
) -> None:
    """Show what R3L does, in a minute: a group that a stored run learned from, then three live updates.

    Example: `r3l demo`
    """
    from r3l.config import environment_of, resolve
    from r3l.local.checkpoint import check_template

    # An error that would end the live updates is found now, before the group is shown.
    run = resolve("nano", env, "r3l", 0)
    environment_of(env).check_installed()
    check_template(run)

    console = Console(highlight=False, soft_wrap=False)
    with tempfile.TemporaryDirectory(prefix="r3l-demo-") as folder:
        run_dir = Path(folder, "run")
        log = Path(folder, "log")
        with log.open("wb") as file:
            # Started first: it loads the model while the user reads the group.
            command = [sys.executable, "-m", "r3l.cli", "train", "--env", env, "--method", "r3l"]
            command += [word for change in LIVE for word in ("--set", change)]
            command += ["--run-dir", str(run_dir)]
            process = subprocess.Popen(command, stdout=file, stderr=file, preexec_fn=end_with_parent)
        try:
            _show_stored_group(console, stored)
            console.print()
            console.print(Rule(f"2  {STEPS} updates of R3L on {env}, now", align="left"))
            console.print(
                "From the base checkpoint: 4 tasks an update, several attempts a task, a reflection and a "
                "retry each."
            )
            for line in _updates(process, run_dir):
                console.print(line)
        finally:
            process.terminate()
            process.wait()
        if process.returncode:
            raise DataError(
                f"the live updates ended with an error:\n{log.read_text(encoding='utf-8').strip()}"
            )
    console.print(
        "\nNext: r3l run trains and compares methods; r3l list shows what is available;\n"
        "r3l report makes a page with every logged trajectory of a run."
    )


def _show_stored_group(console: Console, stored: Path | None) -> None:
    """Print the shortest group in which a retry solved the task that the first attempt failed."""
    from r3l.evaluation.stored_runs import stored_runs
    from r3l.report.trajectory_view import shortest_example

    # Without stored runs the demo goes on: its second part trains.
    try:
        runs = stored or stored_runs()
    except DataError as error:
        console.print(f"No stored group can be shown: {error}. The live updates need none.", markup=False)
        return
    example = shortest_example(sorted(runs.glob("*/*/*/r3l/seed*")))
    if example is None:
        console.print(
            f"No stored group can be shown: {runs} has no run of R3L in which a retry solved a task that the "
            "first attempt failed. The live updates need none.",
            markup=False,
        )
        return

    # One scene after the other, with pauses for a reader at a terminal.
    task, member = example
    heading = [Rule("1  A group that a stored run learned from", align="left"), Text(task.place, style="dim")]
    for scene in (*heading, *member.scenes(console.color_system is not None and not console.no_color)):
        console.print(scene)
        time.sleep(PAUSE if console.is_terminal else 0)


def _updates(process: subprocess.Popen[bytes], run_dir: Path) -> Iterator[str]:
    """A line for each update, as soon as the training process has written its metrics."""
    from r3l.runs.step_metrics import read_metrics

    shown = 0
    while shown < STEPS:
        # Looked up before the metrics are read: the last lines of a process that ends meanwhile count.
        running = process.poll() is None
        rows = read_metrics(run_dir)
        for row in rows[shown:]:
            retries = row.get("retry/count", 0)
            better = row.get("retry/improved", 0)
            seconds = row["seconds/collect"] + row["seconds/train"]
            yield (
                f"update {row['step']:.0f}/{STEPS}: {row['train/success']:.0%} of the attempts solved; "
                f"{row.get('reflection/valid', 0):.0f} reflections, {retries:.0f} retries, {better:.0f} of "
                f"them better; learnt from {row['tokens/trained']:.0f} tokens in {seconds:.1f} s"
            )
        shown = len(rows)
        if not running:
            return
        time.sleep(0.1)
    process.wait()
