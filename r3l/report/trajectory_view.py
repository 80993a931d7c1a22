"""Logged groups as a reader sees them: `r3l demo` prints them, a notebook shows them, ``rich`` prints them
anywhere.

The HTML report has the same trajectories in its viewer (r3l/report/trajectories.py packs them).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from r3l.report.trajectories import ExplainedTrajectory, by_member, read

MARKUP = re.compile(r"<\|[^|<>]*\|>")  # a chat template's own tokens
LONGEST = 300  # characters of an observation or a response that are shown
WIDTH = 100  # columns in a notebook
COLOURS = {
    "up": "blue",
    "down": "dark_orange",
    "imitated": "magenta",
    "masked": "dim",
}  # as in the HTML report
MEANINGS = {"up": "made likelier", "down": "less likely", "imitated": "imitated", "masked": "masked"}
SAID = {  # keys of a parsed reflection or critique
    "root_cause_analysis": "what went wrong",
    "improvement_suggestion": "suggestion",
    "guidance": "guidance",
    "invalid": "invalid",
}
NAMES = {
    "base": "the attempt",
    "reflection": "the reflection",
    "critique": "the critique",
    "guided_retry": "the retry with the hint",
    "distilled": "the retry without the hint",
    "refined": "the refinement, instead of its attempt",
}
FEEDBACK = ("reflection", "critique")
PAGE = '<pre style="background:#fff;color:#000;font-family:monospace;line-height:1.35">{code}</pre>'


class Printable:
    """Something that ``rich`` prints and a notebook shows; subclasses say its parts in ``scenes``."""

    def scenes(self, in_colour: bool = True) -> Iterator[RenderableType]:
        """The parts to print, from top to bottom; ``in_colour``: with a legend of the colours."""
        raise NotImplementedError

    def __rich__(self) -> RenderableType:
        return Group(*self.scenes())

    def _repr_html_(self) -> str:
        console = Console(
            width=WIDTH, record=True, file=io.StringIO(), force_jupyter=False, color_system="256"
        )
        console.print(self)
        return console.export_html(code_format=PAGE, inline_styles=True)


@dataclass(frozen=True, repr=False)
class Member(Printable):
    """A rollout with the reflections on it and its retries, in the order in which they came."""

    trajectories: Sequence[ExplainedTrajectory]

    def __repr__(self) -> str:
        return f"Member({', '.join(trajectory['kind'] for trajectory in self.trajectories)})"

    def first(self, kind: str) -> ExplainedTrajectory | None:
        """The first trajectory of this ``kind``, such as ``base`` or ``guided_retry``; None without one.

        Kinds are the values of r3l.core.trajectory.TrajectoryKind.
        """
        return next((trajectory for trajectory in self.trajectories if trajectory["kind"] == kind), None)

    @property
    def pivot(self) -> int | None:
        """The turn (from 0) at which the first retry resumes the attempt; None without a retry."""
        retry = self.first("guided_retry") or self.first("refined")
        return None if retry is None else retry["restart_turn"]

    @property
    def rescued(self) -> bool:
        """True if the attempt failed and its first retry succeeded."""
        base = self.first("base")
        retry = self.first("guided_retry")
        return bool(base and retry and retry["success"] and not base["success"])

    def scenes(self, in_colour: bool = True) -> Iterator[RenderableType]:
        for trajectory in self.trajectories:
            kind = trajectory["kind"]
            start = trajectory["restart_turn"]
            if kind == "base":
                yield from _played("The attempt", trajectory, 0)
            elif kind in FEEDBACK:
                yield Text(f"\nThe {kind} on it", style="bold")
                parsed = trajectory["parsed"] or {}
                yield _grid((name, Text(str(parsed[key]))) for key, name in SAID.items() if parsed.get(key))
            elif kind == "guided_retry":
                hinted = any(t["kind"] in FEEDBACK for t in self.trajectories)
                how = "(the pivot), guided by the suggestion" if hinted else "without a hint"
                yield from _played(f"The retry from turn {start} {how}", trajectory, start)
            elif kind == "refined":
                yield from _played(
                    f"The refinement from turn {start}, which replaces the attempt", trajectory, start
                )
        legend = [(f"{MEANINGS[name]}  ", colour) for name, colour in COLOURS.items() if in_colour]
        yield Text.assemble(("\nWhat trains", "bold"), "   ", *legend)
        yield _training([("", trajectory) for trajectory in self.trajectories], bool(self.pivot))


@dataclass(frozen=True, repr=False)
class LoggedTask(Printable):
    """A logged task of one training step; the advantages of its members have one baseline.

    ``group``: easy or hard. ``selected_as``: why it was logged (``first`` of the step, or ``taught``
    something). ``source``: the run.
    """

    source: Path
    step: int
    task: str
    group: str
    selected_as: str
    members: Sequence[Member]

    def __repr__(self) -> str:
        return f"LoggedTask(step={self.step}, task={self.task!r}, members={len(self.members)})"

    @property
    def place(self) -> str:
        """The run's path below a folder of results, and the step and task."""
        return f"{'/'.join(self.source.parts[-5:])}, step {self.step}, task {self.task}"

    def scenes(self, in_colour: bool = True) -> Iterator[RenderableType]:
        yield Text(self.place, style="dim")
        rows = [
            (f"{k}  ", trajectory)
            for k, member in enumerate(self.members, 1)
            for trajectory in member.trajectories
        ]
        yield _training(rows, any(member.pivot for member in self.members))


