"""Advantages of a group: every estimator of the R3L release, ours as profile ``released_code`` has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace

from r3l.core.seeds import generator
from r3l.original.clones import R3L
from r3l.released.check import Case, Check, Code, Namespace, Value
from r3l.released.ours import group_of, method_of

FOLDER = "trinity/algorithm/advantage_fn"
CASES = 500  # of each estimator; our choice
TOLERANCE = 1e-5  # the release computes in float32
REWARDS = (0.0, 0.0, 1.0, 1.0, 0.5, 0.1, -0.1, 1 / 3)  # what environments give, often all or nothing


def groups(name: str) -> Iterator[Case]:
    """Groups of one to twelve rewards, a third of them without variance or of any number."""
    for k in range(CASES):
        draw = generator("advantages", name, k)
        size = int(draw.integers(1, 13))
        kind = draw.integers(0, 6)
        drawn = draw.uniform(-0.2, 1.2, size) if kind == 0 else draw.choice(REWARDS, size)
        rewards = [float(drawn[0])] * size if kind == 1 else [float(r) for r in drawn]
        yield {"rewards": rewards}


def of_group(estimator: str, released: Namespace, case: Case) -> Value:
    """The release's advantages; it multiplies them with a mask, here of one token."""
    import torch

    members = [SimpleNamespace(reward=reward, action_mask=torch.ones(1)) for reward in case["rewards"]]
    weighed, _ = released[estimator]().calculate_group_advantage("case", members)
    return [float(member.advantages[0]) for member in weighed]


def of_runs(estimator: str, released: Namespace, case: Case) -> Value:
    """The same of turn-level samples: a run's last turn has its reward."""
    last = {str(k): SimpleNamespace(reward=reward) for k, reward in enumerate(case["rewards"])}
    scores, _, skipped = released[estimator]().calculate_last_step_advantage(last)
    return "skipped" if skipped else list(scores.values())


def explain(case: Case, ours: Value, theirs: Value) -> str:
    """Where all rewards are equal, the release divides a rounding error of float32 by 1e-6."""
    return "0.7" if len(set(case["rewards"])) == 1 and max(map(abs, theirs)) < 1 else ""


def ours(method: str, case: Case) -> Value:
    """Of the method under the profile."""
    return [float(value) for value in method_of(method).step_advantages([group_of(case["rewards"])])[0]]


def _check(file: str, estimator: str, method: str, theirs: Callable[..., Value]) -> Check:
    names = (estimator,) if theirs is of_group else tuple(dict.fromkeys(("StepWiseGRPOAdvantageFn", estimator)))
    return Check(
        "advantages",
        estimator,
        R3L,
        (Code(f"{FOLDER}/{file}", names),),
        partial(groups, estimator),
        partial(theirs, estimator),
        partial(ours, method),
        explain,
        TOLERANCE,
    )


CHECKS = (
    _check("opmd_advantage.py", "OPMDGroupAdvantage", "opmd", of_group),
    _check("opmd_advantage.py", "OPMDReweightAdvGroupAdvantage", "r3l", of_group),
    _check("grpo_advantage.py", "GRPOGroupedAdvantage", "grpo", of_group),
    _check("grpo_advantage.py", "GRPOReweightAdvGroupAdvantage", "grpo_amplified", of_group),
    _check("multi_step_grpo_advantage.py", "StepWiseGRPOAdvantageFn", "grpo", of_runs),
    _check("multi_step_grpo_advantage.py", "StepWiseOPMDAdvantageFn", "opmd", of_runs),
    _check("multi_step_grpo_advantage.py", "StepWiseOPMDReweightAdvAdvantageFn", "r3l", of_runs),
)
