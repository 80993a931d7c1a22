"""One row of the claims: the test of a claim in one environment, its verdict as printed, and the commands
that make its runs. r3l.report.claim_verdicts makes these rows and judges them together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from r3l.config import names, resolve
from r3l.report.claim_learning import RATE_OF
from r3l.report.claims import Claim, short_rate
from r3l.report.frame import Bench
from r3l.report.labels import base_and_recipe, usual_model
from r3l.report.table import rounded
from r3l.stats.comparison import Comparison, Effect, Verdict, compare_effects
from r3l.stats.intervals import MIN_SEEDS

NOT_TESTED = "not tested"


@dataclass(frozen=True)
class ClaimVerdict:
    """The test of one claim in one environment, or by one probe if a model was probed several times in it.

    ``label``: printed name of the environment (with model or tier, if several are shown), then ``probe``.
    ``probe``: what distinguishes this probe from the others, such as its reflection schema; empty for a
    single one.
    ``effect`` is over ``count`` seeds or tasks (``over``); None without stored runs. ``comparison``: the
    effect judged with all others of its family; None below MIN_SEEDS (3) seeds, or while registered seeds are
    missing. ``paper``: the published effect, in ``paper_metric``, from the file and lines ``paper_source``.
    ``learning_rates``: the rates of both methods if they differ; ``at_equal_rates``: the effect with the
    first method at the second one's rate, None if that has not run. ``margin``: largest difference that
    counts as equivalent; None: equivalence is not tested.
    """

    claim: Claim
    bench: Bench
    label: str
    probe: str = ""
    over: str = "seeds"
    count: int = 0
    effect: Effect | None = None
    comparison: Comparison | None = None
    paper: float | None = None
    paper_metric: str | None = None
    paper_source: str = ""
    learning_rates: tuple[float, float] | None = None
    at_equal_rates: Effect | None = None
    margin: float | None = None

    @property
    def points(self) -> tuple[float, ...]:
        """One value per seed if there are fewer than MIN_SEEDS, too few for an interval; else empty."""
        return self.effect.values_S if self.effect and self.count < MIN_SEEDS else ()

    @property
    def verdict(self) -> str:
        """The verdict as printed.

        It is ``too few (2 seeds)``, ``not tested``, ``not tested: 5 of 10 seeds`` (registered seeds are
        missing), ``inconclusive`` if unequal learning rates may explain the difference, or else the verdict of
        :func:`r3l.stats.comparison.compare_effects`: ``ahead``, ``behind``, ``equivalent`` or
        ``inconclusive``.
        """
        if self.seeds_due:
            return f"{NOT_TESTED}: {self.count} of {self.seeds_planned} seeds"
        if self.comparison:
            return Verdict.INCONCLUSIVE if self.rates_decide else self.comparison.verdict
        return f"too few ({self.count} seed{'' if self.count == 1 else 's'})" if self.count else NOT_TESTED

    @property
    def seeds_planned(self) -> int:
        """Number of training seeds registered for this claim in this environment; 0 if none were."""
        return self.claim.seeds.get(self.bench[1], 0)

    @property
    def seeds_due(self) -> int:
        """Number of registered seeds that have not run; there is no verdict before it is 0."""
        return max(0, self.seeds_planned - self.count)

    @property
    def rates_decide(self) -> bool:
        """True if unequal learning rates may explain the difference.

        That is so unless at least MIN_SEEDS (3) seeds at equal rates give the same verdict. False for equal
        rates and without a comparison.
        """
        if self.learning_rates is None or self.comparison is None:
            return False
        if self.at_equal_rates is None or self.at_equal_rates.seeds < MIN_SEEDS:
            return True
        (alone,) = compare_effects([self.at_equal_rates], margin=self.margin)
        return alone is None or alone.verdict != self.comparison.verdict

    @property
    def rates_note(self) -> str:
        """Note on unequal learning rates: both rates, and the effect of runs at equal rates if any exist.

        Empty if the rates are equal.
        """
        if self.learning_rates is None:
            return ""
        ours, theirs = map(short_rate, self.learning_rates)
        equal = self.at_equal_rates
        found = (
            f"{equal.mean:+.3f} at equal rates ({equal.seeds} seeds)" if equal else "not run at equal rates"
        )
        return f"learning rates differ ({ours}, {theirs}): {found}"

    @property
    def run(self) -> str:
        """The commands that make the runs, or the probe, of this row: its environment, tier and model.

        They name GRPO's learning rate there only if it is not the method's own.
        """
        options = start_options(self.bench)
        commands = self.claim.run.replace("ENV", self.bench[1]).split(" && ")
        return " && ".join(" ".join([with_rate(command, self.bench), *options]) for command in commands)

    @property
    def as_claimed(self) -> bool:
        """True if the verdict is the one that confirms the claim (``Claim.says``)."""
        return self.verdict == self.claim.says

    @property
    def power(self) -> float | None:
        """Probability that the test shows a difference if the true difference is the paper's effect.

        The test's level is the one that the correction leaves; its spread over seeds is the measured one.
        None without a test or a published effect, and for claims of equivalence.
        """
        if self.comparison is None or self.claim.says != "ahead" or self.paper is None:
            return None
        return self.comparison.effect.power(self.paper, self.comparison.level)

    def flat(self) -> dict[str, Any]:
        """One record for the CSV file, a value per column, numbers rounded to 4 digits, unknown ones None."""
        # Fewer seeds than MIN_SEEDS have neither an interval nor a p-value: their values are in ``points``.
        tier, env, model = self.bench
        compared = self.comparison
        tested = self.effect if self.count >= MIN_SEEDS else None
        low, high = tested.bounds() if tested else (None, None)
        low_90, high_90 = tested.bounds(0.9) if tested else (None, None)
        columns: dict[str, Any] = {
            "id": self.claim.id,
            "claim": self.claim.claim,
            "family": str(self.claim.family),
            "says": self.claim.says,
            "predicted": self.claim.predicted.get(env, ""),
            "tier": tier,
            "env": env,
            "model": model,
            "probe": self.probe,
            "verdict": str(self.verdict),
            "effect": self.effect.mean if self.effect else None,
            "low": low,
            "high": high,
            "low_90": low_90,
            "high_90": high_90,
            "points": " ".join(f"{point:.4f}" for point in self.points),
            "over": self.over,
            "n": self.count,
            "seeds_planned": self.seeds_planned or None,
            "margin": self.margin,
            "p_value": tested.p_value if tested else None,
            "p_fdr": compared.p_adjusted if compared else None,
            "mde": compared.mde_adjusted if compared else None,
            "power": self.power,
            "paper": self.paper,
            "paper_metric": self.paper_metric,
            "paper_source": self.paper_source,
            "run": self.run,
            "note": "; ".join(filter(None, [self.claim.note, self.rates_note])),
        }
        return {key: rounded(value) for key, value in columns.items()}


@cache
def start_options(bench: Bench) -> tuple[str, ...]:
    """The options of `r3l train`, `r3l compare` and `r3l probe` that name tier and model of ``bench``.

    Only what differs from the defaults: the tier nano, and the tier's model in this environment. A model of
    `r3l sft` is named by its base checkpoint and its recipe, as --set.
    """
    tier, env, model = bench
    options = [] if tier == "nano" else ["--tier", tier]
    model, recipe = base_and_recipe(model)
    if recipe:
        options += ["--set", f"env_settings.sft={recipe}"]
    return (*options, *([] if model == usual_model(tier, env) else ["--model", model]))


@cache
def with_rate(command: str, bench: Bench) -> str:
    """``command`` with GRPO's learning rate in ``bench`` for the word RATE.

    The setting is left out if that is the own rate of the command's method. RATE stays in an environment
    whose file is gone.
    """
    tier, env, model = bench
    if "RATE" not in command or env not in names("envs"):
        return command
    words = command.split()
    named = words[words.index("--method") + 1] if "--method" in words else words[2]  # r3l compare METHOD
    methods = (named.removesuffix("@train.lr=RATE"), RATE_OF)
    own, rate = (resolve(tier, env, method, 0, model).train.lr for method in methods)
    if own == rate:
        return command.replace(" --set train.lr=RATE", "").replace("@train.lr=RATE", "")
    return command.replace("RATE", f"{rate:g}")
