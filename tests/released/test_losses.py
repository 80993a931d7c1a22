"""Losses of one micro-batch and their gradients: the released policy losses and KL, ours from trajectories on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from r3l.core.batching import collate, microbatches, rows_of
from r3l.core.policy import FinishReason
from r3l.core.seeds import generator
from r3l.core.trajectory import Group, Objective, Trajectory, TrajectoryKind, Turn
from r3l.original.clones import R3L
from tests.released.release import TASK, compare, definitions, method_of

FOLDER = "trinity/algorithm"
BASE = (
    (f"{FOLDER}/key_mapper.py", ("KeyMapper", "ALL_MAPPERS")),
    (f"{FOLDER}/utils.py", ("masked_loss", "masked_sum", "masked_mean")),
    (f"{FOLDER}/policy_loss_fn/policy_loss_fn.py", ("PolicyLossFn",)),
    (f"{FOLDER}/kl_fn/kl_fn.py", ("KLFn", "K2Fn", "K3Fn")),
)


@dataclass(frozen=True)
class Loss:
    """A released policy loss with what its YAML files set, and its KL (audit 4.4)."""

    file: str
    name: str
    arguments: dict
    kl: str | None = None
    kl_coef: float = 0.0


OPMD = Loss("opmd_policy_loss.py", "OPMDPolicyLossFn", {"tau": 1.0}, "K2Fn", 0.001)
PPO = Loss("ppo_policy_loss.py", "PPOPolicyLossFn", {"clip_range": 0.2}, "K3Fn", 0.01)
DAPO = replace(PPO, arguments={"clip_range_low": 0.2, "clip_range_high": 0.28})
GSPO = Loss("gspo_policy_loss.py", "GSPOLossFn", {"clip_range_low": 3e-4, "clip_range_high": 4e-4}, "K3Fn", 0.01)
CRITIQUE = Loss("critique_grpo_policy_loss.py", "CritiqueGRPOPolicyLossFn", {"clip_range": 0.2, "gamma": 0.1})
SFT = Loss("sft_loss.py", "SFTLossFn", {})


def batches(method, spread):
    """One to six rows of prompt and response; ``spread``: of log-probs around those of sampling."""
    for k in range(120):
        draw = generator("losses", method, k)
        rows = []
        for _ in range(int(draw.integers(1, 7))):
            length = int(draw.integers(1, 12))
            old = -draw.exponential(1.5, length)
            rows.append(
                {
                    "prompt": int(draw.integers(1, 6)),
                    "old": old.tolist(),
                    "now": np.minimum(old + draw.normal(0, spread, length), -1e-4).tolist(),
                    "reference": np.minimum(old + draw.normal(0, 0.5, length), -1e-4).tolist(),
                    "advantage": float(draw.choice([draw.normal(), 1.0, 0.0])),
                    "off_policy": bool(draw.random() < 0.3),
                }
            )
        yield rows


def theirs(loss, released, rows):
    """The release's loss with its KL, and the gradient of every response token."""
    width = max(len(row["now"]) for row in rows)

    def padded(values):
        return torch.tensor([line + [0.0] * (width - len(line)) for line in values])

    now = padded([row["now"] for row in rows]).requires_grad_()
    mask = padded([[1.0] * len(row["now"]) for row in rows])
    total, _ = released[loss.name](**loss.arguments)(
        logprob=now,
        old_logprob=padded([row["old"] for row in rows]),
        action_mask=mask,
        advantages=padded([[row["advantage"]] * len(row["now"]) for row in rows]),
        is_off_policy=torch.tensor([row["off_policy"] for row in rows]),
    )
    if loss.kl:
        kl = released[loss.kl](kl_coef=loss.kl_coef)
        total = total + kl.calculate_kl_loss(now, padded([row["reference"] for row in rows]), mask)[0]
    return with_gradient(total, now, [(0, len(row["now"])) for row in rows])


def ours(name, rows):
    """Through rows and micro-batches, as an engine does it; gradients in the order of ``rows``."""
    method = method_of(name)
    objective = Objective.SFT if name == "raft" else Objective.POLICY
    group = Group(TASK, list(map(trajectory, rows)), objective)
    packed = [
        replace(row, advantage=line["advantage"]) for row, line in zip(rows_of(method, [group]), rows, strict=True)
    ]
    (micro,) = microbatches(packed, 10**9, method.loss_agg)
    order = [next(k for k, row in enumerate(packed) if row.trajectory is each.trajectory) for each in micro]
    batch, lines = collate(micro, torch.device("cpu")), [rows[k] for k in order]
    spans = [(line["prompt"], line["prompt"] + len(line["now"])) for line in lines]
    now, reference = (torch.zeros_like(batch.mask_B_T) for _ in range(2))
    for k, (line, (start, stop)) in enumerate(zip(lines, spans, strict=True)):
        now[k, start:stop], reference[k, start:stop] = torch.tensor(line["now"]), torch.tensor(line["reference"])
    now.requires_grad_()
    total, _ = method.loss(replace(batch, ref_logprobs_B_T=reference), now)
    found = with_gradient(total, now, spans)
    by_row = dict(zip(order, found["gradient"], strict=True))
    return found | {"gradient": [by_row[k] for k in range(len(order))]}


def with_gradient(total, now, spans):
    (gradients,) = torch.autograd.grad(total, now)
    own = [line[start:stop].tolist() for line, (start, stop) in zip(gradients, spans, strict=True)]
    return {"loss": total.item(), "gradient": own}


def trajectory(row):
    turn = Turn(
        observation="",
        response="",
        prompt_ids=(0,) * row["prompt"],
        response_ids=(1,) * len(row["old"]),
        logprobs=tuple(row["old"]),
        finish_reason=FinishReason.END,
    )
    return Trajectory(TASK, 0, TrajectoryKind.REFINED if row["off_policy"] else TrajectoryKind.BASE, [turn])


@pytest.mark.released
@pytest.mark.parametrize(
    ("method", "loss", "spread"),
    [
        *((method, OPMD, 0.3) for method in ("r3l", "opmd", "r3l_no_reflection")),
        *((method, PPO, 0.3) for method in ("grpo", "grpo_amplified", "reflect_grpo")),
        ("dapo", DAPO, 0.3),
        ("gspo@kl=none", replace(GSPO, kl=None), 1e-3),
        ("gspo", GSPO, 1e-3),
        ("critique_grpo", CRITIQUE, 0.3),
        ("raft", SFT, 0.3),
    ],
)
def test_loss_and_gradient(method, loss, spread):
    """A-8: the release averages a KL over tokens, ours as the loss, which for GSPO is by sequence."""
    released = definitions(R3L, *BASE, (f"{FOLDER}/policy_loss_fn/{loss.file}", (loss.name,)))

    def reason(case, ours, theirs):
        return "A-8" if method == "gspo" else ""

    cases = batches(method, spread)
    compare(cases, lambda rows: ours(method, rows), lambda rows: theirs(loss, released, rows), reason, 1e-6)
