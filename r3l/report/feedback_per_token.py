"""Gain from feedback per token: methods that read feedback, compared with GRPO from one base checkpoint.

Shown by `r3l table feedback_per_token` and `r3l figure feedback_per_token`.

Early success is the mean of base rollouts over the first third of the updates, final success the last
checkpoint's on the test tasks. If a method was trained at GRPO's learning rate, its row is from these runs;
otherwise the row says which rate it had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from r3l.config import Variant, variant
from r3l.config.method import RATE
from r3l.report.budget import KINDS, NOT_RECORDED
from r3l.report.claim_learning import RATE_OF, base_checkpoint_success
from r3l.report.frame import TOKENS, Bench, all_tasks, by_bench, common_seeds
from r3l.report.labels import (
    FEEDBACK,
    FEEDBACK_NOTE,
    env_label,
    method_label,
    planned_feedback_author,
    plus_minus,
    written_by,
)
from r3l.report.scores import mean_tokens
from r3l.report.table import Cell, Column, Table, rounded, table
from r3l.report.teachers import BLIND, TeacherRow, teacher_rows
from r3l.report.updates import at_rate, early_success, learning_rate
from r3l.stats.comparison import Effect, compare_effects
from r3l.stats.intervals import MIN_SEEDS, Interval, t_interval

ENVS = ("alfworld", "scienceworld", "webshop", "math")  # of docs/preregistration.md
METHODS = (
    *(RATE_OF, "hgpo", "tree_grpo", "r3l_no_reflection"),  # no feedback
    *("r3l", "erl", "critique_grpo", "rltf_sd"),  # feedback that guides a further attempt
    *("sdpo", *(f"sdpo@feedback=environment,{RATE}={rate}" for rate in ("0.0001", "3.33e-05"))),  # tuned
    *("sdar", "rlsd", "agentopsd", "ungated_teacher"),  # like SDPO's, a teacher that scores attempts
)
TITLE = "What feedback buys per token"
MILLION = 10**6
NO_RUNS = "no runs"
NOTE = (
    "Means over training seeds with 95 % intervals. Early: success of base rollouts, first third of the "
    "updates; final: test success of the last checkpoint. Differences: to GRPO, paired by seed; *: shown "
    "after Benjamini-Hochberg's correction over this table's early and final differences; rows at another "
    "rate than GRPO's are corrected apart. Tokens an update: "
    "sampled, scored (read for their log-probs alone), trained. Gain per million: final success minus the "
    "base checkpoint's, per million sampled tokens. Teacher's D: log p of a sampled token under the hint "
    "minus without it, successes minus failures (at equal hints, where measured); blind: its interval "
    "includes 0. Gradient share: the teacher's part of the squared norm (r3l table teachers). Invalid: test "
    "episodes ended by a response without a usable action."
)


@dataclass(frozen=True)
class FeedbackRow:
    """One method in one environment. Without runs ``seeds`` is 0, and all that was measured is None.

    - ``label``: the method's printed name
    - ``feedback``: who wrote it: ``self`` (the model), ``environment``, perhaps with the model's share, or
      ``judge``; None: the method reads none
    - ``rate``, ``grpo_rate``: learning rates; None if the runs differ in it
    - ``early``: success of base rollouts in the first third of the updates; ``final``: last test success
    - ``start``: test success of the base checkpoint; None if that was not scored
    - ``gain``: ``final`` minus ``start``, per million sampled tokens; None without a ``start``, or if a seed's
      tokens were not recorded
    - ``early_effect``, ``final_effect``: differences to GRPO; None for GRPO and without common seeds.
      ``early_shown``, ``final_shown``: whether they differ from 0 after the correction
    - ``tokens``: an update, by the columns of r3l.report.frame.TOKENS; None: not recorded
    - ``invalid``: share of test episodes
    - ``teacher``: what its teacher tells apart; None if no update recorded it
    """

    tier: str
    env: str
    model: str
    method: str
    label: str
    feedback: str | None
    seeds: int = 0
    rate: float | None = None
    grpo_rate: float | None = None
    early: Interval | None = None
    final: Interval | None = None
    early_effect: Effect | None = None
    final_effect: Effect | None = None
    early_shown: bool = False
    final_shown: bool = False
    tokens: Mapping[str, float | None] = field(default_factory=dict)
    start: float | None = None
    gain: Interval | None = None
    invalid: float | None = None
    teacher: TeacherRow | None = None

    @property
    def bench(self) -> Bench:
        """Tier, environment and model."""
        return self.tier, self.env, self.model

    @property
    def at_other_rate(self) -> bool:
        """True if its learning rate is not GRPO's, so that a difference may come from the rate."""
        return self.seeds > 0 and self.rate != self.grpo_rate

    @property
    def no_gain(self) -> str:
        """Why there is no ``gain``, in words."""
        return "base not scored" if self.start is None else f"tokens {NOT_RECORDED}"

    @property
    def blind(self) -> bool:
        """True if its teacher was not shown to tell successes from failures (r3l.report.teachers)."""
        return self.teacher is not None and self.teacher.verdict == BLIND

    @property
    def teacher_verdict(self) -> str:
        """The verdict on its teacher (r3l.report.teachers), or why there is none."""
        if not self.seeds:
            return NO_RUNS
        if self.teacher is None:
            return NOT_RECORDED if self.feedback else "no teacher"
        return "tells them apart" if self.teacher.sees else self.teacher.verdict


