"""Claims about learning: success on the way, paired by seed, at one learning rate.

The rate is the one that GRPO has in the environment, so that no lead comes from a rate. Two curves of a run
are read: success on the test tasks after the updates of ``evaluation.curve`` (held-out), and success of base
rollouts at every update (training).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field, model_validator

from r3l.config import Strict
from r3l.report.frame import ALL, common_places
from r3l.report.updates import WINDOW, at_rate, held_out, learning_rate, running_mean, training_of

Unit = Literal["updates", "tokens", "rollouts"]
RATE_OF = "grpo"  # all methods are compared at its rate
START = "zero_shot"  # its success is that of every method before the first update
FINAL = 10  # last updates of training, whose mean success is the level at the end
THOUSAND = 1000  # saved tokens and rollouts are counted in thousands


@dataclass(frozen=True)
class LearningCurve:
    """Curves of one run of n updates.

    ``held_out``: test success by update; key 0 is the base checkpoint's, if it was scored. ``training_U``:
    success of base rollouts at each update, shape (n,), NaN at one without any. ``spent``: for each unit
    (``updates``, ``tokens``, ``rollouts``) the n + 1 cumulative amounts after 0, 1, ... n updates.
    """

    held_out: dict[int, float]
    training_U: NDArray[np.float64]
    spent: dict[Unit, NDArray[np.float64]]

    @property
    def level(self) -> float:
        """Training success at the end: mean of the last FINAL (10) updates with base rollouts; NaN for none."""
        known_U = self.training_U[~np.isnan(self.training_U)]
        return float(known_U[-FINAL:].mean()) if len(known_U) else math.nan

    @property
    def scored_on_the_way(self) -> bool:
        """True if test success is known before the last update, the base checkpoint's apart."""
        return len({*self.held_out} - {0}) > 1

    def at(self, unit: Unit, amount: float) -> float:
        """Held-out success when ``amount`` of ``unit`` is spent, interpolated between the scored updates.

        Before the first and after the last scored update it is constant.
        """
        scored = sorted(self.held_out)
        return float(np.interp(amount, self.spent[unit][scored], [self.held_out[k] for k in scored]))

    def mean(self, unit: Unit, first: int, amount: float) -> float:
        """Mean training success from update ``first`` (from 1) until ``amount`` of ``unit`` is spent.

        Each update weighs what it spends; of the last one only the part up to ``amount`` counts. Updates
        without base rollouts do not count; NaN if none counts.
        """
        ends = np.minimum(self.spent[unit], amount)
        success_U = self.training_U[first - 1 :]
        known_U = ~np.isnan(success_U)
        weights_U = np.diff(ends)[first - 1 :] * known_U
        if not weights_U.any():
            return math.nan
        return float(np.average(np.where(known_U, success_U, 0), weights=weights_U))

    def until(self, unit: Unit, level: float, training: bool) -> float:
        """The amount of ``unit`` spent until success reaches ``level``; if it never does, the total spent.

        ``training``: read the running mean of training success over WINDOW (5) updates, not held-out success.
        Both are interpolated linearly between the updates where they are known, but not before the first.
        """
        if training:
            mean_U = running_mean(self.training_U, WINDOW)
            known_U = ~np.isnan(mean_U)
            x = self.spent[unit][1:][known_U]
            y = mean_U[known_U]
        else:
            scored = sorted(self.held_out)
            x = self.spent[unit][scored]
            y = np.array([self.held_out[k] for k in scored])
        reached = np.flatnonzero(y >= level)
        if not len(reached):
            return float(self.spent[unit][-1])
        k = int(reached[0])
        return float(x[0] if k == 0 else np.interp(level, y[k - 1 : k + 1], x[k - 1 : k + 1]))


def learning_curves(runs: pd.DataFrame, start: float | None = None) -> list[LearningCurve]:
    """The curves of each run (a method's seed), in the order of ``runs``, one row each.

    ``start``: test success of their base checkpoint, the curves' value at update 0; None: without update 0.
    Held-out values: those after the updates of ``evaluation.curve``, and test success after the last update.
    """
    before = {} if start is None else {0: start}
    curves = []
    for path, steps, success in zip(runs.path, runs.steps, runs.success, strict=True):
        trained = training_of(path)
        spent: dict[Unit, NDArray[np.float64]] = {
            "updates": np.arange(len(trained.tokens_spent), dtype=float),
            "tokens": trained.tokens_spent,
            "rollouts": trained.rollouts_spent,
        }
        curves.append(LearningCurve(before | held_out(path) | {steps: success}, trained.success_U, spent))
    return curves


def base_checkpoint_success(runs: pd.DataFrame) -> float | None:
    """Mean test success of the base checkpoint, over the runs that scored it; None if none did."""
    scored = runs.success[(runs.method == START) & (runs.group == ALL)]
    return float(np.mean(scored)) if len(scored) else None


