"""Methods of 2026 against functions of their releases, on random cases.

$R3L_RIVALS names a folder of clones: SDPO, SDAR, AgentOPSD, Tree-GRPO, experiential_rl. A function is read from
its file at the pinned commit and runs without the release's packages, which need ray.
"""

import ast
import os
import subprocess
from collections import defaultdict
from dataclasses import replace
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import numpy as np
import pytest
import torch
from conftest import make_trajectory
from r3l.baselines.grpo import GRPO
from r3l.baselines.hgpo import HGPO
from r3l.baselines.sdpo import SDPO
from r3l.baselines.teacher_gated import TeacherGated
from r3l.baselines.tree_grpo import TreeGRPO

from r3l.core.batching import collate, rows_of
from r3l.core.trajectory import Group

CLONES = os.environ.get("R3L_RIVALS")
pytestmark = pytest.mark.skipif(CLONES is None, reason="R3L_RIVALS names no folder of clones")
COMMITS = {
    "SDPO": "0e6d510",
    "SDAR": "8b85c23",
    "AgentOPSD": "0c478b2",
    "Tree-GRPO": "90b1709",
    "experiential_rl": "20cd646",
}
CORE = "verl/trainer/ppo/core_algos.py"
MASKED = ("verl/utils/torch_functional.py", ("masked_sum", "masked_mean"))
CASES = 500
CPU = torch.device("cpu")


def released(release, *files):
    """The definitions in ``files``, pairs of a path and names, of a release."""
    space = {
        "np": np,
        "torch": torch,
        "F": torch.nn.functional,
        "defaultdict": defaultdict,
        "reduce": reduce,
        "Any": Any,
        "Optional": Optional,
        "Dict": dict,
        "AlgoConfig": None,
    }
    for path, names in files:
        shown = ["git", "-C", str(Path(CLONES) / release), "show", f"{COMMITS[release]}:{path}"]
        text = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
        found = [node for node in ast.parse(text).body if getattr(node, "name", None) in names]
        assert {node.name for node in found} == set(names)
        for node in found:
            node.decorator_list = []
        exec(compile(ast.Module(found, []), path, "exec"), space)
    space["verl_F"] = SimpleNamespace(**space)
    return SimpleNamespace(**{name: space[name] for _, names in files for name in names})


def draws():
    return (np.random.default_rng(k) for k in range(CASES))


def attempt(draw, turns, reward, taught=True, observations=None):
    """An attempt of two tokens a turn with random log-probs, by policy and teacher."""
    t = make_trajectory(turns, reward)
    for k, turn in enumerate(t.turns):
        t.turns[k] = replace(turn, logprobs=tuple(-draw.exponential(1.0, 2)))
        if observations is not None:
            t.turns[k] = replace(t.turns[k], observation=observations[k])
    t.trainable = None if taught else range(0)
    if taught:
        t.turns[0] = replace(t.turns[0], teacher_prompt_ids=(7, 100))
        sampled = [value for turn in t.turns for value in turn.logprobs]
        t.set_teacher_logprobs(list(np.asarray(sampled) + draw.normal(0, 1, len(sampled))))
    return t


def group_of(draw, taught=True, least=2):
    size = int(draw.integers(least, 9))
    return Group(
        make_trajectory(1).task,
        [
            attempt(
                draw, int(draw.integers(1, 6)), float(draw.integers(0, 2)), taught and draw.random() < 0.8
            )
            for _ in range(size)
        ],
    )


def batch_of(method, group, draw):
    """The batch of a group, and log-probs that the policy has after a while."""
    batch = collate(rows_of(method, [group]), CPU)
    new = batch.old_logprobs_B_T.double() + torch.tensor(draw.normal(0, 0.7, batch.old_logprobs_B_T.shape))
    return batch, new.float().requires_grad_()


def gradient(loss, logprobs):
    return torch.autograd.grad(loss, logprobs)[0].numpy()


