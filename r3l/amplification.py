"""Positive amplification (paper section 3.4): successes weigh more than the failures around them."""

from __future__ import annotations

from typing import Literal

import numpy as np

from r3l.core.advantages import all_equal
from r3l.core.option import OptionModel, option

AmplifyRule = Literal["paper", "released_code", "uniform", "none"]
RewardMax = Literal["env_max", "group_max"]
AllEqual = Literal["zero", "as_rule"]
ENV_MAX = 1.0  # every environment's rewards end at 1 (audit 3.1)


class AmplificationSettings(OptionModel):
    """Options of amplification: rule, factor, best reward. Codes such as (A-1) refer to docs/audit.md.

    ``amplify_rule``: ``paper``, ``released_code``, ``uniform`` or ``none`` (see :func:`amplify`).
    ``reward_max``: ``env_max`` (1) or ``group_max``. ``amplify_all_equal``: ``zero`` (such a group is not
    amplified) or ``as_rule``.
    """

    amplify_rule: AmplifyRule = option(
        "paper",
        "how advantages are amplified (A-1, A-2, A-12)",
        "paper, section 3.4",
    )
    alpha: float = option(3.0, "amplification factor (A-5)", "paper: 3 (released code: 3, hard-coded)", gt=0)
    reward_max: RewardMax = option(
        "group_max",
        "best reward: that of the environment or of the group (A-4)",
        "paper: the largest reward in the group (its summary)",
    )
    amplify_all_equal: AllEqual = option(
        "zero",
        "advantages of a group whose rewards are all equal (A-3)",
        "our reading: a group without variance has no advantage",
    )


def amplify(advantages_G: np.ndarray, rewards_G: np.ndarray, settings: AmplificationSettings) -> np.ndarray:
    """Amplified advantages of a group, shape (G,), by the rule ``settings.amplify_rule``.

    With A a member's advantage and r its reward:

    - ``paper``: alpha if r reaches the best reward; alpha*A if A > 0; else A.
    - ``released_code``: exactly 1.0 if r reaches the best reward; alpha*A if A >= 0; else A (A-1, A-2).
    - ``uniform``: alpha*A if A > 0; else A.
    - ``none``: A.

    The best reward is 1 with ``reward_max: env_max``, else the group's largest. ``amplify_all_equal: zero``
    keeps A in a group of equal rewards, which would otherwise keep pushing once all members succeed (A-3).
    ``reward_max: group_max`` implies it, since there an all-failed group would be pushed too (A-4).
    """
    best_G, raised_G = _cases(advantages_G, rewards_G, settings)
    best_advantage = settings.alpha if settings.amplify_rule == "paper" else 1.0
    return np.where(best_G, best_advantage, np.where(raised_G, settings.alpha * advantages_G, advantages_G))


def explain(advantages_G: np.ndarray, rewards_G: np.ndarray, settings: AmplificationSettings) -> list[str]:
    """The arithmetic of :func:`amplify` as text for each member of a group, such as ``3 x ({})``.

    A is to be inserted at ``{}``; the text of a member with the best reward has no ``{}``.
    """
    best_G, raised_G = _cases(advantages_G, rewards_G, settings)
    best_advantage = "1" if settings.amplify_rule == "released_code" else f"alpha = {settings.alpha:g}"
    best = "largest reward there is" if settings.reward_max == "env_max" else "largest reward of the group"
    texts = []
    for is_best, is_raised in zip(best_G, raised_G, strict=True):
        if is_best:
            texts.append(f"{best_advantage}, for the {best}")
        else:
            texts.append(f"{settings.alpha:g} x ({{}})" if is_raised else "{}")
    return texts


def _cases(
    advantages_G: np.ndarray, rewards_G: np.ndarray, settings: AmplificationSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Masks, shape (G,) each: members with the best reward, and others whose advantage is multiplied."""
    none_G = np.zeros(len(rewards_G), dtype=bool)
    keep_equal = settings.amplify_all_equal == "zero" or settings.reward_max == "group_max"
    if settings.amplify_rule == "none" or (keep_equal and all_equal(rewards_G)):
        return none_G, none_G
    best_G = rewards_G >= (ENV_MAX if settings.reward_max == "env_max" else rewards_G.max())
    if settings.amplify_rule == "uniform":
        best_G = none_G
    return best_G, (advantages_G > 0) & ~best_G
