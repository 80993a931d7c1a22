"""Pivotal credit (paper section 3.3): only what follows the pivot carries gradient, in both attempts.

Base and retry share every token before the pivot, so their contrast says nothing about those tokens.
"""

from __future__ import annotations

from r3l.core.trajectory import Trajectory


def assign_pivotal_credit(base: Trajectory, distilled: Trajectory, pivot: int) -> None:
    """Mark both as trainable from turn ``pivot`` on (``Trajectory.credit_mask`` does the arithmetic).

    The base is marked whether or not the retry helped (released code, audit section 2 C).
    """
    base.pivot = pivot
    distilled.pivot = pivot
