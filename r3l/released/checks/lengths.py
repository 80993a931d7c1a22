"""DAPO's penalty for overlong responses, in an agentic environment and in mathematics."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

from r3l.baselines.dapo import DAPO
from r3l.original.clones import R3L
from r3l.released.check import Case, Check, Code, Namespace, Value
from r3l.released.ours import method_of

FOLDER = "trinity/common/workflows/envs/R3L"
LIMITS = {"alfworld": (512, 400), "dapo": (4096, 3000)}  # max_response_length and cache_length of its YAML files
BEYOND = 100  # tokens past the limit; our choice
TOLERANCE = 1e-12


def lengths(environment: str) -> Iterator[Case]:
    """Every length up to the limit, and some beyond."""
    return ({"length": length} for length in range(LIMITS[environment][0] + BEYOND))


def theirs(environment: str, released: Namespace, case: Case) -> Value:
    """The method on a workflow that has the numbers alone."""
    longest, cache = LIMITS[environment]
    workflow = SimpleNamespace(
        enable_overlong_penalty=True, penalty_factor=1.0, max_response_length=longest, cache_length=cache
    )
    return float(released["compute_overlong_penalty"](workflow, range(case["length"])))


def ours(environment: str, case: Case) -> Value:
    """Of DAPO as the profile has it there."""
    method = method_of("dapo", environment)
    assert isinstance(method, DAPO)
    return float(method.overlong_penalty(case["length"]))


def _check(environment: str, workflow: str) -> Check:
    code = (Code(f"{FOLDER}/{environment}/dapo_workflow.py", (f"{workflow}.compute_overlong_penalty",)),)
    cases, released, own = partial(lengths, environment), partial(theirs, environment), partial(ours, environment)
    return Check("lengths", environment, R3L, code, cases, released, own, tolerance=TOLERANCE)


CHECKS = (_check("alfworld", "DAPOAlfworldWorkflow"), _check("dapo", "DAPODapoWorkflow"))
