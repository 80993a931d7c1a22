"""GiGPO: GRPO's advantage per episode plus one per turn among turns from one state (arXiv 2505.10978).

A state from which several turns of a task's rollouts start is an *anchor*: the returns after it compare the
actions taken there. Anchors are found by equal observations after the rollouts, so they cost no rollouts.
Environments give their reward at the end of an episode, so a turn's return is the discounted return of the
episode (the released code also gives -0.1 for an invalid action).
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
    """Settings of GiGPO: weight and discount of the advantages per turn, and their normalisation.

    Codes in the descriptions, such as (A-8) or (audit 0.6), are entries of docs/audit.md.
    """

    omega: float = option(1.0, "weight of a turn's advantage", "GiGPO paper: 1", ge=0)
    gamma: float = option(0.95, "discount of the return per turn", "GiGPO paper: 0.95", gt=0, le=1)
    normalisation: Literal["std", "none"] = option(
        "std",
        "divide centred returns, of episodes and turns, by their standard deviation, or not",
        "GiGPO paper: both; its released scripts: std",
    )


class GiGPO(GRPO):
    """GRPO with A = A(episode) + omega A(turn); A(turn) compares turns that start from the same state.

    N rollouts in one group.
    """

    Settings = GiGPOSettings
    settings: GiGPOSettings

    def advantages(self, group: Group) -> list[np.ndarray]:
        """A(episode) + omega A(turn) on the tokens of each turn, shape (T,) per trajectory.

        A(episode) compares the returns of the group's trajectories, A(turn) the returns of turns that start
        from the same state. A turn whose state no other turn has gets A(turn) = 0.
        """
        s = self.settings
        returns_G = group.returns_G()
        normalised = standardised if s.normalisation == "std" else centred

        # Compare the turns that start from one state.
        returns = turn_returns(group, s.gamma)
        turn_advantages = [np.zeros_like(returns_K) for returns_K in returns]
        for anchored in anchors(group.trajectories):
            if len(anchored) > 1:
                returns_S = np.asarray([returns[g][k] for g, k in anchored])
                for (g, k), advantage in zip(anchored, normalised(returns_S), strict=True):
                    turn_advantages[g][k] = advantage

        episodes = zip(group.trajectories, normalised(returns_G), turn_advantages, strict=True)
        return [t.spread(of_episode + s.omega * turns_K) for t, of_episode, turns_K in episodes]


def turn_returns(group: Group, gamma: float) -> list[np.ndarray]:
    """The return of every turn, shape (K,) per trajectory of K turns.

    It is the trajectory's return, multiplied by ``gamma`` once for every later turn.
    """
    returns = []
    for episode_return, trajectory in zip(group.returns_G(), group.trajectories, strict=True):
        turns_left_K = np.arange(len(trajectory.turns))[::-1]
        returns.append(episode_return * gamma**turns_left_K)
    return returns


def anchors(trajectories: list[Trajectory]) -> list[list[tuple[int, int]]]:
    """The turns that start from the same state: a list of indices (trajectory, turn) for each state.

    States (:func:`states`) are in order of first visit; some have one turn only. A rollout may visit a state
    several times.
    """
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for g, trajectory in enumerate(trajectories):
        for k, state in enumerate(states(trajectory)):
            found[state].append((g, k))
    return list(found.values())


def states(trajectory: Trajectory) -> list[str]:
    """The state from which each turn starts: its observation.

    A turn that continues a response (``stop: line``) has none; its state is the last observation and the
    lines since. The first observation may be empty.
    """
    states: list[str] = []
    for k, turn in enumerate(trajectory.turns):
        continues = k > 0 and not turn.observation
        states.append(states[-1] + trajectory.turns[k - 1].response if continues else turn.observation)
    return states
