"""SDPO, sampled token: the policy learns from itself with a solution in its prompt (arXiv 2601.20802).

The teacher of a rollout sees a solved sibling, else feedback on the failure. Every sampled token gets::

    loss = sg(l - lT) * l * sg(min(ratio, 2))    l, lT: log p by policy and teacher; sg: no gradient

which is the reverse KL at the sampled token. Rewards only decide which sibling is shown.

Paper, release (lasgroup/SDPO at 0e6d510, verl/trainer/ppo/core_algos.py) and this file:

1. Divergence: paper and release compare the 100 likeliest tokens and their rest (Jensen-Shannon in the
   default, alpha 0.5). This file has the release's form for sampled tokens, alpha 1
   (``full_logit_distillation: false``), since only sampled tokens are scored.
2. Teacher: an exponential average with rate 0.05 in both (``teacher: average``). A script for rich feedback
   sets ``ema_update_rate=0.01``, a key that nothing in the release reads. Trinity-RFT has no average.
3. Ratio: the release weighs tokens by min(ratio, 2); ``max_ratio: none`` is the written loss. With one update
   a step the ratio is 1.
4. A rollout without sibling and feedback is masked in both.
5. A solution counts from a reward of 0.5 in the release; here from the environment's own success.
6. Feedback is shown only without a solution in both. The release's scripts without rich feedback show none
   (``teacher_sees: solution``).
7. The release writes the solution after the question, and cuts a long prompt on the right; here
   ``guidance_place``, and a context that is too long has no teacher (``dropped/teacher_context``).
8. The solution is the sibling's response without its thought; in several turns its actions.
9. Rollouts: 8 in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from r3l.baselines.teacher import TeacherSettings, play_taught

from r3l.core.losses import reverse_kl, token_ratio
from r3l.core.method import Batch, LossAggregation, TeacherWeights, Tokens, TrainedMethod
from r3l.core.option import option
from r3l.core.rollout import RolloutContext
from r3l.core.task import Task
from r3l.core.trajectory import Group

if TYPE_CHECKING:
    import torch

RELEASED = "SDPO released code"


class SDPOSettings(TeacherSettings):
    """Settings of SDPO: the weights of its teacher (default: an average), and the cap of the ratio (2).

    ``teacher``: ``live``, ``frozen`` or ``average`` (:class:`r3l.core.method.Method`).
    """

    teacher: TeacherWeights = option(
        "average",
        "the teacher's weights: those that sampled, the base checkpoint's, or an average",
        f"SDPO paper and {RELEASED}: an average",
    )
    max_ratio: float | None = option(
        2.0, "upper limit of the importance ratio that weighs a token; none: no ratio", RELEASED, gt=0
    )
    loss_agg: LossAggregation = option(
        "token_mean", "how token losses are averaged (A-8)", f"{RELEASED}: token-mean, here over the step"
    )


class SDPO(TrainedMethod[SDPOSettings]):
    """Self-distillation: the policy imitates itself with a solution or feedback in its context.

    Loss sg(l - lT) l, times the importance ratio up to ``max_ratio``; l, lT: log p by policy and teacher.
    There are no advantages.
    """

    Settings = SDPOSettings

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """Play N rollouts in one group; those without a hint do not train.

        The hint, a solved sibling or feedback, is in the prompt of the teacher (:func:`play_taught`).
        """
        rollouts = await play_taught(ctx, task, self.settings)
        for rollout in rollouts:
            if not rollout.taught:
                rollout.trainable = range(0)
        return [Group(task, rollouts)]

    def advantages(self, group: Group) -> np.ndarray:
        """Zeros, shape (G,): only the teacher decides what is learned."""
        return np.zeros(len(group.trajectories))

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """Loss per token: the reverse KL to the teacher, estimated at the sampled token; shape (B, T).

        It is multiplied by the importance ratio, at most ``max_ratio``, which has no gradient here. It is 0
        on rows without a teacher.
        """
        loss_B_T = reverse_kl(logprobs_B_T, batch.teacher_logprobs_B_T)
        limit = self.settings.max_ratio
        if limit is not None:
            ratio_B_T = token_ratio(logprobs_B_T, batch.old_logprobs_B_T)
            loss_B_T = loss_B_T * ratio_B_T.clamp(max=limit).detach()
        return loss_B_T * batch.taught_B[:, None], {}