def feedback_rows(
    runs: pd.DataFrame, envs: Sequence[str] | None = None, methods: Sequence[str] | None = None
) -> list[FeedbackRow]:
    """The rows of the table, by environment and model; a method has a row for each writer of its feedback.

    ``runs``: rows of r3l.report.frame. ``envs`` and ``methods`` replace the defaults ENVS and METHODS; if
    given, they have a row even without runs. All differences to GRPO, in early and in final success, with
    at least MIN_SEEDS paired seeds are corrected together by Benjamini-Hochberg; rows at another learning
    rate than GRPO's are a family of their own.
    """
    runs = all_tasks(runs)
    names = methods or METHODS
    of_benches = by_bench(runs[runs.env.isin(envs or ENVS)])
    rows: list[FeedbackRow] = []
    for bench, here in of_benches.items():
        rate = learning_rate(here, RATE_OF)
        shown_already: set[str] = set()  # a bare name also stands for a name with its writer of feedback
        for name in names:
            found = dict(_runs_of(name, here, rate))
            rows += [_row(bench, row, found[row], here, rate) for row in found if row not in shown_already]
            shown_already |= {*found}
            if methods and not found:
                rows.append(_no_runs(bench, name))
    without = [env for env in envs or () if env not in {env for _, env, _ in of_benches}]
    rows += [_no_runs(("", env, ""), name) for env in without for name in names]

    # Rows at GRPO's rate are one family, those at another rate a second one: a tuned row beside a registered
    # one does not change which registered differences are shown. Two seeds have no interval: not tested.
    for other_rate in (False, True):
        family = [k for k, row in enumerate(rows) if row.at_other_rate == other_rate]
        effects = [effect for k in family for effect in (rows[k].early_effect, rows[k].final_effect)]
        enough = [effect if effect and effect.seeds >= MIN_SEEDS else None for effect in effects]
        tested = compare_effects(enough, correction="benjamini-hochberg")
        shown = [one is not None and one.significant for one in tested]
        for k, early, final in zip(family, shown[::2], shown[1::2], strict=True):
            rows[k] = replace(rows[k], early_shown=early, final_shown=final)
    return rows


def _no_runs(bench: Bench, method: str) -> FeedbackRow:
    author = planned_feedback_author(method, bench[0] or "nano")
    return FeedbackRow(*bench, method=method, label=method_label(method), feedback=author)