def test_sdpo():
    """Loss and gradient of the sampled-token form, rows without a teacher among the others."""
    theirs = released("SDPO", (CORE, ("compute_self_distillation_loss", "agg_loss")), MASKED)
    config = SimpleNamespace(full_logit_distillation=False, alpha=1.0, is_clip=2.0)
    for draw in draws():
        group = group_of(draw)
        if not any(t.taught for t in group.trajectories):
            continue
        method = SDPO({})
        batch, new = batch_of(method, group, draw)
        mine, _ = method.loss(batch, new)
        their_loss, _ = theirs.compute_self_distillation_loss(
            new,
            batch.teacher_logprobs_B_T,
            batch.mask_B_T.float(),
            config,
            old_log_probs=batch.old_logprobs_B_T,
            self_distillation_mask=batch.taught_B.float(),
        )
        assert mine.item() == pytest.approx(their_loss.item(), rel=1e-4, abs=1e-5)
        np.testing.assert_allclose(gradient(mine, new), gradient(their_loss, new), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("beta", [5.0, 0.0])
def test_sdar_is_grpo_plus_its_loss(beta):
    theirs = released(
        "SDAR", ("verl/trainer/ppo/sdar_utils.py", ("compute_sdar_loss",)), (CORE, ("agg_loss",)), MASKED
    )
    for draw in draws():
        size = int(draw.integers(2, 9))
        attempts = [attempt(draw, int(draw.integers(1, 6)), float(draw.integers(0, 2))) for _ in range(size)]
        group = Group(attempts[0].task, attempts)
        settings = {"loss_agg": "token_mean"}
        method = TeacherGated({"mode": "sdar", "gate_beta": beta} | settings)
        batch, new = batch_of(method, group, draw)
        mine, _ = method.loss(batch, new)
        grpo, _ = GRPO(settings).loss(batch, new)
        their_loss, _ = theirs.compute_sdar_loss(
            new, batch.teacher_logprobs_B_T, batch.mask_B_T.float(), gate_beta=beta
        )
        expected = grpo + 0.01 * their_loss
        assert mine.item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-6)
        np.testing.assert_allclose(gradient(mine, new), gradient(expected, new), rtol=1e-4, atol=1e-7)


def rows(group):
    """Arrays (turns, tokens) as the releases have them: a row is a turn."""
    turns = [(g, k, turn) for g, t in enumerate(group.trajectories) for k, turn in enumerate(t.turns)]
    old = torch.tensor([turn.logprobs for _, _, turn in turns])
    teacher = torch.tensor([turn.teacher_logprobs or turn.logprobs for _, _, turn in turns])
    of_attempt = np.array([g for g, _, _ in turns])
    reward = torch.tensor([group.trajectories[g].reward for g, _, _ in turns])
    return turns, old, teacher, of_attempt, reward


def by_turn(found, group):
    """Advantages of the sampled tokens of each turn, (turns, 2), from arrays over all tokens."""
    return np.concatenate(
        [np.asarray(a).reshape(-1, 3)[:, 1:] for a in found]
        if np.ndim(found[0])
        else [np.full((len(t.turns), 2), a) for t, a in zip(group.trajectories, found, strict=True)]
    )


def sparse(reward, scale=1.0):
    """The release's reward of a row: on its last token."""
    return torch.stack([torch.zeros_like(reward), reward * scale], 1)


GRPO_OF = ("compute_grpo_outcome_advantage",)


def test_rlsd():
    theirs = released(
        "SDAR",
        ("verl/trainer/ppo/rlsd_utils.py", ("compute_rlsd_token_advantage",)),
        (CORE, GRPO_OF),
    )
    for draw in draws():
        group = group_of(draw)
        group = replace(group, progress=float(draw.choice([0.0, 0.2, 0.5, 0.7])))
        mix = max(0.0, 0.5 * (1 - group.progress * 150 / 100))
        _, old, teacher, of_attempt, reward = rows(group)
        grpo, _ = theirs.compute_grpo_outcome_advantage(
            sparse(reward),
            torch.ones_like(old),
            np.zeros(len(old)),
            of_attempt,
            compute_mean_std_cross_steps=False,
        )
        expected = theirs.compute_rlsd_token_advantage(grpo, old, teacher, torch.ones_like(old), mix)
        found = by_turn(TeacherGated({"mode": "rlsd"}).advantages(group), group)
        np.testing.assert_allclose(found, expected, atol=1e-4)


def opsd(theirs, group, scale, cross_steps=False):
    """AgentOPSD's advantages, with V_0 as the release computes it from rewards of ``scale``."""
    turns, old, teacher, of_attempt, reward = rows(group)
    ones, uid = torch.ones_like(old), np.zeros(len(old))
    grpo, _ = theirs.compute_grpo_outcome_advantage(
        sparse(reward, scale), ones, uid, of_attempt, compute_mean_std_cross_steps=cross_steps
    )
    v_0 = theirs.compute_group_mean_v0(sparse(reward, scale), ones, uid, of_attempt)
    advantages = theirs.compute_opsd_turn_advantage(
        sparse(reward, scale),
        old,
        teacher,
        ones,
        of_attempt,
        np.array([k for _, k, _ in turns]),
        v0_per_traj=v_0,
        seq_advantage_per_row=grpo[:, 0],
        belief_mult=True,
        mult_lambda=0.5,
        signed=True,
    )
    return advantages.numpy(), v_0


OPSD = (
    (
        "verl/trainer/ppo/opsd_utils.py",
        ("compute_opsd_turn_advantage", "compute_group_mean_v0", "_discounted_cumsum"),
    ),
    (CORE, GRPO_OF),
)


