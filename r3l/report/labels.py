"""Printed names and numbers: environments, models, methods, feedback authors, seeds; intervals, p-values and
minimum detectable effects (MDE).

The author of the feedback in the training of a method is a condition of its scores, shown with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import pandas as pd

from r3l import config
from r3l.config import EnvConfig, ModelConfig, load, names
from r3l.config.files import read_or_warn
from r3l.feedback.feedback import FeedbackSource
from r3l.report.table import Cell, rounded
from r3l.stats.comparison import ALPHA, POWER, Comparison

DECIMALS = {"share": 3, "turns": 1, "tokens": 0, "s": 1}  # of a printed mean, by its unit
FEEDBACK = "feedback"  # the printed column
FEEDBACK_NOTE = (
    "feedback: who wrote the reflections or critiques of training: the model itself (self), a critic "
    "scripted for the environment, or a judge. Rows with different teachers were trained under different "
    "conditions."
)
# Counters of the texts that guide retries, by their author: twice the model, then twice the environment.
WRITERS = [f"{text}/by_{who}" for who in ("model", "environment") for text in ("reflection", "critique")]
TEST = f"two-sided {100 * ALPHA:.0f} %, power {100 * POWER:.0f} %"
MDE = "MDE"  # the printed column
MDE_NOTE = (
    f"{MDE}: minimum detectable effect of so many seeds (paired t-test, {TEST}, from the standard "
    "deviation of the differences over seeds), in brackets with Holm's correction over this table; no "
    "spread: all seeds differ alike"
)


def env_label(env: str) -> str:
    """Printed name of an environment (``label`` of its config); a name without a usable file is kept."""
    config = _env_config(env)
    return config.label if config else env


def _env_config(env: str) -> EnvConfig | None:
    """The file of an environment; None if there is none, and for a broken one of the user's (with a warning)."""
    if env not in names("envs"):
        return None
    return read_or_warn("envs", env, lambda name: load("envs", name, EnvConfig))


def bench_label(bench: tuple[str, str, str], among: Iterable[tuple[str, str, str]]) -> str:
    """The printed environment of a (tier, environment, model).

    The tier or the model is added if ``among`` has several of that environment.
    """
    alike = {other for other in among if other[1] == bench[1]}
    parts = [bench[k] for k in (0, 2) if len({other[k] for other in alike}) > 1]
    return ", ".join([env_label(bench[1]), *parts])


def question_set(tier: str, env: str, task_set: str) -> str:
    """The printed name of a task set on which runs in ``env`` are scored.

    It is the task set's own name if none is defined or the environment is unknown.
    """
    config = _env_config(env)
    return config.question_sets.get(tier, {}).get(task_set, task_set) if config else task_set


@cache
def backbone(model: str) -> str:
    """The label of a model of configs/models, also if a server has it (``NAME@SERVER``); else ``model``."""
    name = model.partition("@")[0]
    return load("models", name, ModelConfig).label if name in names("models") else model


def model_label(model: str) -> str:
    """Printed name of a model; unknown names are kept.

    A model of configs/models at a server (``NAME@SERVER``) is followed by ``SERVER`` in brackets.
    """
    _, at, server = model.partition("@")
    return f"{backbone(model)} ({server})" if at and backbone(model) != model else backbone(model)


def usual_model(tier: str, env: str) -> str | None:
    """The tier's model in an environment; None for an environment whose file is gone or broken."""
    if env not in names("envs"):
        return None
    return read_or_warn("envs", env, lambda name: config.default_model(tier, name))


def base_and_recipe(model: str) -> tuple[str, str | None]:
    """The base checkpoint and the recipe of a model of `r3l sft` (BASE-RECIPE); for others (model, None)."""
    recipes = [recipe for recipe in names("sft") if model.endswith(f"-{recipe}")]
    if not recipes:
        return model, None
    recipe = max(recipes, key=len)
    return model.removesuffix(f"-{recipe}"), recipe


