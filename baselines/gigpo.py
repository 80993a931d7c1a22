"""GiGPO: GRPO's advantage of an episode plus one of each turn, among turns from the same state (arXiv 2505.10978).

A state from which several turns of a task's rollouts start is an *anchor*: the returns after it compare the actions
taken there. Anchors are found after the rollouts by equal observations, at no cost in rollouts. Environments give their
reward at the end of an episode, so a turn's return is the episode's, discounted (the released code also gives -0.1 for
an invalid action).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

import numpy as np
from r3l.baselines.grpo import GRPO, GRPOSettings

from r3l.core.advantages import centred, standardised
from r3l.core.option import option
from r3l.core.trajectory import Group, Trajectory


class GiGPOSettings(GRPOSettings):
    """Every option of GiGPO."""

    omega: float = option(1.0, "weight of a turn's advantage", "GiGPO paper: 1", ge=0)
    gamma: float = option(0.95, "discount of the reward, one turn earlier", "GiGPO paper: 0.95", gt=0, le=1)
    normalisation: Literal["std", "none"] = option(
        "std",
        "what centred returns are divided by, of episodes and turns: their standard deviation, or nothing",
        "GiGPO paper: both; its released scripts: std",
    )


class GiGPO(GRPO):
    """The method (see r3l.core.method.Method); N plain rollouts in one group."""

    Settings = GiGPOSettings
    settings: GiGPOSettings

    def advantages(self, group: Group) -> list[np.ndarray]:
        """A(episode) + omega A(turn), on the tokens of each turn. A turn that is alone in its state has A(turn) 0."""
        s, returns_G = self.settings, group.returns_G()
        normalised = standardised if s.normalisation == "std" else centred
        returns = [
            r * s.gamma ** np.arange(len(t.turns))[::-1] for r, t in zip(returns_G, group.trajectories, strict=True)
        ]
        of_turns = [np.zeros_like(returns_K) for returns_K in returns]
        for anchored in anchors(group.trajectories):
            if len(anchored) > 1:
                returns_S = np.asarray([returns[g][k] for g, k in anchored])
                for (g, k), advantage in zip(anchored, normalised(returns_S), strict=True):
                    of_turns[g][k] = advantage
        episodes = zip(group.trajectories, normalised(returns_G), of_turns, strict=True)
        return [t.spread(of_episode + s.omega * turns_K) for t, of_episode, turns_K in episodes]


def anchors(trajectories: list[Trajectory]) -> list[list[tuple[int, int]]]:
    """The (trajectory, turn) of each state, in the order of first visits; a rollout may come back to one."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for g, trajectory in enumerate(trajectories):
        for k, state in enumerate(states(trajectory)):
            found[state].append((g, k))
    return list(found.values())


def states(trajectory: Trajectory) -> list[str]:
    """What each turn starts from: its observation; between lines of one response, all since the last one."""
    states: list[str] = []
    for k, turn in enumerate(trajectory.turns):
        states.append(turn.observation or states[-1] + trajectory.turns[k - 1].response)
    return states
