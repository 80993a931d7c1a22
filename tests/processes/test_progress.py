"""Long work shows how far it is: plain lines where stderr is no terminal, a bar where it is one."""

import re

import pytest

from r3l.processes.progress import clock, one_progress, progress, tracked


def test_lines_are_spread_evenly_and_carry_the_note(capsys, monkeypatch):
    monkeypatch.setattr("r3l.processes.progress.time.monotonic", lambda: 1.0)
    with progress("playing", 20, lines=4) as advance:
        for k in range(20):
            advance(f"{k} solved")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        *(f"playing: {k}/20  {k - 1} solved  0 s left" for k in (5, 10, 15)),
        "playing: 20/20  19 solved",
    ]


def test_time_left_is_that_of_the_parts_done_here(capsys, monkeypatch):
    seconds = iter([100.0, 160.0])  # three parts in a minute
    monkeypatch.setattr("r3l.processes.progress.time.monotonic", lambda: next(seconds, 160.0))
    with progress("playing", 20, done=5, lines=5) as advance:
        advance("", count=3)
    assert capsys.readouterr().err.splitlines() == ["playing: 8/20  4 min left"]


def test_several_parts_move_one_progress(capsys, monkeypatch):
    """Ten of 20 parts are left after 4 that were finished before and 6 in a minute: 100 s."""
    seconds = iter([100.0])
    monkeypatch.setattr("r3l.processes.progress.time.monotonic", lambda: next(seconds, 160.0))
    with one_progress("2 evaluations", 20):
        with progress("alfworld", 10, done=4) as advance:
            advance("2 solved", count=6)
        with progress("math", 10) as advance:
            advance(count=10)
    with progress("alone", 1) as advance:
        advance()
    assert capsys.readouterr().err.splitlines() == [
        "2 evaluations: 10/20  alfworld: 2 solved  2 min left",
        "2 evaluations: 20/20  math",
        "alone: 1/1",
    ]


def test_a_long_name_leaves_room_for_the_counts_on_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "80")
    name = "gsm8k zero_shot@protocol=r3l,evaluation.tasks=4,sampling.max_tokens=64 seed 0, test episodes"
    with progress(name, 200) as advance:
        advance("44 solved", count=49)
    (last,) = re.findall(r"gsm8k[^\r\n]*49/200[^\r\n]*", capsys.readouterr().err)[-1:]
    assert "zero_shot@protocol" in last and "44 solved" in last and "seed 0" not in last


def test_an_iterable_is_followed_and_may_have_no_length(capsys):
    assert list(tracked(range(2), "proving")) == [0, 1]
    assert list(tracked(iter("abc"), "letters", 3)) == ["a", "b", "c"]
    assert capsys.readouterr().err.splitlines()[-1] == "letters: 3/3"


@pytest.mark.parametrize("total", [0, 3])
def test_no_work_is_no_line(capsys, total):
    with progress("nothing", total):
        pass
    assert capsys.readouterr().err == ""


def test_items_without_a_length_need_a_total(capsys):
    assert list(tracked((n for n in (1, 2)), "loading", total=2)) == [1, 2]
    with pytest.raises(TypeError, match="give total"):
        list(tracked((n for n in (1, 2)), "loading"))


@pytest.mark.parametrize(
    ("seconds", "text"), [(59.4, "59 s"), (59.7, "1 min"), (3590, "1 h 0 min"), (11_100, "3 h 5 min")]
)
def test_a_duration_in_words(seconds, text):
    assert clock(seconds) == text