def _runs_of(name: str, here: pd.DataFrame, rate: float | None) -> Iterator[tuple[str, pd.DataFrame]]:
    """The runs ``here`` of a method (or variant) for each writer of its feedback, each with its row's name.

    At the learning rate ``rate`` if it has any, else at the method's own rate; a line for each seed. A name
    with a rate (``sdpo@train.lr=0.0001``) has its own runs alone. Runs without an update are left out.
    """
    here = here[here.steps > 0]
    if _without_rate(variant(name)) != variant(name):
        own_rows = here[here.method == name]
        if len(own_rows):
            yield name, own_rows.drop_duplicates("seed").sort_values("seed")
        return

    # A variant that names another rate, or another writer of feedback, is the method itself.
    variants: dict[str, None] = {}
    for found in sorted({*here.method}):
        kept = _without_rate(variant(found))
        of_method = kept.method == name and all(c.startswith("feedback=") for c in kept.changes)
        if kept.name == name or of_method:
            variants[kept.name] = None

    for plain in variants:
        seeds = at_rate(here, plain, rate) if rate is not None else here.iloc[:0]
        if not len(seeds):
            seeds = here[here.method == plain]
        if len(seeds):
            yield plain, seeds.assign(method=plain).drop_duplicates("seed").sort_values("seed")


def _without_rate(row: Variant) -> Variant:
    """``row`` without its change of the learning rate, if it has one."""
    return row._replace(changes=tuple(c for c in row.changes if not c.startswith(f"{RATE}=")))


def _row(
    bench: Bench, name: str, seeds: pd.DataFrame, here: pd.DataFrame, grpo_rate: float | None
) -> FeedbackRow:
    """The row of the runs ``seeds``, called ``name``; ``here``: all runs of the bench, GRPO's among them."""
    # Differences to GRPO at the seeds that both have.
    early_effect = final_effect = None
    ours, theirs = common_seeds(seeds, here[here.method == RATE_OF])
    if name != RATE_OF and len(ours):
        early_S = _early(ours) - _early(theirs)
        early_effect = Effect.of_seeds(early_S) if np.isfinite(early_S).all() else None
        final_effect = Effect.of_seeds(_final(ours) - _final(theirs))

    success_S = _early(seeds)
    start = base_checkpoint_success(here)
    gain = None
    if start is not None and (seeds.generated_tokens > 0).all():  # NaN: not recorded
        gain = t_interval((_final(seeds) - start) * MILLION / seeds.generated_tokens)
    return FeedbackRow(
        *bench,
        method=name,
        label=method_label(name),
        feedback=written_by(seeds.iloc[0].feedback, seeds),
        seeds=len(seeds),
        rate=learning_rate(seeds, name),
        grpo_rate=grpo_rate,
        early=t_interval(success_S) if np.isfinite(success_S).all() else None,
        final=t_interval(_final(seeds)),
        early_effect=early_effect,
        final_effect=final_effect,
        tokens={
            kind: None if count is None else count / seeds.steps.mean()
            for kind, count in mean_tokens(seeds).items()
        },
        start=start,
        gain=gain,
        invalid=seeds.parse_failures.sum() / seeds.episodes.sum(),
        teacher=next(iter(teacher_rows(seeds)), None),
    )


def _early(seeds: pd.DataFrame) -> NDArray[np.float64]:
    """Success over the first third of each run's updates, shape (S,)."""
    return np.array([early_success(path) for path in seeds.path])


def _final(seeds: pd.DataFrame) -> NDArray[np.float64]:
    """Test success of each run's last checkpoint, shape (S,)."""
    return np.array(seeds.success, dtype=float)