def logged_tasks(run_dir: Path) -> list[LoggedTask]:
    """The logged tasks of a run's first, middle and last step; [] if it kept no trajectories.

    Raises DataError for damaged files.
    """
    return [
        LoggedTask(
            source=run_dir,
            members=[Member(trajectories) for trajectories in by_member(line)],
            **{key: line[key] for key in ("step", "task", "group", "selected_as")},
        )
        for line in read(run_dir)
    ]


def shortest_example(run_dirs: Iterable[Path]) -> tuple[LoggedTask, Member] | None:
    """The shortest logged example of a retry that helped; None if no run has one.

    A failed attempt is solved by a retry from a later turn than the first, and that retry without its hint
    (``distilled``) trains with a positive advantage. Shortest: by the turns of attempt and retry that a
    reader reads; of equally short ones the first. Raises DataError for damaged files.
    """

    def learns(member: Member) -> bool:
        distilled = member.first("distilled")
        return distilled is not None and (distilled["advantage"] or 0) > 0

    def turns(example: tuple[LoggedTask, Member]) -> int:
        """Number of turns that a reader of the example reads."""
        return sum(
            len(trajectory["turns"]) - trajectory["restart_turn"]
            for trajectory in example[1].trajectories
            if trajectory["kind"] in ("base", "guided_retry")
        )

    found = [
        (task, member)
        for run_dir in run_dirs
        for task in logged_tasks(run_dir)
        for member in task.members
        if member.rescued and member.pivot and learns(member)
    ]
    return min(found, key=turns, default=None)


def _played(title: str, trajectory: ExplainedTrajectory, first: int) -> Iterator[RenderableType]:
    """Its outcome and its turns from ``first`` on, response tokens coloured by what training does with
    them."""
    outcome = "solved" if trajectory["success"] else "not solved"
    yield Text.assemble((f"\n{title}", "bold"), f"   reward {trajectory['reward']:.2f}, {outcome}")
    effect = "up" if (trajectory["advantage"] or 0) > 0 else "down"
    effect = "imitated" if trajectory["objective"] == "sft" else effect
    for k, turn in enumerate(trajectory["turns"][first:], first):
        parts = [
            (_plain(str(part)), effect if trained else "masked") for part, _, trained in turn["response"]
        ]
        writes = Text.assemble(*((text, COLOURS[seen]) for text, seen in parts))
        yield _grid([(f"turn {k} reads", Text(_plain(turn["prompt"]))), ("writes", writes)])


def _training(rows: Sequence[tuple[str, ExplainedTrajectory]], pivoted: bool) -> RenderableType:
    """Reward, advantage and trained tokens of each trajectory, and how each advantage comes about."""
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for column in ("", "reward", "advantage", "tokens that train"):
        table.add_column(column, justify="left" if not column else "right")
    for number, trajectory in rows:
        kind = trajectory["kind"]
        objective = trajectory["objective"]
        others = {"sft": "imitated", "none": "not trained"}.get(objective, "-")
        advantage = others if trajectory["advantage"] is None else f"{trajectory['advantage']:+.2f}"
        reward = "" if kind in FEEDBACK else f"{trajectory['reward']:.2f}"
        sampled = [
            (int(tokens), trained) for turn in trajectory["turns"] for _, tokens, trained in turn["response"]
        ]
        trained_tokens = sum(tokens for tokens, trained in sampled if trained)
        total = sum(tokens for tokens, _ in sampled)
        table.add_row(number + NAMES[kind], reward, advantage, f"{trained_tokens} of {total}")
    # Equal advantages have one explanation.
    explained = dict.fromkeys(
        f"{trajectory['advantage']:+.2f} is {trajectory['derivation']}."
        for _, trajectory in rows
        if "derivation" in trajectory
    )
    masked = (
        ["The turns before the pivot are the same in attempt and retry, so they are masked."]
        if pivoted
        else []
    )
    why = "\n".join([*explained, *masked])
    parts = [table, Text(why, style="dim")] if why else [table]
    return Padding(Group(*parts), (0, 0, 0, 2))


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
