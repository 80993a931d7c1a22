"""RLTF's advantages: of first and second attempts, and of the second ones under the first prompt."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

from r3l.baselines.critique import SecondTry
from r3l.baselines.rltf import RLTF
from r3l.core.seeds import generator
from r3l.core.trajectory import Trajectory, TrajectoryKind
from r3l.original.clones import RLTF as RELEASE
from r3l.released.check import Case, Check, Code, Namespace, Value
from r3l.released.ours import TASK, method_of
from r3l.retry import Retry

FILE = "tinker_cookbook/rl/data_processing.py"
CASES = 3000  # our choice
TOLERANCE = 1e-5  # the release computes in float32
FIRST, SECOND = (0.0, -0.1), (1.0, 0.9, 0.0, -0.1)  # rewards of wrong first and of second attempts (RLTF audit 1)
METHODS = {"sd": "rltf_sd", "sd_first_turn": "rltf_sd@first_turn_baseline=true", "fm": "rltf_fm", "sft": "rltf_sft"}


def groups(name: str) -> Iterator[Case]:
    """One to twelve rollouts as rewards: one reward where the first attempt was right, else two; often one of two."""
    for k in range(CASES):
        draw = generator("rltf_advantages", name, k)
        size, solved = int(draw.integers(1, 13)), draw.uniform()
        right = [bool(draw.uniform() < solved) for _ in range(size)]
        if draw.uniform() < 0.3:
            right = [member != int(draw.integers(size)) for member in range(size)]
        yield {"rewards": [[1.0] if r else [float(draw.choice(FIRST)), float(draw.choice(SECOND))] for r in right]}


def theirs(name: str, released: Namespace, case: Case) -> Value:
    """By rollout and turn; for ``sd`` also those of the rows under the first prompt, of one token each."""
    logging.disable()
    prompt, response = SimpleNamespace(to_ints=lambda: [1]), SimpleNamespace(tokens=[2])
    trajectories = [
        SimpleNamespace(
            transitions=[SimpleNamespace(reward=reward, metrics=None, ob=prompt, ac=response) for reward in rewards]
        )
        for rewards in case["rewards"]
    ]
    played = [SimpleNamespace(trajectories_G=trajectories)]
    (advantages,) = released["compute_advantages"](played)
    turns = [row[: len(rewards)] for row, rewards in zip(advantages.tolist(), case["rewards"], strict=True)]
    if not name.startswith("sd"):
        return {"turns": turns}
    released |= {
        "safezip": zip,
        "tinker": SimpleNamespace(ModelInput=SimpleNamespace(from_ints=lambda tokens: tokens)),
        "TokensWithLogprobs": SimpleNamespace,
        "Transition": SimpleNamespace,
        "Trajectory": SimpleNamespace,
        "trajectory_to_data": lambda trajectory, *_, **__: [trajectory.transitions[-1].metrics],
    }
    likely = SimpleNamespace(compute_logprobs=lambda ids: SimpleNamespace(result=lambda: [0.0] * len(ids)))
    rows, _ = released["assemble_training_data_batched"](
        played, [advantages], False, "rl_reweight_mask", likely, name == "sd_first_turn"
    )
    return {"turns": turns, "distilled": [row["per_token_advantages"][0] for row in rows if row]}


def ours(name: str, case: Case) -> Value:
    """The same of our groups."""
    method = method_of(METHODS[name])
    assert isinstance(method, RLTF)
    first, *others = method.groups(TASK, [_tries(member, *rewards) for member, rewards in enumerate(case["rewards"])])
    second = method.advantages(others[0]).tolist() if others else []
    left = iter(second)
    advantages = zip(method.advantages(first).tolist(), case["rewards"], strict=True)
    turns = [[a, next(left)] if len(rewards) > 1 else [a] for a, rewards in advantages]
    if not name.startswith("sd"):
        return {"turns": turns}
    return {"turns": turns, "distilled": method.advantages(others[1]).tolist() if others else []}


def _tries(member: int, first: float, second: float | None = None) -> SecondTry:
    played = Trajectory(TASK, member, TrajectoryKind.BASE, reward=first)
    if second is None:
        return SecondTry(played)
    guided, distilled = (
        Trajectory(TASK, member, kind, reward=second)
        for kind in (TrajectoryKind.GUIDED_RETRY, TrajectoryKind.DISTILLED)
    )
    return SecondTry(played, None, Retry(guided, distilled))


def _check(name: str) -> Check:
    names = ("logger", "compute_advantages", *(["assemble_training_data_batched"] if name.startswith("sd") else []))
    cases, released, own = partial(groups, name), partial(theirs, name), partial(ours, name)
    return Check("rltf_advantages", name, RELEASE, (Code(FILE, names),), cases, released, own, tolerance=TOLERANCE)


CHECKS = tuple(map(_check, METHODS))
