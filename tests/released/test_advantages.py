"""Advantages of every estimator of both releases, and DAPO's penalty for overlong responses."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
import torch
from r3l.baselines.critique import SecondTry

from r3l.core.seeds import generator
from r3l.core.trajectory import Trajectory, TrajectoryKind
from r3l.original.clones import R3L, RLTF
from r3l.retry import Retry
from tests.released.release import TASK, compare, definitions, group_of, method_of

pytestmark = pytest.mark.released
ADVANTAGES = "trinity/algorithm/advantage_fn"
WORKFLOWS = "trinity/common/workflows/envs/R3L"
REWARDS = (0.0, 0.0, 1.0, 1.0, 0.5, 0.1, -0.1, 1 / 3)  # what environments give, often all or nothing
FLOAT32 = 1e-5


def groups(name):
    """Groups of one to twelve rewards, a third of them without variance or of any number."""
    for k in range(500):
        draw = generator("advantages", name, k)
        size = int(draw.integers(1, 13))
        kind = draw.integers(0, 6)
        drawn = draw.uniform(-0.2, 1.2, size) if kind == 0 else draw.choice(REWARDS, size)
        yield [float(drawn[0])] * size if kind == 1 else [float(r) for r in drawn]


def rounding(rewards, ours, theirs):
    """Where all rewards are equal, the release divides a rounding error of float32 by 1e-6."""
    return "0.7" if len(set(rewards)) == 1 and max(map(abs, theirs)) < 1 else ""


def ours_as(method):
    return lambda rewards: [float(value) for value in method_of(method).step_advantages([group_of(rewards)])[0]]


@pytest.mark.parametrize(
    ("file", "estimator", "method"),
    [
        ("opmd_advantage.py", "OPMDGroupAdvantage", "opmd"),
        ("opmd_advantage.py", "OPMDReweightAdvGroupAdvantage", "r3l"),
        ("grpo_advantage.py", "GRPOGroupedAdvantage", "grpo"),
        ("grpo_advantage.py", "GRPOReweightAdvGroupAdvantage", "grpo_amplified"),
    ],
)
def test_trajectory_advantages_of_r3l(file, estimator, method):
    released = definitions(R3L, (f"{ADVANTAGES}/{file}", (estimator,)))

    def theirs(rewards):  # the release multiplies them with a mask, here of one token
        members = [SimpleNamespace(reward=reward, action_mask=torch.ones(1)) for reward in rewards]
        weighed, _ = released[estimator]().calculate_group_advantage("case", members)
        return [float(member.advantages[0]) for member in weighed]

    compare(groups(estimator), ours_as(method), theirs, rounding, FLOAT32)


@pytest.mark.parametrize(
    ("estimator", "method"),
    [
        ("StepWiseGRPOAdvantageFn", "grpo"),
        ("StepWiseOPMDAdvantageFn", "opmd"),
        ("StepWiseOPMDReweightAdvAdvantageFn", "r3l"),
    ],
)
def test_turn_advantages_of_r3l(estimator, method):
    names = tuple(dict.fromkeys(("StepWiseGRPOAdvantageFn", estimator)))
    released = definitions(R3L, (f"{ADVANTAGES}/multi_step_grpo_advantage.py", names))

    def theirs(rewards):  # a run's last turn has its reward
        last = {str(k): SimpleNamespace(reward=reward) for k, reward in enumerate(rewards)}
        scores, _, skipped = released[estimator]().calculate_last_step_advantage(last)
        return "skipped" if skipped else list(scores.values())

    compare(groups(estimator), ours_as(method), theirs, rounding, FLOAT32)


FIRST, SECOND = (0.0, -0.1), (1.0, 0.9, 0.0, -0.1)  # rewards of wrong first and of second attempts (RLTF audit 1)


def attempts(name):
    """One to twelve rollouts as rewards: one reward where the first attempt was right, else two; often one of two."""
    for k in range(3000):
        draw = generator("rltf_advantages", name, k)
        size, solved = int(draw.integers(1, 13)), draw.uniform()
        right = [bool(draw.uniform() < solved) for _ in range(size)]
        if draw.uniform() < 0.3:
            right = [member != int(draw.integers(size)) for member in range(size)]
        yield [[1.0] if r else [float(draw.choice(FIRST)), float(draw.choice(SECOND))] for r in right]


def second_try(member, first, second=None):
    played = Trajectory(TASK, member, TrajectoryKind.BASE, reward=first)
    if second is None:
        return SecondTry(played)
    kinds = (TrajectoryKind.GUIDED_RETRY, TrajectoryKind.DISTILLED)
    return SecondTry(played, None, Retry(*(Trajectory(TASK, member, kind, reward=second) for kind in kinds)))


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("sd", "rltf_sd"),
        ("sd_first_turn", "rltf_sd@first_turn_baseline=true"),
        ("fm", "rltf_fm"),
        ("sft", "rltf_sft"),
    ],
)
def test_advantages_of_rltf(name, method):
    """By rollout and turn; for self-distillation also those of the rows under the first prompt, of one token each."""
    distills = name.startswith("sd")
    names = ("logger", "compute_advantages", *(["assemble_training_data_batched"] if distills else []))
    released = definitions(RLTF, ("tinker_cookbook/rl/data_processing.py", names))
    released |= {
        "safezip": zip,
        "tinker": SimpleNamespace(ModelInput=SimpleNamespace(from_ints=lambda tokens: tokens)),
        "TokensWithLogprobs": SimpleNamespace,
        "Transition": SimpleNamespace,
        "Trajectory": SimpleNamespace,
        "trajectory_to_data": lambda trajectory, *_, **__: [trajectory.transitions[-1].metrics],
    }
    likely = SimpleNamespace(compute_logprobs=lambda ids: SimpleNamespace(result=lambda: [0.0] * len(ids)))
    prompt, response = SimpleNamespace(to_ints=lambda: [1]), SimpleNamespace(tokens=[2])

    def theirs(rewards):
        trajectories = [
            SimpleNamespace(transitions=[SimpleNamespace(reward=r, metrics=None, ob=prompt, ac=response) for r in row])
            for row in rewards
        ]
        played = [SimpleNamespace(trajectories_G=trajectories)]
        (advantages,) = released["compute_advantages"](played)
        turns = [line[: len(row)] for line, row in zip(advantages.tolist(), rewards, strict=True)]
        if not distills:
            return {"turns": turns}
        assemble = released["assemble_training_data_batched"]
        rows, _ = assemble(played, [advantages], False, "rl_reweight_mask", likely, name == "sd_first_turn")
        return {"turns": turns, "distilled": [row["per_token_advantages"][0] for row in rows if row]}

    def ours(rewards):
        rltf = method_of(method)
        first, *others = rltf.groups(TASK, [second_try(member, *row) for member, row in enumerate(rewards)])
        second = iter(rltf.advantages(others[0]).tolist() if others else [])
        advantages = zip(rltf.advantages(first).tolist(), rewards, strict=True)
        turns = [[a, next(second)] if len(row) > 1 else [a] for a, row in advantages]
        if not distills:
            return {"turns": turns}
        return {"turns": turns, "distilled": rltf.advantages(others[1]).tolist() if others else []}

    logging.disable()
    try:
        compare(attempts(name), ours, theirs, tolerance=FLOAT32)
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("environment", "workflow", "longest", "cache"),  # max_response_length and cache_length of its YAML files
    [("alfworld", "DAPOAlfworldWorkflow", 512, 400), ("dapo", "DAPODapoWorkflow", 4096, 3000)],
)
def test_penalty_of_dapo(environment, workflow, longest, cache):
    method = f"{workflow}.compute_overlong_penalty"
    released = definitions(R3L, (f"{WORKFLOWS}/{environment}/dapo_workflow.py", (method,)))
    limits = SimpleNamespace(
        enable_overlong_penalty=True, penalty_factor=1.0, max_response_length=longest, cache_length=cache
    )
    compare(
        range(longest + 100),
        lambda length: float(method_of("dapo", environment).overlong_penalty(length)),
        lambda length: float(released["compute_overlong_penalty"](limits, range(length))),
        tolerance=1e-12,
    )
