"""What is shown of runs under way: numbers worked out by hand, a terminal, none, no colours."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from r3l.config import resolve
from r3l.report import progress as shown
from r3l.workflow.status import State, Status, seconds_left

RUN = resolve("nano", "math", "grpo", 0)


def status(state, steps=0, success=None, seed=0, left=None, error="", episodes_done=0):
    run = RUN.model_copy(update={"seed": seed})
    return Status(run, Path("results"), state, steps, 20, left, error, success, episodes_done, 200)


SEEN = [
    status(State.DONE, 20, 0.4125, seed=0, left=0),
    status(State.RUNNING, 5, 0.3, seed=1, left=30),
    status(State.RUNNING, 20, 0.3, seed=2, left=0, episodes_done=50),
    status(State.FAILED, 7, 0.3, seed=3, error="ConfigError: no\nmore"),
    status(State.MISSING, seed=4),
]


def test_time_left_by_hand():
    """30 s of the running one and 60 s of the next, on one core, then on many."""
    running, evaluating = SEEN[1], SEEN[2]
    waiting = status(State.MISSING, seed=4, left=60)
    assert seconds_left(SEEN[:1], 2) == 0
    assert seconds_left([running, evaluating, waiting], 1) == pytest.approx(90)
    assert seconds_left([running, evaluating, waiting], 100) == pytest.approx(60)  # the longest


def test_failed_and_damaged_runs_take_no_more_time():
    """The workflow starts neither of them again."""
    ended = [status(State.FAILED, 7, seed=3, left=100), status(State.DAMAGED, seed=5)]
    assert seconds_left([SEEN[1], *ended], 1) == 30
    line = shown.summary([SEEN[1], *ended], 5, 30)
    assert line.startswith("0 of 3 runs done, 1 failed, 1 damaged, ") and line.endswith("of training left")
    assert shown.summary([SEEN[0], *ended], 5, 0).endswith("tables and figures are next")


def test_no_time_left_is_shown_while_that_of_a_run_is_unknown():
    """A run of the paper tier takes days; 60 s stood for it."""
    assert seconds_left(SEEN, 1) is None
    assert shown.summary(SEEN, 5, None).endswith("time left not known before each run has trained a step")


def watch(console, *looks):
    """Follow a workflow whose runs are like this, one inspection after the other."""
    first = 0 if console.is_terminal else 1  # what there is before
    seen, at_work = iter(looks), iter([True] * (len(looks) - first - 1) + [False])
    shown.follow(lambda: next(seen), lambda: next(at_work), console, 1)
    return console.file.getvalue()


def test_without_a_terminal_a_run_that_ends_is_one_line(monkeypatch):
    monkeypatch.setattr(shown, "EVERY", 0)
    begun = [SEEN[0], status(State.RUNNING, 19, 0.3, seed=1, left=60)]
    ended = [SEEN[0], status(State.DONE, 20, 0.5, seed=1, left=0)]
    text = watch(Console(file=io.StringIO()), begun, begun, ended, ended)
    assert text == "math grpo seed 1: done, test success 0.500 in 200 episodes\n"
