"""Losses of one micro-batch and their gradients: the released policy losses and KL, ours from trajectories on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from r3l.core.batching import collate, microbatches, rows_of
from r3l.core.method import Method
from r3l.core.policy import FinishReason
from r3l.core.seeds import generator
from r3l.core.trajectory import Group, Objective, Trajectory, TrajectoryKind, Turn
from r3l.original.clones import R3L
from r3l.released.check import Case, Check, Code, Explain, Namespace, Value, unexplained
from r3l.released.ours import TASK, method_of

FOLDER = "trinity/algorithm"
CASES = 120  # micro-batches of each loss; our choice
TOLERANCE = 1e-6  # float32 on both sides
BASE = (
    Code(f"{FOLDER}/key_mapper.py", ("KeyMapper", "ALL_MAPPERS")),
    Code(f"{FOLDER}/utils.py", ("masked_loss", "masked_sum", "masked_mean")),
    Code(f"{FOLDER}/policy_loss_fn/policy_loss_fn.py", ("PolicyLossFn",)),
    Code(f"{FOLDER}/kl_fn/kl_fn.py", ("KLFn", "K2Fn", "K3Fn")),
)


@dataclass(frozen=True)
class Loss:
    """A released policy loss with what its YAML files set, and its KL (audit 4.4)."""

    file: str
    name: str
    arguments: Mapping[str, Any]
    kl: str | None = None
    kl_coef: float = 0.0


OPMD = Loss("opmd_policy_loss.py", "OPMDPolicyLossFn", {"tau": 1.0}, "K2Fn", 0.001)
PPO = Loss("ppo_policy_loss.py", "PPOPolicyLossFn", {"clip_range": 0.2}, "K3Fn", 0.01)
DAPO = replace(PPO, arguments={"clip_range_low": 0.2, "clip_range_high": 0.28})
GSPO = Loss("gspo_policy_loss.py", "GSPOLossFn", {"clip_range_low": 3e-4, "clip_range_high": 4e-4}, "K3Fn", 0.01)
CRITIQUE = Loss("critique_grpo_policy_loss.py", "CritiqueGRPOPolicyLossFn", {"clip_range": 0.2, "gamma": 0.1})
SFT = Loss("sft_loss.py", "SFTLossFn", {})


def batches(method: str, spread: float) -> Iterator[Case]:
    """One to six rows of prompt and response; ``spread``: of log-probs around those of sampling."""
    for k in range(CASES):
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
        yield {"rows": rows}


def theirs(loss: Loss, released: Namespace, case: Case) -> Value:
    """The release's loss with its KL, and the gradient of every response token."""
    rows = case["rows"]
    width = max(len(row["now"]) for row in rows)

    def padded(values: list[list[float]]) -> torch.Tensor:
        return torch.tensor([line + [0.0] * (width - len(line)) for line in values])

    now = padded([row["now"] for row in rows]).requires_grad_()
    mask = padded([[1.0] * len(row["now"]) for row in rows])
    advantages = padded([[row["advantage"]] * len(row["now"]) for row in rows])
    total, _ = released[loss.name](**loss.arguments)(
        logprob=now,
        old_logprob=padded([row["old"] for row in rows]),
        action_mask=mask,
        advantages=advantages,
        is_off_policy=torch.tensor([row["off_policy"] for row in rows]),
    )
    if loss.kl:
        kl = released[loss.kl](kl_coef=loss.kl_coef)
        total = total + kl.calculate_kl_loss(now, padded([row["reference"] for row in rows]), mask)[0]
    return _answer(total, now, [(0, len(row["now"])) for row in rows])


def ours(name: str, case: Case) -> Value:
    """Through rows and micro-batches, as an engine does it."""
    method = method_of(name)
    imitates = name == "raft"
    group = Group(TASK, list(map(_trajectory, case["rows"])), Objective.SFT if imitates else Objective.POLICY)
    rows = [
        replace(row, advantage=line["advantage"])
        for row, line in zip(rows_of(method, [group]), case["rows"], strict=True)
    ]
    (packed,) = microbatches(rows, 10**9, method.loss_agg)
    order = [next(k for k, row in enumerate(rows) if row.trajectory is each.trajectory) for each in packed]
    return _loss_of(method, collate(packed, torch.device("cpu")), [case["rows"][k] for k in order], order)


def _loss_of(method: Method, batch: Any, lines: list[Any], order: list[int]) -> Value:
    spans = [(line["prompt"], line["prompt"] + len(line["now"])) for line in lines]
    now, reference = (torch.zeros_like(batch.mask_B_T) for _ in range(2))
    for k, (line, (start, stop)) in enumerate(zip(lines, spans, strict=True)):
        now[k, start:stop], reference[k, start:stop] = torch.tensor(line["now"]), torch.tensor(line["reference"])
    now.requires_grad_()
    total, _ = method.loss(replace(batch, ref_logprobs_B_T=reference), now)
    answer = _answer(total, now, spans)
    by_case = dict(zip(order, answer["gradient"], strict=True))
    return answer | {"gradient": [by_case[k] for k in range(len(order))]}


def _answer(total: torch.Tensor, now: torch.Tensor, spans: list[tuple[int, int]]) -> dict[str, Any]:
    (gradients,) = torch.autograd.grad(total, now)
    own = [line[start:stop].tolist() for line, (start, stop) in zip(gradients, spans, strict=True)]
    return {"loss": total.item(), "gradient": own}


def _trajectory(row: Mapping[str, Any]) -> Trajectory:
    turn = Turn(
        observation="",
        response="",
        prompt_ids=(0,) * row["prompt"],
        response_ids=(1,) * len(row["old"]),
        logprobs=tuple(row["old"]),
        finish_reason=FinishReason.END,
    )
    kind = TrajectoryKind.REFINED if row["off_policy"] else TrajectoryKind.BASE
    return Trajectory(TASK, 0, kind, [turn])


def kl_by_tokens(case: Case, ours: Value, theirs: Value) -> str:
    """The release averages a KL over tokens, ours as the loss, which for GSPO is by sequence."""
    return "A-8"


def _check(method: str, loss: Loss, spread: float = 0.3, explain: Explain = unexplained) -> Check:
    return Check(
        "losses",
        f"{loss.name} of {method}",
        R3L,
        (*BASE, Code(f"{FOLDER}/policy_loss_fn/{loss.file}", (loss.name,))),
        partial(batches, method, spread),
        partial(theirs, loss),
        partial(ours, method),
        explain,
        TOLERANCE,
    )


CHECKS = (
    *(_check(method, OPMD) for method in ("r3l", "opmd", "r3l_no_reflection")),
    *(_check(method, PPO) for method in ("grpo", "grpo_amplified", "reflect_grpo")),
    _check("dapo", DAPO),
    _check("gspo@kl=none", replace(GSPO, kl=None), 1e-3),
    _check("gspo", GSPO, 1e-3, kl_by_tokens),
    _check("critique_grpo", CRITIQUE),
    _check("raft", SFT),
)
