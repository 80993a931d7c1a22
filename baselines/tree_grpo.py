"""Tree-GRPO: rollouts that branch at random turns, without reflection (arXiv 2509.21240).

Each of M trees is a rollout and its branches: the rollout is rewound to a random turn and played on from
there. A leaf's advantage is GRPO's among all leaves of the task, plus GRPO's among those of its tree. It is
the control of R3L's retries: the same rewinding, with no text between the attempts.

Paper, release (AMAP-ML/Tree-GRPO at 90b1709) and this file:

1. Leaves: the scripts have 2 trees of 3 (profile ``released_code``). Here N as for every method, 2 trees
   of 4.
2. Rounds: the paper may expand a tree several times. The scripts do so once, and so does this file: every
   branch leaves the first rollout, at a turn drawn uniformly with replacement, the first turn included.
3. Shared turns: in the release they train once in every leaf below them, so branching costs no fewer trained
   tokens. ``shared_prefix: masked`` is R3L's rule: each branch trains from where it begins, the rollout from
   its first branch.
4. Advantage: the release also has each level separately (``levels``) and a nested one; its scripts use the
   sum.
5. A leaf that is alone in its tree keeps its raw return in the release; here its advantage in the tree is 0.
6. Release: a KL of 0.001 (profile), PPO's second clip at ratio 3 for A < 0 (not here), rewards for the format
   of an answer (here the environment's own reward).
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np
from r3l.baselines.grpo import GRPO, GRPOSettings

from r3l.core.advantages import standardised
from r3l.core.option import option
from r3l.core.rollout import RolloutContext, play
from r3l.core.seeds import generator
from r3l.core.task import Task
from r3l.core.trajectory import Group, Trajectory
from r3l.credit import CreditSettings, assign_pivotal_credit
from r3l.retry import Restart, RetrySettings, retry


class TreeGRPOSettings(GRPOSettings):
    """Settings of Tree-GRPO. ``group_size``: the leaves of all trees of a task."""

    trees: int = option(
        2, "M: trees per task; each has N / M leaves", "Tree-GRPO released scripts: 2", ge=1, le=4096
    )
    levels: Literal["both", "task", "tree"] = option(
        "both", "leaves that a leaf is compared with: the task's, its tree's, or the sum", "Tree-GRPO paper"
    )
    shared_prefix: Literal["trained", "masked"] = option(
        "trained",
        "turns that leaves share train in each of them, or in none (R3L's credit)",
        "Tree-GRPO released code",
    )


class TreeGRPO(GRPO):
    """GRPO over the N leaves of M trees per task.

    A tree is a rollout and its branches, which are continuations from random turns of it; each of these
    complete trajectories is a leaf. A leaf's advantage is GRPO's among all N leaves plus GRPO's among the
    leaves of its tree; with ``levels`` only one of the two. ``shared_prefix``: whether turns that leaves
    share train in each of them or in none.
    """

    Settings = TreeGRPOSettings
    settings: TreeGRPOSettings

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """Play the trees of ``task`` concurrently; returns one group of their N leaves (see the class)."""
        trees = await ctx.gather(
            partial(self._tree, task, ctx), range(min(self.settings.trees, self.settings.group_size))
        )
        return [Group(task, [leaf for leaves in trees for leaf in leaves])]

    async def _tree(self, task: Task, ctx: RolloutContext, member: int) -> list[Trajectory]:
        """The leaves of tree ``member``: a rollout, and its continuations from random turns of it."""
        s = self.settings
        episode = await play(ctx, task, member)
        base = episode.trajectory
        leaves = [base]
        if base.turns and not base.failed:
            branches = len(range(member, s.group_size, s.trees)) - 1  # trees differ by one leaf at most
            for number in range(branches):
                draws = generator(*ctx.address, "branch", task.address, member, number)
                turn = int(draws.integers(len(base.turns)))
                restart = Restart(turn, guidance=None, attempt=(number,))
                leaves.append((await retry(ctx, episode, restart, RetrySettings())).guided)
        await episode.close()

        if s.shared_prefix == "trained":
            for leaf in leaves:
                leaf.trainable = None
        elif len(leaves) > 1:
            assign_pivotal_credit(base, min(leaf.restart_turn for leaf in leaves[1:]), CreditSettings())
        return leaves

    def advantages(self, group: Group) -> np.ndarray:
        """GRPO's advantage among all leaves of the task plus that among the leaves of its tree, shape (G,).

        ``levels`` may select one of the two. A leaf that is alone in its tree has 0 there.
        """
        returns_G = group.returns_G()
        among_task_G = standardised(returns_G)
        among_tree_G = np.zeros(len(returns_G))
        members_G = np.asarray([leaf.member for leaf in group.trajectories])
        for member in set(members_G):
            of_tree = members_G == member
            if of_tree.sum() > 1:
                among_tree_G[of_tree] = standardised(returns_G[of_tree])
        levels = {"both": among_task_G + among_tree_G, "task": among_task_G, "tree": among_tree_G}
        return levels[self.settings.levels]
