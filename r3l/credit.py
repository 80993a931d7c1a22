"""Pivotal credit (paper section 3.3): in base and retry, only turns from the pivot on carry gradient.

Base and retry share every token before the pivot, so their rewards say nothing about those tokens.
"""

from __future__ import annotations

from typing import Literal

from r3l.core.option import OptionModel, option
from r3l.core.trajectory import Trajectory, TrajectoryKind

CreditFor = Literal["base", "distilled", "guided_retry"]
CreditRule = Literal["suffix", "released_inverted"]


class CreditSettings(OptionModel):
    """Options of pivotal credit: which turns of a base rollout and of its retry train.

    ``credit``: any of ``base``, ``distilled`` and ``guided_retry``. ``credit_rule``: ``suffix`` (from the
    pivot on), or ``released_inverted``, under which a base rollout trains the turns before it.
    """

    credit: tuple[CreditFor, ...] = option(
        ("base", "distilled", "guided_retry"),
        "trajectory kinds whose shared prefix carries no gradient (B-3, B-5)",
        "paper: base and retry; guided retries as in released agentic code (audit 1.1)",
    )
    credit_rule: CreditRule = option(
        "suffix",
        "part of the base that trains (B-12)",
        "paper: the suffix (released turn-level code: the prefix)",
    )
    credit_from: Literal["restart", "reflected"] = option(
        "restart",
        "where credit begins: at the restart of the retry, or always at the reported pivot (B-5)",
        "paper: after the shared prefix",
    )


def assign_pivotal_credit(trajectory: Trajectory, pivot: int, settings: CreditSettings) -> None:
    """Set ``trajectory.trainable``, the turns that carry gradient: those from ``pivot`` (from 0) on.

    A trajectory whose kind is not in ``settings.credit`` trains all turns. Under ``released_inverted`` a base
    rollout trains the turns before the pivot instead, or all if there are none (released turn-level code).
    Whether the retry helped makes no difference (audit 2.3).
    """
    # Turns before the pivot are the same tokens in base and retry. Trained, they would be pushed up by the
    # better of the two and down by the other one, although they caused neither outcome.
    if trajectory.kind not in settings.credit:
        trajectory.trainable = None  # every turn
    elif trajectory.kind is TrajectoryKind.BASE and settings.credit_rule == "released_inverted":
        trajectory.trainable = range(pivot or len(trajectory.turns))
    else:
        trajectory.trainable = range(pivot, len(trajectory.turns))