def test_agentopsd_with_rewards_of_one():
    theirs = released("AgentOPSD", *OPSD)
    for draw in draws():
        group = group_of(draw)
        expected, _ = opsd(theirs, group, 1.0)
        found = by_turn(TeacherGated({"mode": "agentopsd"}).advantages(group), group)
        np.testing.assert_allclose(found, expected, atol=2e-3)


def test_agentopsds_belief_begins_at_0_9999_wherever_an_attempt_succeeds():
    """Its environments pay 10 for a success, and V_0 is the group's mean reward, at most 0.9999."""
    theirs = released("AgentOPSD", *OPSD)
    draw = np.random.default_rng(0)
    attempts = [attempt(draw, 3, 1.0), *[attempt(draw, 3, 0.0) for _ in range(7)]]
    group = Group(attempts[0].task, attempts)
    of_ten, v_ten = opsd(theirs, group, 10.0)
    of_one, v_one = opsd(theirs, group, 1.0)
    assert v_one.unique().tolist() == pytest.approx([1 / 8])
    assert v_ten.unique().tolist() == pytest.approx([0.9999])
    assert np.abs(of_ten - of_one).max() > 0.05


def test_the_releases_grpo_counts_long_attempts_more():
    """As called by SDAR's and AgentOPSD's trainers: mean and deviation over turns. One turn and reward 1, three
    and 0: mean 1/4, deviation 1/2, so 3/2 and -1/2. Over attempts: +-sqrt(1/2)."""
    draw = np.random.default_rng(0)
    group = Group(make_trajectory(1).task, [attempt(draw, 1, 1.0), attempt(draw, 3, 0.0)])
    _, old, _, of_attempt, reward = rows(group)
    for release in ("SDAR", "AgentOPSD"):
        theirs = released(release, (CORE, GRPO_OF))
        found, _ = theirs.compute_grpo_outcome_advantage(
            sparse(reward), torch.ones_like(old), np.zeros(4), of_attempt
        )
        assert found[:, 0].tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-4)


@pytest.mark.parametrize("normalisation", ["std", "none"])
@pytest.mark.parametrize("history", [0, 2, 4])
def test_hgpo(history, normalisation):
    theirs = released("SDAR", ("recipe/hgpo/core_hgpo.py", ("hgpo_advantage_estimate", "to_hashable")))
    mode = {"std": "mean_std_norm", "none": "mean_norm"}[normalisation]
    settings = {"history": history, "normalisation": normalisation, "level_weight": "released"}
    for draw in draws():
        attempts = []
        for _ in range(int(draw.integers(2, 9))):
            turns = int(draw.integers(1, 7))
            attempts.append(
                attempt(draw, turns, float(draw.integers(0, 2)), True, draw.choice(list("abc"), turns))
            )
        group = Group(attempts[0].task, attempts)
        turns, old, _, of_attempt, reward = rows(group)
        left = torch.tensor([len(attempts[g].turns) - 1 - k for g, k, _ in turns])
        expected = theirs.hgpo_advantage_estimate(
            sparse(reward),
            reward * 0.95**left,
            torch.ones_like(old),
            np.array([turn.observation for _, _, turn in turns]),
            np.zeros(len(turns)),
            of_attempt,
            history_length=history,
            mode=mode,
        )
        found = by_turn(HGPO(settings).advantages(group), group)
        # Equal returns: the release's rounding error over 1e-6 is a level of its own, ours is 0.
        np.testing.assert_allclose(found, expected, atol=2e-3)


def test_tree_grpo():
    theirs = released("Tree-GRPO", (CORE, GRPO_OF))
    for draw in draws():
        trees = [int(draw.integers(2, 5)) for _ in range(int(draw.integers(1, 4)))]
        leaves = [
            replace(make_trajectory(1, float(draw.choice([0.0, 1.0, 0.3]))), member=m)
            for m, size in enumerate(trees)
            for _ in range(size)
        ]
        tree = np.array([leaf.member for leaf in leaves])
        reward = torch.tensor([leaf.reward for leaf in leaves])
        expected = sum(
            theirs.compute_grpo_outcome_advantage(sparse(reward), torch.ones(len(leaves), 2), index)[0][:, 0]
            for index in (np.zeros(len(leaves)), tree)
        )
        found = TreeGRPO({}).advantages(Group(leaves[0].task, leaves))
        np.testing.assert_allclose(found, expected, atol=1e-2)


def test_erls_distilled_attempts():
    """Its estimator `raft` gives them max(r, 0), without a baseline."""
    theirs = released(
        "experiential_rl", ("verl/verl/trainer/ppo/core_algos.py", ("compute_raft_outcome_advantage",))
    )
    reward = torch.tensor([1.0, 0.0, -0.1, 0.5])
    found, _ = theirs.compute_raft_outcome_advantage(sparse(reward), torch.ones(4, 2))
    assert found[:, 0].tolist() == pytest.approx([1.0, 0.0, 0.0, 0.5])
