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
    """The options of amplification."""

    amplify_rule: AmplifyRule = option("paper", "how advantages are amplified (A-1, A-2, A-12)", "paper, section 3.4")
    alpha: float = option(3.0, "amplification factor (A-5)", "paper: 3 (released code: 3, hard-coded)", gt=0)
    reward_max: RewardMax = option(
        "group_max", "what counts as the best reward (A-4)", "paper: the largest reward in the group (its summary)"
    )
    amplify_all_equal: AllEqual = option(
        "zero",
        "a group whose rewards are all equal (A-3)",
        "our reading: a group without variance has no advantage",
    )


def amplify(advantages_G: np.ndarray, rewards_G: np.ndarray, settings: AmplificationSettings) -> np.ndarray:
    """Amplified advantages_G, shape (G,).

    - ``paper``: alpha where r reaches the best reward; alpha*A where A > 0; else A.
    - ``released_code``: exactly 1.0 where r reaches the best reward; alpha*A where A >= 0; else A (A-1, A-2).
    - ``uniform``: alpha*A where A > 0.  - ``none``: A.

    ``amplify_all_equal: zero`` keeps A in a group of equal rewards, which otherwise keeps pushing once all succeed
    (A-3). It is implied by ``group_max``: there an all-failed group would be pushed too (A-4).
    """
    best_G, raised_G = _cases(advantages_G, rewards_G, settings)
    return np.where(best_G, _top(settings), np.where(raised_G, settings.alpha * advantages_G, advantages_G))


def explain(advantages_G: np.ndarray, rewards_G: np.ndarray, settings: AmplificationSettings) -> list[str]:
    """For readers, how :func:`amplify` comes to each number: a text with ``{}`` in the place of the plain advantage."""
    top = f"{_top(settings):g}" if settings.amplify_rule == "released_code" else f"alpha = {settings.alpha:g}"
    best = "largest reward there is" if settings.reward_max == "env_max" else "largest reward of the group"
    cases = zip(*_cases(advantages_G, rewards_G, settings), strict=True)
    return [
        f"{top}, for the {best}" if is_best else f"{settings.alpha:g} x ({{}})" if up else "{}" for is_best, up in cases
    ]


def _top(settings: AmplificationSettings) -> float:
    """The advantage of the best reward."""
    return settings.alpha if settings.amplify_rule == "paper" else 1.0


def _cases(
    advantages_G: np.ndarray, rewards_G: np.ndarray, settings: AmplificationSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Which members have the best reward, and of which others the advantage is multiplied; shape (G,) each."""
    nobody = np.zeros(len(rewards_G), dtype=bool)
    kept = settings.amplify_all_equal == "zero" or settings.reward_max == "group_max"
    if settings.amplify_rule == "none" or (kept and all_equal(rewards_G)):
        return nobody, nobody
    best_G = rewards_G >= (ENV_MAX if settings.reward_max == "env_max" else rewards_G.max())
    best_G = nobody if settings.amplify_rule == "uniform" else best_G
    return best_G, (advantages_G > 0) & ~best_G