def flat(rows: Sequence[FeedbackRow]) -> list[dict[str, Any]]:
    """The rows as flat records, for JSON or CSV output, numbers rounded; an interval is mean, low, high."""
    records = []
    for row in rows:
        record: dict[str, Any] = {name: getattr(row, name) for name in ("tier", "env", "model", "method")}
        record |= {"label": row.label, "feedback": row.feedback, "seeds": row.seeds}
        record |= {"rate": row.rate, "grpo_rate": row.grpo_rate}
        intervals = {
            "early": row.early,
            "final": row.final,
            "gain_per_million": row.gain,
            "early_difference": row.early_effect.interval if row.early_effect else None,
            "final_difference": row.final_effect.interval if row.final_effect else None,
        }
        for name, found in intervals.items():
            record |= {name: found and rounded(found.mean)}
            record |= {f"{name}_{end}": found and rounded(getattr(found, end)) for end in ("low", "high")}
        record |= {"pairs": row.final_effect and row.final_effect.seeds}
        record |= {"early_shown": row.early_shown, "final_shown": row.final_shown}
        record |= {f"{kind}_an_update": rounded(row.tokens.get(kind)) for kind in TOKENS}
        record |= {"invalid": rounded(row.invalid)}
        # The teacher's share of the gradient may be 1e-5: it keeps three digits, not four decimals.
        teacher = row.teacher
        difference = teacher.decisive if teacher else None
        for name, end in (("difference", "mean"), ("low", "low"), ("high", "high")):
            record[f"teacher_{name}"] = rounded(getattr(difference, end)) if difference else None
        share = teacher.grad_share if teacher else None
        record["teacher_grad_share"] = None if share is None else float(f"{share:.3g}")
        records.append(record | {"teacher": row.teacher_verdict})
    return records


def feedback_table(rows: Sequence[FeedbackRow]) -> Table:
    """The table of what feedback buys, a section per environment and base checkpoint."""
    columns = [
        Column("method"),
        Column(FEEDBACK, drop=4),
        Column("seeds", right=True),
        Column("rate", right=True, drop=5),
        Column("early", right=True, no_wrap=True, drop=2),
        Column("final", right=True, no_wrap=True),
        Column("early minus GRPO", right=True, no_wrap=True),
        Column("final minus GRPO", right=True, no_wrap=True),
        *(Column(kind, form=",.0f", drop=3) for kind in KINDS),
        Column("gain per million", right=True, no_wrap=True, drop=1),
        Column("teacher's D", drop=1),
        Column("gradient share", form=".2g", drop=2),
        Column("invalid", form=".1%", drop=6),
    ]
    lines = [_line(row) for row in rows]
    return table(TITLE, columns, lines, NOTE, FEEDBACK_NOTE, by=itemgetter("section"))


def _line(row: FeedbackRow) -> dict[str, Any]:
    """The values of a row by column, and its ``section``; without runs only what is known of the method."""

    def mean(found: Interval | None, sign: str = "", star: str = "") -> Cell | None:
        if found is None:
            return None
        return Cell(plus_minus(found.mean, found.low, found.high, found.points, sign=sign) + star, found.mean)

    line: dict[str, Any] = {
        "section": section(row),
        "method": Cell(row.label, title=row.method),
        FEEDBACK: row.feedback,
    }
    if not row.seeds:
        return line | {"seeds": NO_RUNS}

    line |= {"seeds": Cell(str(row.seeds), row.seeds), "early": mean(row.early), "final": mean(row.final)}
    effects = {"early": (row.early_effect, row.early_shown), "final": (row.final_effect, row.final_shown)}
    for name, (effect, shown) in effects.items():
        line[f"{name} minus GRPO"] = effect and mean(effect.interval, "+", " *" if shown else "")
    own = "differs" if row.rate is None else f"{row.rate:g}"
    line["rate"] = f"{own} (GRPO {row.grpo_rate:g})" if row.at_other_rate and row.grpo_rate else own
    counts = {kind: row.tokens[column] for kind, column in KINDS.items()}
    line |= {kind: NOT_RECORDED if count is None else count for kind, count in counts.items()}
    line["gain per million"] = mean(row.gain) or row.no_gain
    line["invalid"] = row.invalid

    # Which attempts the teacher prefers, or why that is not known.
    teacher = row.teacher
    line["teacher's D"] = row.teacher_verdict
    if teacher is not None:
        line["gradient share"] = teacher.grad_share
        decisive = teacher.decisive
        if decisive.mean is not None:
            bounds = "" if decisive.low is None else f" ({decisive.low:+.3f} to {decisive.high:+.3f})"
            verdict = "" if teacher.sees else f", {row.teacher_verdict}"
            line["teacher's D"] = f"{decisive.mean:+.3f}{bounds}{verdict}"
    return line


def section(row: FeedbackRow) -> str:
    """The environment and the base checkpoint of a row, as text."""
    return f"{env_label(row.env)}, {row.model}" if row.model else env_label(row.env)
