"""Runs, probes and claims that `r3l table` and `r3l figure` show, found by their common options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from r3l.cli.arguments import RESULTS, found, named, selection_of
from r3l.core.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from r3l.report.claim_rows import ClaimVerdict
    from r3l.report.claims import Claims
    from r3l.report.feedback_per_token import FeedbackRow
    from r3l.report.teachers import TeacherRow


def teachers_of(
    runs: list[Path] | None, results: list[Path] | None, env: str | None, method: str | None
) -> list[TeacherRow]:
    """The teachers of the runs that the options select, and of the probes under ``results``.

    ``env`` selects runs and probes; with ``method`` all probes are left out. A teacher is the policy with
    more in its context (a hint, a solution), whose log-probabilities score rollouts. Without ``runs`` and
    ``results`` the folder results is read. Raises DataError if there is none.
    """
    from r3l.report import probes
    from r3l.report.reading import read_runs
    from r3l.report.teachers import teacher_rows

    selection = selection_of(env, method, runs)
    folders = results or ([] if runs else [RESULTS])
    paths = found(selection.runs, results, may_be_none=True)
    probed = [one for one in probes.read_folders(folders) if one["env"] in (selection.envs or [one["env"]])]
    rows = teacher_rows(selection.of(read_runs(paths, selection.runs)), [] if selection.methods else probed)
    if not rows:
        where = " or ".join(map(str, folders)) or "these runs"
        raise DataError(
            f"no teacher under {where}: no run there has metrics teacher/*, and no probe measured teachers; "
            "train a method with one (r3l train --method sdar), or probe a model (r3l probe math)"
        )
    return rows


def feedback_rows_of(results: list[Path] | None, env: str | None, method: str | None) -> list[FeedbackRow]:
    """Rows on what feedback costs and gains, by environment and method, from the runs under ``results``.

    None: the stored runs. ``env`` and ``method``: the options' comma-separated names; None: all of the
    table. Raises ConfigError for a method that trains nothing, DataError if none of them has run.
    """
    from r3l.config import load_method, variant
    from r3l.config.files import find_class
    from r3l.report.feedback_per_token import ENVS, feedback_rows
    from r3l.report.frame import with_further

    envs = named("--env", env) if env else None
    methods = named("--method", method) if method else None
    for name in methods or ():
        if not find_class("methods", load_method(variant(name).method).code or "").trains:
            raise ConfigError(f"--method: {name} trains nothing, so it gains nothing per token; leave it out")
    runs, curves = stored_evidence(results)
    rows = feedback_rows(with_further(curves, runs), envs, methods)
    if not any(row.seeds for row in rows):
        where = " or ".join(map(str, results)) if results else "the stored runs"
        wanted = ", ".join(methods or ["these methods"])
        raise DataError(
            f"no run in {where} is of {wanted} in {', '.join(envs or ENVS)}: train some (r3l run --method "
            "grpo,sdar --env math)"
        )
    return rows


def map_of(results: list[Path] | None) -> list[dict[str, Any]]:
    """The rows of the map (MapRow): of the stored one, or of runs and probes under ``results``.

    Raises DataError if there is no comparison under ``results``.
    """
    from r3l.report.probe_map import map_rows, read_map
    from r3l.stats.intervals import MIN_SEEDS

    rows = map_rows(results) if results else read_map()
    if not rows:
        where = " or ".join(map(str, results or []))
        raise DataError(
            f"the map has no comparison under {where}: it needs a probe (r3l probe), and runs of r3l and grpo "
            f"from the probed model, at one learning rate, with {MIN_SEEDS} seeds at least"
        )
    return rows


def named_claims(claim: list[str] | None) -> set[str]:
    """The ids of the claims that ``--claim`` chooses, each by its id or by words of its text; None: of all.

    Raises ConfigError for words that choose none.
    """
    from r3l.report.claims import load_claims

    texts = {known.id: known.claim for known in load_claims().claims}
    if claim is None:
        return set(texts)
    chosen: set[str] = set()
    for words in claim:
        found_ids = {id for id, text in texts.items() if words == id or words.lower() in text.lower()}
        if not found_ids:
            meant = did_you_mean(words, [*texts, *texts.values()])
            raise ConfigError(f"--claim: no claim has {words!r}{meant}; r3l table claims prints all of them")
        chosen |= found_ids
    return chosen


def claims_of(results: list[Path] | None) -> tuple[list[ClaimVerdict], Claims]:
    """The verdict on each of the paper's claims, from the runs and probes under ``results``, and the claims.

    None: the stored runs and probes. Rows as of claim_verdicts. Raises DataError if the stored runs are
    needed and not on this machine.
    """
    from r3l.evaluation.stored_runs import stored_runs
    from r3l.report import claims, probes
    from r3l.report.claim_verdicts import claim_verdicts

    tested = claims.load_claims()
    runs, curves = stored_evidence(results)
    return claim_verdicts(runs, probes.read_folders(results or [stored_runs()]), tested, curves), tested


def stored_evidence(results: list[Path] | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two frames of runs under ``results``: those for scores, and those with scores at several updates.

    The second frame has the runs in the subfolder curves; the first has the others, hint_gap included. Both
    may be empty. ``results`` None: the stored runs.
    """
    from r3l.evaluation.stored_runs import stored_runs
    from r3l.report.reading import read_runs
    from r3l.runs.run_paths import CURVES, HINT_GAP

    folders = results or [stored_runs()]
    further = [folder / HINT_GAP for folder in folders]
    runs = read_runs(found([], [*folders, *further], may_be_none=True))
    return runs, read_runs(found([], [folder / CURVES for folder in folders], may_be_none=True))
