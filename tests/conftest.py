"""Shared pieces: hand-made trajectories and a tiny untrained nano model."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings
from released_words import clone  # noqa: F401, a fixture

from r3l.config import Run
from r3l.core.environment import StopReason
from r3l.core.policy import FinishReason
from r3l.core.task import Task
from r3l.core.trajectory import Trajectory, TrajectoryKind, Turn
from r3l.processes import cores
from r3l.processes.pool import EnvironmentPool
from r3l.runs import session

# An example takes longer on a busy machine; every run draws others.
settings.register_profile("r3l", max_examples=30, deadline=None)
settings.load_profile("r3l")

# Java's second compiler takes more seconds than it saves in a few episodes.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Tests keep all cores busy, and compare what commands print.
cores.STATISTICS = Path("of no process")

# A worker process takes a second to start: engines are in the test's own, unless it asks for workers.
Run.model_fields["workers"].default = 0
Run.model_rebuild(force=True)

TASK = Task("t0", "toy", "test")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What it leaves, modules and tests, stays to the end: no search for garbage goes through it, then or
    later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def make_turn(k: int, tokens: int = 2) -> Turn:
    """Turn k: one prompt token (100+k), then ``tokens`` response tokens (10k, 10k+1, ...)."""
    return Turn(
        observation=f"see {k}",
        response=f"do {k}",
        prompt_ids=(100 + k,),
        response_ids=tuple(range(10 * k, 10 * k + tokens)),
        logprobs=(-0.5,) * tokens,
        finish_reason=FinishReason.END,
        action=f"act {k}",
    )


def make_trajectory(turns: int, reward: float = 0.0, kind: str = "base", first: int = 0) -> Trajectory:
    """A trajectory of ``turns`` such turns, of which those from ``first`` on train."""
    return Trajectory(
        TASK,
        0,
        TrajectoryKind(kind),
        [make_turn(k) for k in range(turns)],
        reward,
        reward >= 1,
        StopReason.DONE,
        trainable=range(first, turns),
    )


@pytest.fixture
def no_workers(monkeypatch):
    """Environments in this process in place of the four of tier smol, each of which takes a second to
    start."""
    monkeypatch.setattr(
        session, "EnvironmentPool", lambda package, _, options: EnvironmentPool(package, 0, options)
    )


@pytest.fixture(scope="session")
def nano():
    """(model, tokenizer): the nano architecture with two layers of random weights, a tokenizer of a few
    sentences."""
    from r3l.sft.nano_model import build_model, build_tokenizer

    tokenizer = build_tokenizer(["You arrive at desk 1. On the desk 1, you see a mug 1, and a pen 2."] * 3)
    return build_model(tokenizer, seed=0, layers=2).eval(), tokenizer
