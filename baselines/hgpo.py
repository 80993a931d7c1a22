"""HGPO: GiGPO's comparison of turns, within a hierarchy of ever longer equal histories (arXiv 2602.22817).

Turns that start from one observation may still have read different prompts. So a turn is compared once for
each length k = 1 .. K + 1, with the turns of the task's rollouts whose last k observations equal its own::

    A_k = (G - mean) / (standard deviation + 1e-6)    G: discounted return of the turn; clusters of 2 or more
    A   = sum of w_k A_k, w_k proportional to a power of the length, over the k with A_k != 0

Paper, release (ZJU-REAL/SDAR at 8b85c23, recipe/hgpo) and this file:

1. Length: a history of k - 1 turns weighs k^alpha in our reading of the paper, (k + 1)^alpha in the release
   (``level_weight``).
2. Release and this file divide by the population's deviation, GRPO and GiGPO by the sample's.
3. The release can add the rollout's own advantage as a level of weight 1; its scripts do not, nor does this
   file. So a turn whose observation no other turn has does not train, where GiGPO's has its rollout's.
4. The release gives -0.1 for an invalid action and has a KL; here an invalid response ends the episode.
5. The release encodes K turns of history in each prompt. Here the prompt is what the environment's protocol
   says, so K only sets how turns are compared.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

import numpy as np
from r3l.baselines.gigpo import states, turn_returns
from r3l.baselines.grpo import GRPO, GRPOSettings

from r3l.core.advantages import STD_EPSILON, centred
from r3l.core.option import option
from r3l.core.trajectory import Group

RELEASED = "HGPO released scripts"


class HGPOSettings(GRPOSettings):
    """Settings of HGPO.

    A level is a length of history: on level k, for k from 1 to ``history`` + 1, a turn is compared with the
    turns whose last k observations are equal to its own.
    """

    history: int = option(2, "K: longest history that is compared, in turns", f"{RELEASED}: 2 (or 4)", ge=0)
    gamma: float = option(0.95, "discount of the return per turn", f"{RELEASED}: 0.95", gt=0, le=1)
    normalisation: Literal["std", "none"] = option(
        "std", "divide centred returns by their standard deviation, or not", f"{RELEASED}: mean_std_norm"
    )
    weight_alpha: float = option(1.0, "power of the length in a level's weight", f"{RELEASED}: 1", ge=0)
    level_weight: Literal["length", "released"] = option(
        "length",
        "length of a level with k equal observations: k, or k + 1",
        "our reading of the paper (released code: k + 1)",
    )


class HGPO(GRPO):
    """GRPO whose advantages compare turns with equal histories; N rollouts in one group."""

    Settings = HGPOSettings
    settings: HGPOSettings

    def advantages(self, group: Group) -> list[np.ndarray]:
        """The weighted mean of a turn's advantages over its levels, on its tokens; shape (T,) per trajectory.

        On level k a turn is compared with the turns whose last k observations are equal to its own, if there
        are any. Levels with advantage 0 are left out of the mean; a turn without other levels has 0.
        """
        s = self.settings
        returns = turn_returns(group, s.gamma)

        # Levels of each turn: (weight, advantage), the longest histories last.
        levels: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        for length in range(1, s.history + 2):
            weighed_length = length + 1 if s.level_weight == "released" else length
            weight = float(weighed_length) ** s.weight_alpha
            for cluster in clusters(group, length):
                advantages_S = centred(np.asarray([returns[g][k] for g, k in cluster]))
                if s.normalisation == "std":
                    advantages_S = advantages_S / (np.sqrt(np.mean(advantages_S**2)) + STD_EPSILON)
                for turn, advantage in zip(cluster, advantages_S, strict=True):
                    levels[turn].append((weight, float(advantage)))

        # A level of equal returns says nothing, so it takes no weight from the others.
        advantages = []
        for g, trajectory in enumerate(group.trajectories):
            of_turns = []
            for k in range(len(trajectory.turns)):
                telling = [level for level in levels[g, k] if level[1] != 0]
                weighted = sum(weight * advantage for weight, advantage in telling)
                of_turns.append(weighted / sum(weight for weight, _ in telling) if telling else 0.0)
            advantages.append(trajectory.spread(of_turns))
        return advantages


def clusters(group: Group, length: int) -> list[list[tuple[int, int]]]:
    """The turns with equal history: lists of two or more indices (trajectory, turn).

    Two turns have equal history if their last ``length`` observations, their own included, are equal; turns
    with fewer observations are in no list.
    """
    found: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for g, trajectory in enumerate(group.trajectories):
        observations = states(trajectory)
        for k in range(length - 1, len(observations)):
            found[tuple(observations[k + 1 - length : k + 1])].append((g, k))
    return [cluster for cluster in found.values() if len(cluster) > 1]