class BenchRuns:
    """The runs of one (tier, environment, model), of which many claims ask for the same ones.

    So each choice is made once: methods are cached. ``start``: success of the base checkpoint.
    """

    def __init__(self, runs: pd.DataFrame) -> None:
        self._runs = runs
        self.start = base_checkpoint_success(self._of_group(ALL))

    # B019: caches keep these objects until the process ends. A command makes some twenty, one a bench.
    @cache  # noqa: B019
    def _of_group(self, group: str) -> pd.DataFrame:
        return self._runs[self._runs.group == group]

    @cache  # noqa: B019
    def rows(self, method: str, group: str = ALL) -> pd.DataFrame:
        """The rows of a method on a group of tasks."""
        of_group = self._of_group(group)
        return of_group[of_group.method == method]

    @cache  # noqa: B019
    def at_rate(self, method: str, rate: float, group: str = ALL) -> pd.DataFrame:
        """As :func:`r3l.report.updates.at_rate`: the rows of a method at a learning rate, on a group."""
        return at_rate(self._of_group(group), method, rate)

    @cache  # noqa: B019
    def rate(self, method: str) -> float | None:
        """The learning rate of a method's runs; None without runs, or if they differ in it."""
        return learning_rate(self._of_group(ALL), method)

    @cache  # noqa: B019
    def curves(self, method: str, rate: float) -> list[LearningCurve]:
        """The learning curves of the rows of ``at_rate`` on all tasks."""
        return learning_curves(self.at_rate(method, rate), self.start)


class LearningTest(Strict):
    """Compare how fast two methods learn, in one of two ways.

    With ``after``, a list of updates, the value is the success of ``method`` minus the success of ``against``
    after these updates: their mean, or for training success the mean from the first to the second. If
    ``minus_after`` is given, the difference after those updates is subtracted. With ``equal: tokens`` or
    ``rollouts``, both methods are compared at equal spending, at what the cheaper one had spent by an update.

    With ``until``, a share of the final success of ``against`` (mean over seeds), the value is how much less
    ``method`` spends, in the unit ``saves``, until it reaches that level of success.

    Raises pydantic's ValidationError for both or neither of ``after`` and ``until``, and for training success
    if ``after`` or ``minus_after`` has another number of updates than two (or none).
    """

    method: str
    against: str
    success: Literal["held_out", "training"]
    after: list[int] = Field([], description="updates whose mean counts; of training: first and last one")
    minus_after: list[int] = Field([], description="updates whose difference is subtracted")
    equal: Unit = Field("updates", description="both are read where the cheaper one is after these updates")
    until: float | None = Field(
        None, gt=0, le=1, description="the level: a share of the opponent's at the end"
    )
    saves: Unit = Field("updates", description="unit of what is saved until the level; tokens in thousands")

    @model_validator(mode="after")
    def _one_question(self) -> LearningTest:
        if bool(self.after) == bool(self.until):
            raise ValueError("name either after (updates) or until (a share of the opponent's final success)")
        ranges = [self.after, self.minus_after] if self.success == "training" else []
        if any(len(ends) not in (0, 2) for ends in ranges):
            raise ValueError("updates of training are a range: name its first and its last update")
        return self

    def values_S(self, runs: BenchRuns) -> list[float]:
        """The value of the test for each seed that both methods have, shape (S,); [] without such seeds.

        Both methods are read at the learning rate of RATE_OF (grpo); [] unless the runs of that method share
        one rate. A seed is left out if a curve lacks a needed update.
        """
        rate = runs.rate(RATE_OF)
        if rate is None:
            return []
        names = (self.method, self.against)
        ours, theirs = (runs.curves(name, rate) for name in names)
        common = zip(*common_places(*(runs.at_rate(name, rate) for name in names)), strict=True)
        pairs = [(ours[k], theirs[twin]) for k, twin in common]
        values = []
        if not self.until:
            for pair in pairs:
                difference = self.difference(pair, self.after)
                later = self.difference(pair, self.minus_after) if self.minus_after else 0.0
                if difference is not None and later is not None:
                    values.append(difference - later)
            return values

        # The saving until a level: what the opponent has spent by then, minus what the method has.
        training = self.success == "training"
        pairs = [
            pair
            for pair in pairs
            if all(not math.isnan(one.level) if training else one.scored_on_the_way for one in pair)
        ]
        if not pairs:
            return []
        ends = [other.level if training else other.held_out[max(other.held_out)] for _, other in pairs]
        level = self.until * float(np.mean(ends))
        unit = 1 if self.saves == "updates" else THOUSAND
        for one, other in pairs:
            saved = other.until(self.saves, level, training) - one.until(self.saves, level, training)
            values.append(saved / unit)
        return values

    def difference(self, pair: Sequence[LearningCurve], after: Sequence[int]) -> float | None:
        """Success of the first curve of ``pair`` minus the second's after the updates ``after``, or None.

        For held-out success it is the mean over these updates, for training success the mean from the first
        to the second. With ``equal``, both curves are read at what the cheaper one has spent after these
        updates. None if a curve was not scored at them, has no base rollouts in them or is shorter; with
        ``equal`` also if a curve has no earlier score to interpolate from.
        """
        if self.success == "training":
            first, last = after
            if any(last > len(one.training_U) for one in pair):
                return None
            amount = min(float(one.spent[self.equal][last]) for one in pair)
            ours, theirs = (one.mean(self.equal, first, amount) for one in pair)
            return None if math.isnan(ours - theirs) else ours - theirs
        if not all({*after} <= {*one.held_out} for one in pair):
            return None
        if self.equal != "updates" and not all(one.scored_on_the_way for one in pair):
            return None
        amounts = [min(float(one.spent[self.equal][update]) for one in pair) for update in after]
        if any(min(amounts) < one.spent[self.equal][min(one.held_out)] for one in pair):
            return None
        ours, theirs = (float(np.mean([one.at(self.equal, amount) for amount in amounts])) for one in pair)
        return ours - theirs
