"""When R3L helps: its difference to GRPO over what a probe of the base checkpoint measured.

`r3l table map` prints the comparisons (r3l.report.map_table).

A comparison is R3L against GRPO at one learning rate from one base checkpoint, paired by seed, with a probe
of that checkpoint under the same feedback. Its early difference is one in training success over the first
third of the updates, its final difference one in test success after the last update. r3l.report.map_rule
predicts both for a model that was only probed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import BeforeValidator

from r3l.config import Strict, variant
from r3l.evaluation.curve import CurvePoint
from r3l.files.csv_files import read_csv
from r3l.files.json_files import read_jsonl
from r3l.files.paths import STORED
from r3l.report import probes
from r3l.report.claim_learning import LearningTest, learning_curves
from r3l.report.frame import ALL, all_tasks, common_seeds
from r3l.report.reading import read_runs
from r3l.report.updates import FIRST, early_success
from r3l.runs.run_dir import CURVE
from r3l.runs.run_paths import CURVES, HINT_GAP, cell_of, find_runs, run_dir_of
from r3l.stats.intervals import MIN_SEEDS, t_interval

FILE = STORED / "map.csv"
# Parts of the stored runs, with their folder: the main runs, and the runs of registered experiments.
PARTS = {"main": "", CURVES: CURVES, HINT_GAP: HINT_GAP, "map": "map"}
ALLOWED = {
    "train.lr",
    "feedback",
    "feedback_corruption",
}  # changes to R3L that leave it the method of the map
PROBED = {"guided_minus_fresh": "guided_minus_fresh", "base_success": "success", "hint_gap": "hint_gap"}
UNREFLECTED = "early_test_unreflected"  # R3L minus itself without reflection, early on the test set
# Exploratory: held-out success where both methods have generated as many tokens as the cheaper one after so
# many updates. Earlier updates are not compared: the other method was not scored before its tenth.
AT_EQUAL_TOKENS = {"tokens_20": 20, "tokens_60": 60}
Comparison = Mapping[str, Any]  # a row of the map by the keys of MapRow
_Key = tuple[str, str, str, str, float]  # tier, environment, model, feedback, share of wrong reflections


def _empty_is_none(text: Any) -> Any:
    return None if text == "" else text


Measured = Annotated[float | None, BeforeValidator(_empty_is_none)]  # None: not measured


class MapRow(Strict):
    """A line of map.csv: R3L minus GRPO from one probed checkpoint, with 95 % bounds (``_low``, ``_high``).

    - ``label``: the environment's printed name; ``parameters``: number of the model's weights
    - ``seeds``: number of seeds that both methods have
    - ``part``: the stored runs that the line is from: ``main`` (the main experiment), ``curves``,
      ``hint_gap`` or ``map`` (a registered experiment's own folder)
    - measured by the probe: ``guided_minus_fresh``: success of guided retries of failures minus success of
      further attempts; ``base_success``: success of the attempts; ``hint_gap``: mean over the tokens of
      successful guided retries of log p with the hint minus log p without it (nats)
    - ``kept_success``: share of retried successes that succeed again under the hint
    - ``early``, ``final``: difference in training success over the first third of the updates, and in test
      success at the end; ``early_test``: as ``early``, in test success
    - ``early_test_unreflected``: ``early_test`` with R3L without reflection instead of GRPO
    - ``tokens_20``, ``tokens_60``: difference in test success where both methods have generated as many
      tokens as the cheaper one has after 20, or 60, updates
    """

    tier: str
    env: str
    label: str
    model: str
    parameters: Annotated[int | None, BeforeValidator(_empty_is_none)]
    feedback: str
    feedback_corruption: float
    learning_rate: float
    seeds: int
    part: str
    guided_minus_fresh: float
    guided_minus_fresh_low: Measured
    guided_minus_fresh_high: Measured
    base_success: Measured
    hint_gap: Measured
    kept_success: Measured
    early: float
    early_low: Measured
    early_high: Measured
    final: float
    final_low: Measured
    final_high: Measured
    early_test: Measured
    early_test_low: Measured
    early_test_high: Measured
    early_test_unreflected: Measured
    tokens_20: Measured
    tokens_60: Measured


COLUMNS = tuple(MapRow.model_fields)


def map_rows(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Rows of the map: R3L minus GRPO for each probe and learning rate, with the keys of MapRow that exist.

    Reads the probes and runs in ``folders`` and in their subfolders PARTS. A probe and a learning rate give
    a row if at least MIN_SEEDS (3) seeds have a run of GRPO and a run of R3L from the probed checkpoint, R3L
    with the probed feedback. [] if there are none.

    If a critic is wrong in a share of its reflections and was not probed itself, its probe is interpolated
    from those of a critic that is never wrong and one that is always wrong, if both exist.
    """
    parts = {folder / below: part for folder in folders for part, below in PARTS.items()}
    found: dict[_Key, Mapping[str, Any]] = {_key(probe): probe for probe in probes.read_folders([*parts])}
    runs = _runs(parts, {key[:2] for key in found})
    wrong_shares = {wrong for _, wrong in runs.feedback_setting}
    found = _mixtures(found, wrong_shares) | found  # a separate probe is preferred
    rows = []
    for key, probe in sorted(found.items()):
        tier, env, base, *feedback = key
        bench = runs[(runs.tier == tier) & (runs.env == env) & (runs.base == base)]
        grpo = bench[bench.method_name == "grpo"]
        r3l = bench[(bench.method_name == "r3l") & bench.feedback_setting.map([*feedback].__eq__)]
        unreflected = bench[bench.method_name == "r3l_no_reflection"]
        for rate in sorted({*grpo.rate} & {*r3l.rate}):
            # A seed may have two runs at this rate, one of a variant that names the rate: the first counts.
            reflected, baseline, control = (
                runs_of[runs_of.rate == rate].drop_duplicates("seed") for runs_of in (r3l, grpo, unreflected)
            )
            ours, theirs = common_seeds(reflected, baseline)
            if len(ours) >= MIN_SEEDS:
                compared = {"learning_rate": rate, "seeds": len(ours), "part": ours.part.iloc[0]}
                row = _probed(probe) | compared | _differences(ours, theirs) | at_equal_tokens(ours, theirs)
                without = common_seeds(reflected, control)
                if len(without[0]) >= MIN_SEEDS:
                    row[UNREFLECTED] = _differences(*without).get("early_test")
                rows.append(row)
    return rows


def _mixtures(
    found: Mapping[_Key, Mapping[str, Any]], shares: Iterable[float]
) -> dict[_Key, Mapping[str, Any]]:
    """Probes of a critic that is wrong in a share (one of ``shares``) of its reflections, by interpolation.

    ``found`` has the probes of a critic that is never wrong and of one that is always wrong. Each retry has
    one of the two kinds of reflection, so guided minus fresh is linear in the share. It has no interval, and
    keys that are not measured are missing.
    """
    mixed: dict[_Key, Mapping[str, Any]] = {}
    for (*place, corruption), right in found.items():
        wrong = found.get((*place, 1.0))  # type: ignore[arg-type]
        if corruption != 0 or wrong is None:
            continue
        start, end = (probe["measures"]["guided_minus_fresh"]["value"] for probe in (right, wrong))
        for share in (share for share in shares if 0 < share < 1):
            guided = {"value": start + share * (end - start), "low": None, "high": None}
            measures = {"guided_minus_fresh": guided, "success": right["measures"]["success"]}
            probe = {**right, "feedback_corruption": share, "measures": measures}
            mixed[_key(probe)] = probe
    return mixed


def _key(probe: Mapping[str, Any]) -> _Key:
    """The key that a probe shares with its runs: tier, environment, model, feedback and its corruption."""
    feedback_setting = probe.get("feedback", "self"), float(probe.get("feedback_corruption", 0))
    return (probe["tier"], probe["env"], probe["model"]["name"], *feedback_setting)


def _runs(parts: Mapping[Path, str], places: set[tuple[str, ...]]) -> pd.DataFrame:
    """The runs of GRPO and R3L, with and without reflection, in ``places`` (tier, environment): one row a
    run.

    Further columns: ``part``, ``method_name``, ``base`` (checkpoint before RL) and
    ``feedback_setting`` (feedback and its corruption). A run that two folders hold counts once, the first.
    """
    first: dict[tuple[str, ...], Path] = {}
    for path in (path for folder in parts for path in find_runs(folder, may_be_none=True)):
        cell = cell_of(path)
        row = variant(cell.method)
        plain = (
            row.method in ("grpo", "r3l", "r3l_no_reflection")
            and {change.partition("=")[0] for change in row.changes} <= ALLOWED
        )
        if plain and (cell.tier, cell.env) in places:
            first.setdefault((*cell, path.parent.name), path)
    # The columns by which runs are matched with probes, from their manifests.
    runs = all_tasks(read_runs(first.values())) if first else all_tasks(read_runs([]))
    settings = [manifest["run"] for manifest in runs.manifest]
    methods = [run["method_settings"] for run in settings]
    stages = [run["env_settings"].get("sft") for run in settings]
    return runs.assign(
        part=[parts[path.parents[5]] for path in runs.path],
        base=[
            f"{model}-{stage}" if stage else model for model, stage in zip(runs.model, stages, strict=True)
        ],
        method_name=[variant(name).method for name in runs.method],
        feedback_setting=[
            [method.get("feedback", "self"), float(method.get("feedback_corruption", 0))]
            for method in methods
        ],
    )


def _probed(probe: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that come from a probe."""
    measured = probe["measures"]
    row = {column: measured.get(key, {}).get("value") for column, key in PROBED.items()}
    guided = measured["guided_minus_fresh"]
    tier, env, model, feedback, corruption = _key(probe)
    return {
        "tier": tier,
        "env": env,
        "label": probe["label"],
        "model": model,
        "parameters": probe["model"].get("parameters"),
        "feedback": feedback,
        "feedback_corruption": corruption,
        **row,
        "guided_minus_fresh_low": guided["low"],
        "guided_minus_fresh_high": guided["high"],
        "kept_success": kept_success(measured),
    }


def kept_success(measures: Mapping[str, Any]) -> float | None:
    """Share of retried successes that succeed again under the hint; None if none was retried.

    A probe counts retries of all attempts and retries of failures; the difference is retries of successes.
    """
    total = measures.get("retry_success_all")
    failed = measures.get("retry_success")
    if not total or not failed or total["value"] is None:
        return None
    count = total["n"] - failed["n"]
    solved = total["value"] * total["n"] - (failed["value"] or 0) * failed["n"]
    return solved / count if count else None


def _differences(ours: pd.DataFrame, theirs: pd.DataFrame) -> dict[str, Any]:
    """Ours minus theirs, means with t-intervals over common seeds: early, final, early on the test set."""
    values: dict[str, list[float]] = {"early": [], "final": [], "early_test": []}
    for (_, one), (_, other) in zip(ours.iterrows(), theirs.iterrows(), strict=True):
        values["early"].append(early_success(one.path) - early_success(other.path))
        values["final"].append(one.success - other.success)
        tested = [early_test(run.path, run.steps) for run in (one, other)]
        if None not in tested:
            values["early_test"].append(tested[0] - tested[1])  # type: ignore[operator]
    columns: dict[str, Any] = {}
    for name, differences in values.items():
        if len(differences) == len(ours):
            interval = t_interval(differences)
            columns |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return columns


def at_equal_tokens(ours: pd.DataFrame, theirs: pd.DataFrame) -> dict[str, float]:
    """Mean over seeds of ours minus theirs in test success at equal tokens, by the keys of AT_EQUAL_TOKENS.

    ``ours``, ``theirs``: rows of the frame, paired. A key is missing if a seed has no score at those tokens.
    """
    pairs = list(zip(learning_curves(ours), learning_curves(theirs), strict=True))
    columns = {}
    for name, update in AT_EQUAL_TOKENS.items():
        methods = {"method": "r3l", "against": "grpo"}
        read = {"success": "held_out", "after": [update], "equal": "tokens"}
        test = LearningTest.model_validate(methods | read)
        differences = [test.difference(pair, test.after) for pair in pairs]
        measured = [difference for difference in differences if difference is not None]
        if len(measured) == len(pairs):
            columns[name] = float(np.mean(measured))
    return columns


def early_test(evaluation: Path, steps: int) -> float | None:
    """Mean test success after the updates of ``evaluation.curve`` that are in the first third of ``steps``.

    ``evaluation``: the run's evaluation.json. None if it was not scored after any of these updates.
    """
    points = read_jsonl(run_dir_of(evaluation) / CURVE, CurvePoint)
    early = [point["groups"][ALL]["success"] for point in points if point["step"] <= steps * FIRST]
    return float(np.mean(early)) if early else None


def read_map(path: Path = FILE) -> list[dict[str, Any]]:
    """The rows (keys of MapRow) that `r3l table map --out` wrote.

    Raises DataError for a damaged file, OSError if it cannot be read.
    """
    return [row.model_dump() for _, row in read_csv(path, MapRow)]


def flat(rows: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The rows as records for the CSV: all COLUMNS in order, rounded to 6 decimals, None if missing."""
    records = []
    for row in rows:
        record = {name: row.get(name) for name in COLUMNS}
        for name, value in record.items():
            if isinstance(value, float) and math.isfinite(value):
                record[name] = round(value, 6)
        records.append(record)
    return records