def place_label(tier: str, env: str, model: str) -> str:
    """Printed name of an environment, followed by the model unless that is the tier's model there."""
    if model == usual_model(tier, env):
        return env_label(env)
    return f"{env_label(env)}, {model_label(model)}"


def method_label(method: str) -> str:
    """Printed name of a method or variant, as runs record it. Raises ConfigError for an unknown method."""
    return config.method_label(config.variant(method))


def planned_feedback_author(method: str, tier: str) -> str | None:
    """Author of the feedback of planned runs of ``method``: self, environment or judge.

    ``tier``: scale of the runs, such as nano, whose settings may decide it. None if the method uses no
    feedback.
    """
    source = config.planned_feedback_source(config.variant(method), tier)
    return source and source.value


def written_by(source: str | None, runs: pd.DataFrame) -> str | None:
    """Author of the feedback of finished ``runs``, as a table prints it.

    ``source``: their setting, None for a method that reads none (so is the result). Under ``environment`` the
    model writes the feedback if the critic has nothing to say. Its share is added: ``environment, 12% self``.
    """
    if source != FeedbackSource.ENVIRONMENT:
        return source
    counts = [[budget.get(name, 0) for name in WRITERS] for budget in runs.budget]
    by_model, by_environment = (sum(sum(count[k : k + 2]) for count in counts) for k in (0, 2))
    return f"environment, {by_model / (by_model + by_environment):.0%} self" if by_model else source


def has_foreign_feedback(source: str | None) -> bool:
    """True if something other than the model itself wrote the feedback; False for no feedback.

    ``source``: the setting ``feedback``: self, environment, judge or None.
    """
    return source not in (None, FeedbackSource.SELF)


def ranges(numbers: Sequence[int]) -> str:
    """Ascending ``numbers`` as text; three or more in a row are a range: ``0 to 4, 7, 8``. "" for none."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and number == rows[-1][-1] + 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    return ", ".join(f"{row[0]} to {row[-1]}" if len(row) > 2 else ", ".join(map(str, row)) for row in rows)


def plus_minus(
    mean: float,
    low: float | None,
    high: float | None,
    points: Sequence[float],
    unit: str | None = None,
    sign: str = "",
) -> str:
    """A mean with its interval, ``0.308 ± 0.057``; asymmetric bounds are in brackets.

    ``unit``: a key of DECIMALS (None: share, 3 digits). ``sign``: ``+`` also shows a positive mean's sign.
    Without bounds every seed is shown: ``0.310, 0.290``.
    """
    # As csv files hold them, so that both print the same digits.
    mean, low, high = map(rounded, (mean, low, high))
    form = f",.{DECIMALS[unit or 'share']}f"
    if low is None or high is None:
        return ", ".join(f"{rounded(value):{sign}{form}}" for value in points or (mean,))
    if abs((high - mean) - (mean - low)) < 2e-4:
        return f"{mean:{sign}{form}} ± {high - mean:{form}}"
    return f"{mean:{sign}{form}} [{low:{form}}, {high:{form}}]"


def p_cell(p: float | None) -> Cell | None:
    """A p-value with three decimals, ``< 0.001`` below that, since no p-value is 0; None for None."""
    return None if p is None else Cell("< 0.001" if p < 0.001 else f"{p:.3f}", p)


def mde_text(*comparisons: Comparison) -> str:
    """Minimum detectable effect as text: ``0.058 (0.112)``, in brackets with the correction over the table.

    Empty without a test, ``no spread`` if the spread over seeds is unknown. Of several comparisons the
    smallest and the largest: ``0.014 to 0.135 (0.047 to 0.454)``.
    """
    if all(one.p_adjusted is None for one in comparisons):
        return ""
    ranges = []
    for sizes in ([one.mde for one in comparisons], [one.mde_adjusted for one in comparisons]):
        known = [size for size in sizes if size is not None]
        if not known:
            return "no spread"
        # Success rates differ by 1 at most.
        ends = [f"{size:.3f}" if size <= 1 else "> 1" for size in (min(known), max(known))]
        ranges.append(" to ".join(dict.fromkeys(ends)))
    return f"{ranges[0]} ({ranges[1]})"
