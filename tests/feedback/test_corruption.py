"""A share of the critic's reflections that mislead: R3L's and the probe's ``feedback_corruption``."""

import asyncio
from dataclasses import replace

import pytest
from r3l.envs.registry import find_environment
from scripted import Scripted, rollout_context

from r3l.config import resolve
from r3l.config.run import hashed
from r3l.core.errors import ConfigError
from r3l.core.rollout import play
from r3l.core.task import Task
from r3l.processes.pool import EnvironmentPool
from r3l.reflection import critic_verdict

LINES = ["5 + 3 = 8\n", "8 + 2 = 11\n", "\\boxed{11}"]


def problem(name, *operations):
    """A problem that starts at 5; ``operations``: verb and number."""
    left = 5 + sum({"buys": n, "gives": -n}[verb] for verb, n in operations)
    payload = {"problem": name, "answer": str(left), "start": 5, "operations": [list(o) for o in operations]}
    return Task(name, "math", "train", "easy", payload)


OURS = problem("ours", ("buys", 3), ("buys", 2))
OTHER = problem("other", ("buys", 3), ("gives", 1))
UNLIKE = problem("unlike", ("gives", 4), ("gives", 1))


def verdict(corruption, tasks=(OURS, OTHER), lines=LINES, address=("t",)):
    """The critic's verdict on an attempt at OURS, and the counters."""
    pool = EnvironmentPool(find_environment("math"), 0, {"turns": "segments"})
    ctx = rollout_context(Scripted(list(lines)), pool, max_turns=6, env="math")
    ctx.dialogue = find_environment("math").dialogue("compact", 6, {"turns": "segments"})
    ctx.tasks, ctx.address = tasks, address

    async def judged():
        return await critic_verdict(ctx, await play(ctx, OURS, 0), corruption)

    found = asyncio.run(judged())
    pool.close()
    return found, ctx.counters


def test_a_misleading_verdict_has_the_pivot_and_hint_of_another_task():
    """Line 1 is a wrong sum here; in the other problem it should have been a difference."""
    right, counters = verdict(0)
    assert (right.turn, right.cause, right.suggestion) == (1, "wrong result", "compute 8 + 2")
    assert counters["reflection/corrupted"] == 0
    wrong, counters = verdict(1)
    assert (wrong.turn, wrong.cause, wrong.suggestion) == (1, "misread: gives 1", "compute 8 - 1")
    assert (wrong.outcome, wrong.summary) == (right.outcome, right.summary)  # what the prompt shows anyway
    assert counters["reflection/corrupted"] == 1


def test_the_pivot_moves_with_the_hint():
    wrong, _ = verdict(1, (OURS, UNLIKE))
    assert (wrong.turn, wrong.suggestion) == (0, "compute 5 - 4")


def test_a_share_is_corrupted_and_the_same_one_each_time():
    """200 addresses: about a third of the verdicts mislead, and those at 1/3 also do at 2/3."""

    def misled(corruption):
        return [verdict(corruption, address=("t", k))[0].suggestion == "compute 8 - 1" for k in range(200)]

    third, two_thirds = misled(1 / 3), misled(2 / 3)
    assert abs(sum(third) / 200 - 1 / 3) < 0.1 and abs(sum(two_thirds) / 200 - 2 / 3) < 0.1
    assert all(more for less, more in zip(third, two_thirds, strict=True) if less)
    assert third == misled(1 / 3)


def test_a_success_and_a_lonely_task_keep_their_verdict():
    solved, counters = verdict(1, lines=["5 + 3 = 8\n", "8 + 2 = 10\n", "\\boxed{10}"])
    assert solved.turn is None and not counters["reflection/corrupted"]
    alone, counters = verdict(1, (OURS, replace(OURS, occurrence=1)))  # no other task
    assert alone.suggestion == "compute 8 + 2" and not counters["reflection/corrupted"]


def test_only_the_critic_can_be_corrupted():
    with pytest.raises(
        ConfigError, match="'feedback_corruption' has value 0.5.*set feedback=environment too"
    ):
        resolve("nano", "math", "r3l@feedback_corruption=0.5", 0)
    run = resolve("nano", "math", "r3l@feedback=environment,feedback_corruption=0.5", 0)
    assert run.method_settings["feedback_corruption"] == 0.5


def test_stored_runs_keep_their_fingerprint():
    """The setting is newer than stored runs: at 0 it is left out, else it counts."""
    plain, corrupted = (
        resolve("nano", "math", f"r3l@feedback=environment{more}", 0)
        for more in ("", ",feedback_corruption=0.5")
    )
    assert "feedback_corruption" not in hashed(plain.model_dump(mode="json"))["method_settings"]
    assert plain.fingerprint() != corrupted.fingerprint()
