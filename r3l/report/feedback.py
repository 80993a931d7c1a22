"""Who wrote the feedback that a method learnt with: a condition of its scores, shown beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from r3l.config import feedback_of, feedback_source, variant
from r3l.feedback.feedback import FeedbackSource
from r3l.runs.metrics import Counts, summed

COLUMN = "feedback"
KINDS = ("reflection", "critique")
NOTE = (
    "feedback: who wrote the reflections or critiques of training: the model itself (self), a critic scripted for the "
    "environment, or a judge. Rows with different teachers were trained under different conditions."
)


def source_label(run: Mapping[str, Any]) -> str | None:
    """Whose feedback a run of a manifest is set to read: ``self``, ``environment``, ``judge NAME``; None: nobody's."""
    source = feedback_source(run.get("method_settings", {}))  # a run may be older than a section
    return f"judge {run['judge']['model']}" if source is FeedbackSource.JUDGE else source and source.value


def planned(method: str, tier: str) -> str | None:
    """Whose feedback the runs of a row are to read that nobody has made."""
    source = feedback_of(variant(method), tier)
    return source and source.value


def written_by(source: str | None, counts: Iterable[Counts]) -> str | None:
    """``source`` as it was: where the environment's critic had nothing to say, the share of what the model wrote.

    ``counts``: of the runs of a row.
    """
    if source != FeedbackSource.ENVIRONMENT:
        return source
    total = summed(counts)
    own, given = (sum(total[f"{kind}/by_{who}"] for kind in KINDS) for who in ("model", "environment"))
    return f"environment, {own / (own + given):.0%} self" if own else source


def joined(labels: Sequence[str]) -> str:
    """Those of several environments in one row of a table."""
    return "; ".join(dict.fromkeys(labels))


def is_taught(source: str | None) -> bool:
    """Whether somebody else than the model wrote."""
    return source not in (None, FeedbackSource.SELF)
