"""One group of R3L for a reader at a terminal: the attempt, the reflection, the retry, and what trains."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from r3l.report.trajectories import by_member, read

Trajectory = dict[str, Any]
MARKUP = re.compile(r"<\|[^|<>]*\|>")  # a chat template's own tokens
LONGEST = 300  # characters of an observation or a response that are shown
COLOURS = {"up": "blue", "down": "dark_orange", "imitated": "magenta", "masked": "dim"}  # as in the HTML report
MEANINGS = {"up": "made likelier", "down": "less likely", "imitated": "imitated", "masked": "masked"}


@dataclass(frozen=True)
class Example:
    """A member of a group: its trajectories by their kinds (attempt 0), and where they come from."""

    source: str
    base: Trajectory
    reflection: Trajectory
    retry: Trajectory
    distilled: Trajectory

    @property
    def turns(self) -> int:
        """To be read."""
        return len(self.base["turns"]) + len(self.retry["turns"]) - self.pivot

    @property
    def pivot(self) -> int:
        """The first turn that the retry plays again, counted from 0."""
        return int(self.retry["restart_turn"])


def shortest_example(run_dirs: Iterable[Path]) -> Example | None:
    """The shortest to read in which a failed attempt is solved by a retry from a later turn than the first, which then
    trains with a positive advantage; of equally short ones the first. None where the runs have none."""
    found = [example for run_dir in run_dirs for example in _examples(run_dir)]
    return min(found, key=lambda example: example.turns, default=None)


def _examples(run_dir: Path) -> Iterator[Example]:
    for line in read(run_dir):
        source = f"{'/'.join(run_dir.parts[-5:])}, step {line['step']}, task {line['task']}"
        for member in by_member(line):
            of = {trajectory["kind"]: trajectory for trajectory in member if trajectory["attempt"] == 0}
            if {"base", "reflection", "guided_retry", "distilled"} <= set(of):
                example = Example(source, of["base"], of["reflection"], of["guided_retry"], of["distilled"])
                solved = example.retry["success"] and not example.base["success"]
                if solved and example.pivot > 0 and (example.distilled["advantage"] or 0) > 0:
                    yield example


def scenes(example: Example, in_colour: bool) -> Iterator[RenderableType]:
    """What is shown, one after the other; ``in_colour``: with what the colours mean."""
    pivot, parsed = example.pivot, example.reflection["parsed"] or {}
    yield Rule("1  A group that a stored run learnt from", align="left")
    yield Text(example.source, style="dim")
    yield from _trajectory("The attempt", example.base, 0)
    yield Text("\nThe model reflects on it", style="bold")
    said = {
        "what went wrong": parsed.get("root_cause_analysis"),
        "suggestion": parsed.get("improvement_suggestion"),
        "pivot": f"turn {pivot}: the turns before it are kept",
    }
    yield _grid((key, Text(value)) for key, value in said.items() if value)
    yield from _trajectory(f"The retry from turn {pivot}, guided by the suggestion", example.retry, pivot)
    legend = [(f"{MEANINGS[name]}  ", COLOURS[name]) for name in COLOURS if in_colour]
    yield Text.assemble(("\nWhat trains", "bold"), "   ", *legend)
    yield _training(example)


def _trajectory(title: str, trajectory: Trajectory, first: int) -> Iterator[RenderableType]:
    """Its outcome and its turns from ``first`` on, response tokens coloured by what training does with them."""
    outcome = "solved" if trajectory["success"] else "not solved"
    yield Text.assemble((f"\n{title}", "bold"), f"   reward {trajectory['reward']:.2f}, {outcome}")
    for k, turn in enumerate(trajectory["turns"][first:], first):
        parts = [(_plain(part), _effect(trajectory) if trained else "masked") for part, _, trained in turn["response"]]
        writes = Text.assemble(*((text, COLOURS[effect]) for text, effect in parts))
        yield _grid([(f"turn {k} reads", Text(_plain(turn["prompt"]))), ("writes", writes)])


def _effect(trajectory: Trajectory) -> str:
    if trajectory["objective"] == "sft":
        return "imitated"
    return "up" if (trajectory["advantage"] or 0) > 0 else "down"


def _training(example: Example) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for column in ("", "reward", "advantage", "tokens that train"):
        table.add_column(column, justify="left" if not column else "right")
    rows = {
        "the attempt, from the pivot on": example.base,
        "the retry without the suggestion, from the pivot on": example.distilled,
        "the retry with it": example.retry,
        "the reflection": example.reflection,
    }
    for name, trajectory in rows.items():
        imitated = "imitated" if trajectory["objective"] == "sft" else "-"
        advantage = imitated if trajectory["advantage"] is None else f"{trajectory['advantage']:+.2f}"
        reward = "" if trajectory["kind"] == "reflection" else f"{trajectory['reward']:.2f}"
        sampled = [(tokens, trained) for turn in trajectory["turns"] for _, tokens, trained in turn["response"]]
        learnt, of = sum(n for n, trained in sampled if trained), sum(n for n, _ in sampled)
        table.add_row(name, reward, advantage, f"{learnt} of {of}")
    explained = dict.fromkeys(
        f"{trajectory['advantage']:+.2f} is {trajectory['derivation']}."
        for trajectory in rows.values()
        if "derivation" in trajectory
    )
    masked = "The turns before the pivot are the same in attempt and retry, so they are masked."
    why = "\n".join([*explained, masked])
    return Padding(Group(table, Text(why, style="dim")), (0, 0, 0, 2))


def _plain(text: str) -> str:
    shown = MARKUP.sub("", text).strip()
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]} ..."


def _grid(rows: Iterable[tuple[str, Text]]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, justify="right")
    grid.add_column()
    for key, value in rows:
        grid.add_row(key, value)
    return Padding(grid, (0, 0, 0, 2))


def update_line(metrics: dict[str, float], steps: int) -> str:
    """An update in a sentence."""
    retries, better = metrics.get("retry/count", 0), metrics.get("retry/improved", 0)
    seconds = metrics["seconds/collect"] + metrics["seconds/train"]
    return (
        f"update {metrics['step']:.0f}/{steps}: {metrics['train/success']:.0%} of the attempts solved; "
        f"{metrics.get('reflection/valid', 0):.0f} reflections, {retries:.0f} retries, {better:.0f} of them better; "
        f"learnt from {metrics['tokens/trained']:.0f} tokens in {seconds:.1f} s"
    )
