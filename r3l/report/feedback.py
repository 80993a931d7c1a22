"""The teacher of a method, who wrote the feedback of its training: a condition of its scores, shown with
them."""

from __future__ import annotations

import pandas as pd

from r3l.config import feedback_of, variant
from r3l.feedback.feedback import FeedbackSource
from r3l.report.frame import total

COLUMN = "feedback"
KINDS = ("reflection", "critique")
NOTE = (
    "feedback: who wrote the reflections or critiques of training: the model itself (self), a critic scripted for the "
    "environment, or a judge. Rows with different teachers were trained under different conditions."
)


def planned(method: str, tier: str) -> str | None:
    """Who will write the feedback of planned runs of ``method``: self, environment or judge.

    ``tier``: scale of the runs, such as nano, whose settings may decide it. None if the method uses no
    feedback.
    """
    source = feedback_of(variant(method), tier)
    return source and source.value


def written_by(source: str | None, runs: pd.DataFrame) -> str | None:
    """Who wrote the feedback of finished ``runs``, as a table prints it. ``source``: their setting.

    Under ``environment`` the model writes the feedback for which the critic has nothing to say. Its share
    is added: ``environment, 12% self``.
    """
    if source != FeedbackSource.ENVIRONMENT:
        return source
    by_model, by_environment = (
        sum(total(runs, f"{kind}/by_{writer}") for kind in KINDS) for writer in ("model", "environment")
    )
    return f"environment, {by_model / (by_model + by_environment):.0%} self" if by_model else source


def is_taught(source: str | None) -> bool:
    """True if the feedback was written by something other than the model itself."""
    return source not in (None, FeedbackSource.SELF)
