"""The claims (configs/claims.yaml) and what tests each: test scores, training counts, curves, or a probe.

Effects on scores, training counts and curves have one value per training seed, on the same tasks, so their
intervals are about other seeds. Effects in a probe are of one fixed model, so their intervals are about other
tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from itertools import product
from typing import Any, Literal

from pydantic import Field, model_validator

from r3l.config import Strict, validate
from r3l.files.paths import CONFIGS
from r3l.files.yaml_files import read_yaml
from r3l.report.claim_learning import BenchRuns, LearningTest
from r3l.report.frame import ALL, common_seeds, scores_S_T
from r3l.report.labels import method_label
from r3l.report.probes import Content
from r3l.report.updates import training_of
from r3l.runs.metrics import RATES
from r3l.stats.comparison import Effect

RATES_BY_NAME = {rate.name: rate for rate in RATES}


def short_rate(rate: float) -> str:
    """A learning rate as text, rounded to one digit: ``3e-4`` for 0.0003."""
    return f"{rate:.0e}".replace("e-0", "e-")


class ScoreTest(Strict):
    """Test success of ``method`` minus test success of ``against``, on the tasks of ``group``.

    ``unsolved_by``: the name of a method; only tasks that none of its runs solved count. ``beyond``: another
    difference, which is subtracted, as in "more on hard tasks than on easy ones".
    """

    method: str
    against: str
    group: str = ALL
    unsolved_by: str | None = None
    beyond: ScoreTest | None = None

    def learning_rates(self, runs: BenchRuns) -> tuple[float, float] | None:
        """Learning rates of the runs of ``method`` and of ``against``.

        None if the runs of one method have several rates, or none because the method trains nothing.
        """
        ours, theirs = (runs.rate(name) for name in (self.method, self.against))
        return None if ours is None or theirs is None else (ours, theirs)

    def at_equal_rates(self, runs: BenchRuns) -> list[float] | None:
        """Values with both methods at the learning rate of ``against``, as :meth:`values_S` gives them.

        None if their rates are equal, or if either has no single rate; [] if none ran at that rate.
        """
        rates = self.learning_rates(runs)
        if rates is None or rates[0] == rates[1]:
            return None
        return self.values_S(runs, rates[1])

    def values_S(self, runs: BenchRuns, rate: float | None = None) -> list[float]:
        """The difference of test success, mean over tasks, of each seed that both methods have: shape (S,).

        ``rate``: compare the runs at this learning rate (None: the runs under the methods' own names). With
        ``beyond``, that difference at the same seed is subtracted; seeds without one are left out. Returns []
        without common seeds or without tasks of the group. With ``unsolved_by`` also if no task is unsolved
        or if seeds played different tasks.
        """
        by_seed = self._by_seed(runs, rate)
        if self.beyond is None:
            return [*by_seed.values()]
        beyond = self.beyond._by_seed(runs, rate)
        return [value - beyond[seed] for seed, value in by_seed.items() if seed in beyond]

    def _by_seed(self, runs: BenchRuns, rate: float | None) -> dict[int, float]:
        """The mean difference over tasks by common seed, without ``beyond``; {} as for :meth:`values_S`."""
        ours, theirs = (
            runs.rows(name, self.group) if rate is None else runs.at_rate(name, rate, self.group)
            for name in (self.method, self.against)
        )
        ours, theirs = common_seeds(ours, theirs)
        if not len(ours):
            return {}
        difference_S_T = scores_S_T(ours) - scores_S_T(theirs)
        if self.unsolved_by:
            # All runs must have played the same tasks, which -n may draw by the seed.
            played = ours.tasks.iloc[0]
            before = runs.rows(self.unsolved_by, self.group)
            before = before[before.tasks.map(lambda tasks: tasks == played)]
            if len({*ours.tasks}) > 1 or not len(before):
                return {}
            unsolved_T = scores_S_T(before).max(axis=0) == 0
            if not unsolved_T.any():
                return {}
            difference_S_T = difference_S_T[:, unsolved_T]
        return dict(zip(ours.seed, map(float, difference_S_T.mean(axis=1)), strict=True))


class TrainingTest(Strict):
    """A rate of a run's training (r3l.runs.metrics.RATES), minus another rate or a number (``minus``).

    ``against``: another method, whose value at the same seed is subtracted. ``change`` k: the rate over the
    last k updates minus the rate over the first k; 0: the rate over all updates. Raises pydantic's
    ValidationError for an unknown rate.
    """

    method: str
    rate: str
    minus: str | float = 0.0
    against: str | None = None
    change: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _rates_exist(self) -> TrainingTest:
        for name in (self.rate, self.minus):
            if isinstance(name, str) and name not in RATES_BY_NAME:
                known = ", ".join(sorted(RATES_BY_NAME))
                raise ValueError(f"rate {name!r} is unknown; choose one of {known}")
        return self

    def values_S(self, runs: BenchRuns) -> list[float]:
        """``rate`` - ``minus`` of each seed's training (``change``: last minus first updates), shape (S,).

        With ``against``, that method's value at the same seed is subtracted; seeds without one are left out.
        So are seeds whose training did not record a count.
        """
        ours = self._by_seed(runs, self.method)
        if self.against is None:
            return [*ours.values()]
        theirs = self._by_seed(runs, self.against)
        return [value - theirs[seed] for seed, value in ours.items() if seed in theirs]

    def _by_seed(self, runs: BenchRuns, method: str) -> dict[int, float]:
        """``rate`` - ``minus`` of each training of ``method`` by seed, if it recorded all needed counts."""
        one = RATES_BY_NAME[self.rate]
        other = RATES_BY_NAME[self.minus] if isinstance(self.minus, str) else None
        number = 0.0 if isinstance(self.minus, str) else self.minus

        def effect(counts: Mapping[str, float]) -> float | None:
            rate = one.of(counts)
            minus = other.of(counts) if other else number
            return None if rate is None or minus is None else rate - minus

        needed = {*one.counts, *(other.counts if other else ())}
        ends = (slice(self.change), slice(-self.change, None))
        values = {}
        of_method = runs.rows(method)
        for seed, path, budget in zip(of_method.seed, of_method.path, of_method.budget, strict=True):
            if self.change:
                columns = training_of(path).columns
                first, last = (
                    effect({name: sum(columns.counts(name)[end].tolist()) for name in needed}) for end in ends
                )
                value = None if last is None or first is None else last - first
            else:
                value = effect(budget)
            if value is not None:
                values[seed] = value
        return values


class ProbeTest(Strict):
    """A measure of a probe, minus a second measure of it (``minus``; None: nothing is subtracted).

    The difference is one of means, not paired by task.
    """

    measure: str
    minus: str | None = None

    def effect(self, probe: Content) -> tuple[Effect, int] | None:
        """``measure`` - ``minus``, and the number of tasks of ``measure``.

        None if one of the two or its interval is missing. The standard error is sqrt(e1^2 + e2^2), with e
        from each measure's 95 % interval, as if the two were independent. They share tasks, so this
        overstates the error rather than understating it.
        """
        parts = [probe["measures"].get(name) for name in (self.measure, self.minus) if name]
        if any(part is None or part["low"] is None for part in parts):
            return None
        effects = [Effect.of_bounds(part["value"], part["low"], part["high"]) for part in parts]
        mean = effects[0].mean - sum(effect.mean for effect in effects[1:])
        return Effect(mean, math.hypot(*(effect.error for effect in effects))), parts[0]["tasks"]


class PublishedEffect(Strict):
    """A published number, minus another row's or a number. Rows have their names in results/stored/published.

    ``tables``: where the row is looked for, in ``file``; the first that has it counts. ``beyond``: another
    such effect, which is subtracted.
    """

    file: str
    tables: list[str]
    row: str
    metric: str | None = Field(None, description="default: the score, success or reward")
    minus: str | float | None = None
    minus_metric: str | None = Field(None, description="default: metric")
    beyond: PublishedEffect | None = None


class Family(StrEnum):
    """Claims whose p-values are corrected together.

    A family is the paper's claims, the same from base checkpoints that were replaced, the claims of one entry
    of docs/preregistration.md, or the exploratory claims, which were made after the runs were seen.
    """

    PAPER = "paper"
    REPLACED = "replaced base checkpoint"
    CURVES = "registered curves"
    ADAPTIVE = "registered adaptive"
    EXPLORATORY = "exploratory"


REGISTERED = (Family.CURVES, Family.ADAPTIVE)


class Claim(Strict):
    """One claim and at most one test: ``score``, ``training``, ``learning`` or ``probe``.

    ``says``: the verdict that confirms it, ``ahead`` or ``equivalent``. ``family``: the claims with which its
    p-value is corrected. ``seeds``: number of training seeds that were registered, by environment; no verdict
    is given before they are done. ``models``: by environment, the registered base checkpoint, if it is not
    the one in use. ``predicted``: what was written down before the runs, by environment. ``paper``: the
    published effect to compare with. Raises ValidationError for more than one test.
    """

    id: str
    claim: str
    run: str = Field(
        description="the command that makes its runs again; ENV stands for the environment, RATE for GRPO's "
        "learning rate in it"
    )
    family: Family = Family.PAPER
    score: ScoreTest | None = None
    training: TrainingTest | None = None
    learning: LearningTest | None = None
    probe: ProbeTest | None = None
    says: Literal["ahead", "equivalent"] = "ahead"
    seeds: dict[str, int] = {}
    models: dict[str, str] = {}
    predicted: dict[str, str] = {}
    paper: PublishedEffect | None = None
    note: str = ""

    @model_validator(mode="after")
    def _one_test(self) -> Claim:
        if sum(test is not None for test in (self.score, self.training, self.learning, self.probe)) > 1:
            raise ValueError(
                f"claim {self.id!r} has several of score, training, learning and probe; keep one"
            )
        return self

    @property
    def of_seeds(self) -> ScoreTest | TrainingTest | LearningTest | None:
        """The test with a value per training seed; None if a probe tests the claim, or nothing does."""
        return self.score or self.training or self.learning

    @property
    def has_margin(self) -> bool:
        """True if the effect is a share, to which the margin of equivalence applies.

        Successes per 1,000 tokens and saved updates are no shares.
        """
        saves = self.learning is not None and self.learning.until is not None
        return not saves and not (self.probe and self.probe.measure.endswith("_per_1000"))


class Claims(Strict):
    """configs/claims.yaml and configs/claims_learning.yaml: the claims and what their tests have in common.

    ``margin``: largest difference that counts as equivalent. ``envs``: environments in which claims are
    tested. ``backbone``: model whose published numbers are compared with ours. ``benchmarks``: environment ->
    its name in results/stored/published. ``sources``: by key, where the values come from.
    """

    margin: float = Field(gt=0, lt=1)
    envs: list[str]
    backbone: str
    benchmarks: dict[str, str] = {}
    claims: list[Claim]
    sources: dict[str, str]

    @model_validator(mode="before")
    @classmethod
    def _each(cls, content: Any) -> Any:
        """Write out each claim with ``each``, once for every combination of its values: {key} is replaced by
        the value, {key.label} by the method's printed name."""
        claims = []
        for claim in content["claims"]:
            if not isinstance(claim, dict) or "each" not in claim:
                claims.append(claim)
                continue
            each = claim["each"]
            template = {key: value for key, value in claim.items() if key != "each"}
            for values in product(*each.values()):
                claims.append(_filled(template, dict(zip(each, values, strict=True))))
        return content | {"claims": claims}


def _filled(template: Any, values: Mapping[str, Any]) -> Any:
    """``template`` with the names of ``values`` replaced; a text that is only a name becomes the value
    itself."""
    if isinstance(template, dict):
        return {key: _filled(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [_filled(value, values) for value in template]
    if not isinstance(template, str):
        return template
    for name, value in values.items():
        if template == f"{{{name}}}":
            return value
        template = template.replace(f"{{{name}}}", str(value))
        if f"{{{name}.label}}" in template:
            template = template.replace(f"{{{name}.label}}", method_label(value))
    return template


def load_claims() -> Claims:
    """Read configs/claims.yaml, and after its claims those of configs/claims_learning.yaml.

    Raises ConfigError if one is not valid.
    """
    path = CONFIGS / "claims.yaml"
    learning = CONFIGS / "claims_learning.yaml"
    content = read_yaml(path)
    further = read_yaml(learning)
    claims = [*content["claims"], *further["claims"]]
    return validate(Claims, content | {"claims": claims}, f"{path} and {learning.name}")
