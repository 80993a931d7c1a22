"""Pivotal credit (paper section 3.3): only what follows the pivot carries gradient, in both attempts.

Base and retry share every token before the pivot, so their contrast says nothing about those tokens.
"""

from __future__ import annotations

from typing import Literal

from r3l.core.option import OptionModel, option
from r3l.core.trajectory import Trajectory, TrajectoryKind

CreditFor = Literal["base", "distilled", "guided_retry"]
CreditRule = Literal["suffix", "released_inverted"]


class CreditSettings(OptionModel):
    """The options of credit assignment."""

    credit: tuple[CreditFor, ...] = option(
        ("base", "distilled", "guided_retry"),
        "whose shared prefix carries no gradient (B-3, B-5)",
        "paper: base and retry; guided retries as in released agentic code (audit 1.1)",
    )
    credit_rule: CreditRule = option(
        "suffix", "what of the base trains (B-12)", "paper: the suffix (released turn-level code: the prefix)"
    )
    credit_from: Literal["restart", "reflected"] = option(
        "restart",
        "where credit begins: where the retry did, or at the reported pivot all the same (B-5)",
        "paper: after the shared prefix",
    )


def assign_pivotal_credit(trajectory: Trajectory, pivot: int, settings: CreditSettings) -> None:
    """Mark a base or one of its retries as trainable from turn ``pivot`` on, where ``credit`` says so.

    The base is marked whether or not the retry helped (released code, audit 2.3).
    ``released_inverted``: of the base the prefix trains instead of the suffix, and all of it where there is none, as in
    the released turn-level code.
    ``Trajectory.credit_mask`` does the arithmetic.
    """
    if trajectory.kind not in settings.credit:
        trajectory.trainable = None
    elif trajectory.kind is TrajectoryKind.BASE and settings.credit_rule == "released_inverted":
        trajectory.trainable = range(pivot or len(trajectory.turns))
    else:
        trajectory.trainable = range(pivot, len(trajectory.turns))
