"""Estimated cost of runs of the paper tier in GPU-hours, from the published seconds of a training step.

The paper states seconds of a step for four methods, two models and two training sets, on two servers of 8 H20
(results/stored/published/cost.csv). Everything else is estimated from the nearest of these numbers, and says
how:

- an environment as ALFWorld, mathematics as DAPO;
- an ablation as the method it changes; another method as GRPO times its most rollouts over GRPO's;
- a model as Qwen2.5-1.5B times its parameters over those of Qwen2.5-1.5B.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import itemgetter

from r3l.config import (
    Run,
    build_method,
    environment_of,
    find_model,
    gpu_cluster,
    load_method,
    resolve,
    trains,
    variant,
)
from r3l.core.errors import ConfigError
from r3l.files.paths import RESULTS
from r3l.report import published
from r3l.report.labels import env_label, model_label
from r3l.report.published import Reference
from r3l.report.table import Cell, Column, Section, Table, table
from r3l.runs import forecast

GPUS = 16  # "two servers with 8 H20 each" (note of the published table)
# The model and method whose numbers are scaled where one is missing.
MODEL = "qwen2.5-1.5b"
METHOD = "grpo"
PHASES = ("rollout_seconds", "train_seconds")


@dataclass(frozen=True)
class Cost:
    """The cost of one run: ``gpu_hours`` = ``steps`` * ``seconds`` * 16 / 3600.

    ``seconds``: duration of a step on 16 H20. ``basis``: how it was estimated, such as ``as ALFWorld, as GRPO
    x 2 rollouts``; empty if published. A run that trains nothing has 0 steps.
    """

    env: str
    model: str
    method: str
    steps: int
    seconds: float
    gpu_hours: float
    basis: str


def costs(runs: Iterable[Run]) -> list[Cost]:
    """The expected cost of each run, in the order of ``runs``.

    Raises ConfigError for a model whose size is not configured.
    """
    reference = _published()
    known: dict[tuple[str, str, str, int], Cost] = {}  # seeds cost the same
    run_costs = []
    for run in runs:
        key = (run.env, run.model, run.method, run.train.steps)
        if key not in known and not build_method(run).trains:
            known[key] = Cost(run.env, run.model, run.method, 0, 0.0, 0.0, "")
        elif key not in known:
            # The nearest published number, with the factors to this run and what they are for.
            (label, factor), why_method = _method(run, reference)
            (model, scale), why_model = _model(run, reference)
            benchmark = "DAPO" if environment_of(run.env).name == "math" else "ALFWorld"
            why_env = "" if env_label(run.env) == benchmark else f"as {benchmark}"
            published_seconds = 0.0
            for phase in PHASES:
                number = reference.get(model, benchmark, label, phase)
                assert number is not None, (model, benchmark, label, phase)
                published_seconds += float(number.value)
            seconds = factor * scale * published_seconds
            basis = ", ".join(part for part in (why_env, why_method, why_model) if part)
            hours = seconds * run.train.steps * GPUS / 3600
            known[key] = Cost(run.env, run.model, run.method, run.train.steps, seconds, hours, basis)
        run_costs.append(known[key])
    return run_costs


@cache
def _published() -> Reference:
    """The published costs; a plan asks for them once for each of hundreds of runs."""
    return Reference(published.load(["cost"]))


def training_hours(run: Run) -> float | None:
    """Expected wall-clock hours of a training; 0 for a run that trains nothing.

    They come from a forecast in results/, else from the paper's GPU-hours divided by the run's GPUs. None for
    a run with neither a forecast nor a GPU cluster in configs/models. Raises ConfigError for a model whose
    size is not configured.
    """
    if not trains(run):
        return 0.0
    if measured := forecast.find(run, RESULTS):
        return forecast.seconds(measured, run.train.steps) / 3600
    cluster = gpu_cluster(run)
    return costs([run])[0].gpu_hours / (cluster.nodes * cluster.gpus_per_node) if cluster else None


def _method(run: Run, reference: Reference) -> tuple[tuple[str, float], str]:
    """(published label, factor), and why it is not the method's own."""
    name, changes = variant(run.method)
    method = load_method(name)
    labels = {row.label for row in reference.rows}
    if method.label in labels:
        return (method.label, 1.0), f"as {method.label}" if changes else ""
    parent = load_method(method.extends).label if method.extends else ""
    if parent in labels:
        return (parent, 1.0), f"as {parent}"
    plain = resolve(run.tier, run.env, METHOD, run.seed, run.model)
    factor = build_method(run).max_rollouts / build_method(plain).max_rollouts
    return (load_method(METHOD).label, factor), f"as GRPO x {factor:g} rollouts"


def _model(run: Run, reference: Reference) -> tuple[tuple[str, float], str]:
    if model_label(run.model) in {row.backbone for row in reference.rows}:
        return (run.model, 1.0), ""
    ours = find_model(run.model)
    base = find_model(MODEL)
    if ours is None or base is None:
        raise ConfigError(
            f"the size of model {run.model!r} is not known; add configs/models/NAME.yaml and give its name"
        )
    scale = ours.architecture.parameters / base.architecture.parameters
    return (MODEL, scale), f"{base.label} x {scale:.1f} by parameters"


def cost_table(run_costs: Sequence[Cost], seeds: int, title: str) -> Table:
    """GPU-hours of one seed: one line per model and method, one column per environment.

    The last line has the totals over ``run_costs``, which has an entry per run. ``seeds``: number of seeds of
    each cell, for the note. ``~``: estimated, not published.
    """
    cells = {(cost.model, cost.method, cost.env): cost for cost in run_costs}
    envs = list(dict.fromkeys(cost.env for cost in run_costs))

    def hours(row: tuple[str, str], env: str) -> str:
        cost = cells.get((*row, env))
        return f"{'~' if cost.basis else ''}{cost.gpu_hours:,.0f}" if cost else ""

    columns = [Column("model", itemgetter(0)), Column("method", itemgetter(1))]
    columns += [Column(env_label(env), partial(hours, env=env), right=True) for env in envs]
    rows = list(dict.fromkeys((cost.model, cost.method) for cost in run_costs))
    shown = table(f"{title}: H20-hours of one seed", columns, rows, summary(run_costs, seeds))

    totals = {"method": Cell("all seeds of all")}
    for env in envs:
        total = sum(cost.gpu_hours for cost in run_costs if cost.env == env)
        totals[env_label(env)] = Cell(f"{total:,.0f}")
    shown.sections = [*shown.sections, Section("", [totals])]
    return shown


def summary(run_costs: Sequence[Cost], seeds: int) -> str:
    """One sentence: GPU-hours of all runs, and how many of them follow only from published numbers."""
    total = sum(cost.gpu_hours for cost in run_costs)
    own = sum(cost.gpu_hours for cost in run_costs if not cost.basis)
    return (
        f"{len(run_costs)} runs ({seeds} seeds a cell): {total:,.0f} H20-hours, {total / 8 / 24:,.0f} days "
        f"of 8 such GPUs, by the paper's seconds a step; {own:,.0f} of them as published, the rest (~) "
        "estimated from the nearest published number"
    )
