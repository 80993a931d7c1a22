"""GRPO with a teacher that weighs tokens or turns: SDAR, RLSD, AgentOPSD, and the plain reverse KL.

With l and lT the log-probs of a sampled token, of policy and teacher, D = lT - l, A GRPO's advantage, sg: no
gradient, ``mode`` is one of::

    sdar       GRPO's loss + coef g (sg(lT) - l),  g = sg(sigmoid(beta D))                  (arXiv 2605.15155)
    ungated    GRPO's loss + coef sg(l - lT) l,  the reverse KL at the sampled token
    rlsd       A_t = A ((1 - mix) + mix clip(exp(sign(A) D), 1 +- band)),  mix falls to 0
    agentopsd  A_k = A ((1 - mix) + mix clip(1 + band sign(A) z_k, 1 +- band)) in turn k    (arXiv 2608.05987)
               z_k: standard score, in the episode, of V_k - V_(k-1), V_k = sigmoid(logit V_0 + sum of D to k)
               V_0: the group's success rate, or ``belief_prior``

Releases (ZJU-REAL/SDAR at 8b85c23; ZethWang/AgentOPSD at 0c478b2) and this file:

1. Hint: the releases put a skill, a text by kind of task that was written beforehand, before every rollout's
   prompt. Here a solved sibling's actions or feedback (``teacher_sees``); a rollout with neither learns by A.
2. SDAR's gradient is -coef g grad l: every sampled token is pulled up, and the teacher only says how much.
   Its baseline ``gate_beta: 0`` pulls each by coef / 2: no teacher is in it.
3. The release's script `opsd_trainer` keeps the gate (beta 5) and drops GRPO's loss (pg_loss_coef 0).
   ``ungated`` keeps GRPO's and drops the gate.
4. RLSD's mix falls from 0.5 to 0 in 100 of the script's 150 steps (the class: 50); ``mix_until`` is the
   share.
5. AgentOPSD's script: turns, signed increments, a constant mix of 0.5, which are also the paper's. A turn's
   token sums are clamped to V in (1e-6, 1 - 1e-6), V_0 to (1e-4, 1 - 1e-4), as here.
6. Both releases have a KL of 0.01 (profile) and subtract 0.1 for an invalid action; here an invalid response
   ends the episode.
7. The releases cut a teacher's long prompt on the left; here it has no teacher (``dropped/teacher_context``).
8. The releases take GRPO's mean and deviation over all turns of a task, so that long attempts count more;
   here over its attempts.
9. AgentOPSD's release describes V_0 as the group's success rate, the default here (``belief_prior``). Its
   code takes the mean reward, and on ALFWorld and WebShop a success pays 10: 0.9999 in every group of 8 with
   a success (``released``, in that profile there). Little can raise V from there, so z_k ranks turns by how
   far they lower it. Its scripts set V_0 to 0.5, which its trainer never uses (``half``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from r3l.baselines.grpo import GRPO, GRPOSettings
from r3l.baselines.teacher import TeacherSettings, play_taught

from r3l.core.advantages import Advantage, standardised
from r3l.core.losses import reverse_kl
from r3l.core.method import Batch, Tokens
from r3l.core.option import REQUIRED, option
from r3l.core.rollout import RolloutContext
from r3l.core.task import Task
from r3l.core.trajectory import Group

if TYPE_CHECKING:
    import torch

RELEASED = "released scripts"
EPSILON = 1e-6  # of beliefs and of standard scores: AgentOPSD's release


class TeacherGatedSettings(GRPOSettings, TeacherSettings):
    """Settings of the methods that add a teacher to GRPO; ``mode`` says which (see :class:`TeacherGated`)."""

    mode: Literal["sdar", "ungated", "rlsd", "agentopsd"] = option(REQUIRED, "how the teacher enters")
    teacher_coef: float = option(
        0.01, "weight of the teacher's loss; of sdar and ungated", f"SDAR {RELEASED}", ge=0
    )
    gate_beta: float = option(5.0, "slope of sdar's gate; 0: no teacher in it", f"SDAR {RELEASED}: 5", ge=0)
    mix: float = option(
        0.5, "share of the advantage that the teacher weighs; of rlsd and agentopsd", RELEASED, ge=0, le=1
    )
    mix_until: float = option(
        2 / 3,
        "share of training after which rlsd's mix is 0",
        f"RLSD {RELEASED}: 100 of 150 steps",
        gt=0,
        le=1,
    )
    belief_prior: Literal["success_rate", "released", "half"] = option(
        "success_rate",
        "belief of success before the first turn, of agentopsd: the group's success rate, 10 times that (at "
        "most 0.9999), or 0.5",
        "AgentOPSD release's description (its code: the mean reward; its scripts: 0.5, unused)",
    )
    band: float = option(0.2, "most that the teacher changes an advantage by", RELEASED, ge=0, le=1)


class TeacherGated(GRPO):
    """GRPO over N rollouts in which a teacher weighs tokens or turns (setting ``mode``).

    The teacher is the policy with a hint in its prompt: the actions of another rollout that solved the task,
    or feedback on the failure (setting ``teacher_sees``, r3l.baselines.teacher). ``sdar`` and ``ungated`` add
    a loss that pulls the policy to it, ``rlsd`` weighs the advantage by token, ``agentopsd`` by turn.
    """

    Settings = TeacherGatedSettings
    settings: TeacherGatedSettings

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """Play N rollouts in one group; rollouts for which there is a hint get a teacher."""
        return [Group(task, await play_taught(ctx, task, self.settings), progress=ctx.progress)]

    def advantages(self, group: Group) -> list[Advantage]:
        """GRPO's advantage A of each trajectory, one number; in modes rlsd and agentopsd an array (T,).

        rlsd multiplies A, token by token, by (1 - m) + m clip(exp(sign(A) D), 1 - band, 1 + band), where D is
        log p under the teacher minus the policy's, and m falls from ``mix`` to 0 at ``mix_until``. agentopsd
        multiplies it, turn by turn, by (1 - mix) + mix clip(1 + band sign(A) z, 1 - band, 1 + band), where z
        is the standard score, over the turns, of the change by the turn's D in the belief of success, which
        starts at ``belief_prior`` (formula: see the module).
        """
        s = self.settings
        advantages: list[Advantage] = standardised(group.returns_G()).tolist()
        if s.mode not in ("rlsd", "agentopsd"):
            return advantages
        # The belief of success before the first turn. In the release a success pays 10.
        prior = float(np.mean([t.success for t in group.trajectories]))
        if s.belief_prior == "released":
            prior = 10 * prior
        elif s.belief_prior == "half":
            prior = 0.5
        low = 1 - s.band
        high = 1 + s.band
        weighted: list[Advantage] = []
        for t, advantage in zip(group.trajectories, advantages, strict=True):
            sign = float(np.sign(advantage))
            if s.mode == "rlsd":
                # RLSD: a weight per token, exp(sign D) within the band.
                mix = s.mix * max(0.0, 1 - group.progress / s.mix_until)
                weights_T = np.clip(np.exp(sign * t.teacher_gap()), low, high)
                weighted.append(advantage * ((1 - mix) + mix * weights_T))
                continue

            # AgentOPSD: a weight per turn. Each turn's D moves the logit of the belief that the attempt
            # succeeds. The weight is 1 + band sign z within the band, with z the turn's move of the belief,
            # standardised over the turns.
            v_0 = np.clip(prior, 1e-4, 1 - 1e-4)
            logits_K = np.log(v_0 / (1 - v_0)) + np.cumsum(t.teacher_gaps_by_turn())
            # Beyond +-100 exp would overflow for long turns, and the belief is at its bound anyway.
            beliefs_K = np.clip(1 / (1 + np.exp(-np.clip(logits_K, -100, 100))), EPSILON, 1 - EPSILON)
            moves_K = np.diff(beliefs_K, prepend=v_0)
            z_K = moves_K
            if len(t.turns):
                z_K = (moves_K - moves_K.mean()) / (moves_K.std() + EPSILON)
            weights_K = np.clip(1 + s.band * sign * z_K, low, high)
            weighted.append(t.spread(advantage * ((1 - s.mix) + s.mix * weights_K)))
        return weighted

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """GRPO's loss per token, shape (B, T), and its metrics.

        On rows with a teacher, mode sdar adds ``teacher_coef`` sg(sigmoid(``gate_beta`` (lT - l))) (lT - l),
        ungated ``teacher_coef`` sg(l - lT) l; l, lT: log p by policy and teacher, sg: no gradient.
        """
        s = self.settings
        loss_B_T, metrics = super().surrogate(batch, logprobs_B_T)
        teacher_B_T = batch.teacher_logprobs_B_T
        if s.mode == "sdar":
            gate_B_T = (s.gate_beta * (teacher_B_T - logprobs_B_T.detach())).sigmoid()
            term_B_T = gate_B_T * (teacher_B_T - logprobs_B_T)
        elif s.mode == "ungated":
            term_B_T = reverse_kl(logprobs_B_T, teacher_B_T)
        else:
            return loss_B_T, metrics
        return loss_B_T + s.teacher_coef * term_B_T * batch.taught_B[:, None], metrics
