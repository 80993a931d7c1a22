"""A method against others, seed by seed: scores, paired difference, budget, and other differences."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from r3l.config import hashed, variant
from r3l.config.files import differing, flat
from r3l.config.user_code import changed_files, user_code
from r3l.core.errors import ConfigError, DataError
from r3l.report.frame import by_bench, common_seeds, groups, scores_S_T
from r3l.report.labels import MDE, MDE_NOTE, has_foreign_feedback, mde_text, method_label, p_cell
from r3l.report.scores import interval_columns, paired_columns
from r3l.report.table import Cell, Column, Table, table
from r3l.runs.metrics import GENERATED_TOKENS, TRAINED_TOKENS
from r3l.stats.comparison import Comparison, Effect, Verdict, compare_effects
from r3l.stats.intervals import Interval, t_interval

log = logging.getLogger(__name__)

BUDGET = {
    "rollouts": "rollouts",
    "env_steps": "env_steps",
    "generated": GENERATED_TOKENS,
    "trained": TRAINED_TOKENS,
}
# Sections of a run's configuration that can differ between two runs of different methods.
SETTINGS = ("prompts", "samples", "train", "sampling", "evaluation", "judge", "lora", "env_settings")
WRITERS = {"self": "the model itself", "environment": "the environment's critic"}
PLACE = ("tier", "env", "model", "method", "group", "against", "label")
NUMBERS = (
    *(f"{name}_{part}" for name in ("ours", "theirs", "difference") for part in ("mean", "low", "high")),
    *("probability_of_improvement", "p_value", "p_holm", "spread", "mde", "mde_holm"),
    *(f"budget_{name}" for name in BUDGET),
)


@dataclass(frozen=True)
class MethodComparison:
    """``method`` and ``against`` in one (tier, env, model), over the seeds that both have.

    ``group``: the tasks that are scored (easy, hard, all). ``label``: printed name of ``against``. ``ours``,
    ``theirs``: mean test success of ``method`` and of ``against``, with their intervals over seeds.
    ``effect``: ``method`` minus ``against``, paired by seed. ``difference``: the same with its verdict, after
    Holm's correction over all rows. Without common seeds the scores, the effect, the difference and the
    budget are None. ``budget``: training cost of ``method`` divided by the cost of ``against``, by the names
    of BUDGET. ``warnings``: what differs between the runs besides the method.
    """

    tier: str
    env: str
    model: str
    method: str
    group: str
    against: str
    label: str
    ours: Interval | None = None
    theirs: Interval | None = None
    effect: Effect | None = None
    difference: Comparison | None = None
    budget: Mapping[str, float | None] | None = None
    warnings: Sequence[str] = ()

    @property
    def pairs(self) -> int:
        """Number of seeds that both methods have."""
        return self.effect.seeds if self.effect else 0

    @property
    def spread(self) -> float | None:
        """Standard deviation of the paired differences over seeds; None for one seed or equal differences."""
        return self.effect.deviation if self.effect else None

    @property
    def verdict(self) -> str:
        """The printed verdict: ``ahead``, ``behind``, ``equivalent`` or ``inconclusive`` (:class:`Verdict`).

        With too few seeds for a test, ``incomplete (2 common seeds)``.
        """
        if self.difference is None or self.difference.verdict is Verdict.INCOMPLETE:
            return f"{Verdict.INCOMPLETE} ({self.pairs} common seed{'' if self.pairs == 1 else 's'})"
        return self.difference.verdict

    def flat(self) -> dict[str, Any]:
        """The comparison as one flat record for JSON output: PLACE, NUMBERS, pairs, verdict and warnings.

        What is unknown is None.
        """
        values = vars(self) | interval_columns(self.ours, "ours_") | interval_columns(self.theirs, "theirs_")
        if self.difference:
            values |= paired_columns(self.difference)
        values |= {f"budget_{key}": value for key, value in (self.budget or {}).items()}
        columns = {key: values.get(key) for key in (*PLACE, *NUMBERS)}
        return columns | {"pairs": self.pairs, "verdict": self.verdict, "warnings": list(self.warnings)}


def compare_methods(
    runs: pd.DataFrame, method: str, against: Sequence[str], group: str = "all"
) -> list[MethodComparison]:
    """Compare ``method`` with each method of ``against`` in each (tier, environment, model) of ``runs``.

    Differences in test success are paired by common seeds; Holm corrects over all rows. Environments without
    a run of ``method`` are skipped; an opponent without common seeds has a row without scores. ``group``: of
    the task set's tasks (easy, hard, all); environments whose task set has no such group are left out with a
    warning. Raises DataError if there is no run of ``method``, or no environment has the group.
    """
    rows: list[MethodComparison] = []
    without: dict[str, str] = {}  # environments without the group, and the groups that they have
    for bench, here in by_bench(runs).items():
        if method not in set(here.method):
            continue
        known = groups(here[here.method == method])
        if group not in known:
            without[bench[1]] = ", ".join(known)
            continue

        # A row for each opponent, over the seeds that both have.
        here = here[here.group == group]
        ours = here[here.method == method]
        place = {key: ours.iloc[0][key] for key in ("tier", "env", "model", "method", "group")}
        for other in against:
            theirs = here[here.method == other]
            label = theirs.iloc[0].label if len(theirs) else method_label(other)
            row = MethodComparison(**place, against=other, label=label)
            common, twins = common_seeds(ours, theirs)
            if len(common):
                ours_S_T = scores_S_T(common)
                theirs_S_T = scores_S_T(twins)
                budget: dict[str, float | None] = {}
                for name, counter in BUDGET.items():
                    spent, compared = (
                        sum(count.get(counter, 0.0) for count in seeds.budget) for seeds in (common, twins)
                    )
                    budget[name] = spent / compared if compared else None
                row = replace(
                    row,
                    ours=t_interval(ours_S_T.mean(axis=1)),
                    theirs=t_interval(theirs_S_T.mean(axis=1)),
                    effect=Effect.paired(ours_S_T, theirs_S_T),
                    budget=budget,
                    warnings=setting_warnings(common, twins),
                )
            rows.append(row)
    if without and not rows:
        known_groups = "; ".join(f"the tasks of {env} are {known}" for env, known in without.items())
        raise DataError(f"--group is {group!r}; {known_groups}")
    if without:
        log.warning("without %s tasks, so left out: %s", group, ", ".join(without))
    if not rows:
        raise DataError(
            f"there is no evaluated run of {method!r} in the environments that are compared; choose others "
            "(--env), or train it first (r3l compare does, without --offline)"
        )

    # Holm's correction covers every row.
    differences = compare_effects([row.effect for row in rows])
    return [replace(row, difference=difference) for row, difference in zip(rows, differences, strict=True)]


def setting_warnings(ours: pd.DataFrame, theirs: pd.DataFrame) -> list[str]:
    """Sentences on what differs between paired runs besides the method, each once; [] if nothing does.

    It compares the settings SETTINGS, who sampled the test episodes, and who wrote feedback in training. It
    also names files of a user's own code that have changed since either run, or why that is not known.
    ``ours``, ``theirs``: rows of r3l.report.frame, one for each seed, in the same order. Seeds that agree in
    all of this have the sentences of the first one.
    """
    lines: dict[str, None] = {}
    compared: list[Any] = []
    for (_, one), (_, other) in zip(ours.iterrows(), theirs.iterrows(), strict=True):
        runs = [hashed(row.manifest["run"]) for row in (one, other)]
        settings = [
            ([run.get(key) for key in (*SETTINGS, "own_code")], row.agent, row.feedback)
            for run, row in zip(runs, (one, other), strict=True)
        ]
        if settings not in compared:
            compared.append(settings)
            lines |= dict.fromkeys(_pair_warnings(one, other))
    return [*lines]


def _pair_warnings(ours: pd.Series, theirs: pd.Series) -> list[str]:
    """The sentences of :func:`setting_warnings` on one pair of runs."""
    lines = []
    a, b = (hashed(one.manifest["run"]) for one in (ours, theirs))
    here, there = flat(a), flat(b)
    for key in differing(a, b):
        if key.partition(".")[0] in SETTINGS:
            lines.append(f"{key} is {here.get(key)!r} here and {there.get(key)!r} there")

    # Test episodes that a server sampled, and feedback that another model or the environment wrote.
    players = [
        f"a server ({one.agent['model']}, {one.agent['dialog']})" if one.agent else "the local policy"
        for one in (ours, theirs)
    ]
    if players[0] != players[1]:
        lines.append(f"test episodes were sampled by {players[0]} here and by {players[1]} there")
    authors = [one.feedback for one in (ours, theirs)]
    if authors[0] != authors[1] and any(map(has_foreign_feedback, authors)):
        writers = [f"written by {WRITERS.get(label, label)}" if label else "not read" for label in authors]
        lines.append(f"feedback in training was {writers[0]} here and {writers[1]} there")

    # Runs record the digests of a user's own code, which may have changed since.
    for one, run in ((ours, a), (theirs, b)):
        if recorded := run.get("own_code", {}):
            try:
                changed = changed_files(recorded, user_code(one.env, variant(one.method).method))
            except ConfigError as error:
                lines.append(f"code of {one.method} seed {one.seed} is not compared: {error}")
                continue
            if changed:
                lines.append(f"code changed since {one.method} seed {one.seed}: {', '.join(changed)}")
    return lines


def comparison_table(rows: Sequence[MethodComparison]) -> Table:
    """A line for each environment and opponent; the verdict is bold if the difference is significant.

    ``rows``: at least one, all of one tier, method and task group.
    """

    def bounds(interval: Interval | None, sign: str = "") -> str:
        if interval is None:
            return "no run"
        if interval.low is None:
            return f"{interval.mean:{sign}.3f}"
        return f"{interval.mean:{sign}.3f} [{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]"

    def times(name: str) -> Any:
        return lambda row: f"{value:.2f}" if row.budget and (value := row.budget[name]) is not None else ""

    def improvement(row: MethodComparison) -> str:
        value = row.effect and row.effect.probability_of_improvement
        return "" if value is None else f"{value:.2f}"

    def verdict(row: MethodComparison) -> Cell:
        """The verdict without the number of seeds, which has its own column."""
        return Cell(row.verdict.partition(" (")[0], bold=bool(row.difference and row.difference.significant))

    tasks = "" if rows[0].group == "all" else f", {rows[0].group} tasks"
    columns = [
        Column("env"),
        Column("against", lambda row: row.label),
        Column("seeds", lambda row: row.pairs, "d"),
        Column("ours", lambda row: bounds(row.ours), right=True),
        Column("theirs", lambda row: bounds(row.theirs), right=True),
        Column("difference", lambda row: bounds(row.effect and row.effect.interval, "+"), right=True),
        Column("P(>)", improvement, right=True, drop=3),
        Column("p", lambda row: p_cell(row.difference and row.difference.p_adjusted), right=True, drop=1),
        Column("rollouts x", times("rollouts"), right=True, drop=5),
        Column("tokens x", times("generated"), right=True, drop=4),
        Column(MDE, lambda row: mde_text(row.difference) if row.difference else "", right=True, drop=2),
        Column("verdict", verdict),
    ]
    return table(
        f"{rows[0].method} against stored runs, tier {rows[0].tier}{tasks}",
        columns,
        rows,
        "test success of the last checkpoint, 95 % intervals over common seeds; difference: paired by "
        "seed and task; P(>): probability that a seed of ours scores above one of theirs; p: paired "
        f"t-test over seeds, Holm-corrected over this table; {MDE_NOTE}; x: what training spent, ours / "
        "theirs",
    )
