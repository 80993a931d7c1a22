"""Episodes of other programs: tasks played equally often, and outcomes that depend on more than the task."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from program import run

from r3l.config import environment_of, resolve
from r3l.core.errors import DataError
from r3l.evaluation.episode_files import PlayedEpisode, check_episodes, read_episodes
from r3l.evaluation.episodes import play_all
from r3l.files.json_files import read_jsonl
from r3l.files.paths import KEPT
from r3l.local.session import open_session


def episodes(*rows):
    return [PlayedEpisode(task=task, success=success, **more) for task, success, more in rows]


def test_missing_unknown_and_repeated_tasks_by_hand():
    # a once, b three times, c never, and x, which the set of a, b, c and d does not have; d once.
    played = episodes(
        ("a", True, {}),
        ("b", True, {}),
        ("b", False, {}),
        ("b", False, {}),
        ("d", False, {}),
        ("x", True, {}),
    )
    found = check_episodes(played, ["a", "b", "c", "d"])
    assert (found.missing, found.unknown, found.repeated) == (["c"], ["x"], ["b"]) and found.wrong
    assert found.fewer == []
    assert found.plays == {1: 2, 3: 1}
    assert found.over_episodes == pytest.approx(3 / 6)
    assert found.success.mean == pytest.approx((1 + 1 / 3 + 0) / 3)
    assert found.bounds == pytest.approx(((4 / 3) / 4, (4 / 3 + 1) / 4))  # c failed, c succeeded
    text = "\n".join(found.lines())
    assert text.startswith("6 episodes of 4 tasks of the task set: 2 tasks once, 1 task 3 times")
    assert "(p = 0.663; 1 task with both outcomes)" in text
    assert (
        "never played: c" in text and "not in the task set: x" in text and "more often than most: b" in text
    )


@pytest.mark.parametrize(
    ("times", "fewer", "repeated"),
    [
        ({"a": 4, "b": 4, "c": 1}, ["c"], []),
        ({"a": 1, "b": 2}, ["a"], []),  # as many tasks once as twice: twice is meant
        ({"b": 2, "a": 1}, ["a"], []),  # in any order of the file
        ({"a": 1, "b": 2, "c": 2, "d": 3}, ["a"], ["d"]),
        ({"a": 2, "b": 2}, [], []),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_tasks_that_were_not_played_equally_often_are_named(times, fewer, repeated, named):
    played = episodes(*((task, False, {}) for task, count in times.items() for _ in range(count)))
    found = check_episodes(played, sorted(times) if named else None)
    assert (found.fewer, found.repeated, found.wrong) == (fewer, repeated, bool(fewer or repeated))
    assert ("played less often than most: a" in "\n".join(found.lines())) == ("a" in fewer)


def test_a_path_names_the_task_whose_id_it_holds():
    ids = ["valid_seen/mug-1/trial_1", "valid_seen/mug-1/trial_2"]
    played = episodes(
        ("/data/json_2.1.1/valid_seen/mug-1/trial_2/game.tw-pddl", True, {}),
        ("valid_seen/mug-1/trial_1", False, {}),
    )
    found = check_episodes(played, ids)
    assert not found.wrong and found.success.mean == 0.5
    assert check_episodes(episodes((ids[0], True, {}), ("valid_seen/mug-1", True, {})), ids).unknown == [
        "valid_seen/mug-1"
    ]


def test_outcomes_at_the_turn_limit_are_counted():
    rows = [("a", True, 5), ("b", False, 5), ("c", True, 3), ("d", True, 7)]
    played = episodes(*((task, success, {"turns": turns}) for task, success, turns in rows))
    assert check_episodes(played, max_turns=5).at_limit == (2, 1, 1)
    assert check_episodes(played).at_limit is None


def test_dependence_on_the_batch_is_found_and_chance_is_not():
    # 12 tasks, each once in batch 1 and once in batch 2; batch 2 solves all of them, batch 1 none. Permuting the
    # two outcomes of each task repeats the observed split with probability 2 / 2**12 = 0.0005.
    tasks = [f"task-{k}" for k in range(12)]
    played = episodes(
        *((task, batch == "2", {"conditions": {"batch": batch}}) for batch in "12" for task in tasks)
    )
    found = {one.on: one for one in check_episodes(played).dependence}
    assert found["batch"].p < 0.003 and found["batch"].tasks == 12
    # Here either batch solves half of the tasks, and never the same ones: nothing depends on the batch.
    even = episodes(
        *(
            (task, (k % 2 == 0) == (batch == "1"), {"conditions": {"batch": batch}})
            for batch in "12"
            for k, task in enumerate(tasks)
        )
    )
    assert {one.on: one.p for one in check_episodes(even).dependence}["batch"] == 1.0


def test_a_drift_over_the_file_is_found():
    # Four passes over ten tasks: the first two fail, the last two succeed.
    played = episodes(*((f"t{k}", turn >= 2, {}) for turn in range(4) for k in range(10)))
    (found,) = check_episodes(played).dependence
    assert found.on == "position in the file" and found.p < 0.001


def test_without_repeats_it_is_said_that_order_cannot_be_tested():
    found = check_episodes(episodes(("a", True, {}), ("b", False, {})))
    assert not found.dependence and "cannot be tested" in found.lines()[-1]


@pytest.mark.parametrize("task_ids", [None, [], ["a"]])
def test_no_episodes_are_refused(task_ids):
    with pytest.raises(DataError, match="no episodes"):
        check_episodes([], task_ids)


def test_a_task_set_without_tasks_is_refused():
    with pytest.raises(DataError, match="no tasks"):
        check_episodes(episodes(("a", True, {})), [])


def test_columns_of_other_names_in_csv_and_jsonl(tmp_path):
    rows = [
        {"gamefile": "a", "won": "1.0", "steps": "3", "worker": "0"},
        {"gamefile": "b", "won": "0.0", "steps": "", "worker": "1"},
    ]
    with open(tmp_path / "e.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    Path(tmp_path / "e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = {"task": "gamefile", "success": "won", "turns": "steps"}
    for name in ("e.csv", "e.jsonl"):
        first, second = read_episodes(tmp_path / name, named)
        assert (first.task, first.success, first.turns, first.conditions) == ("a", True, 3, {"worker": "0"})
        assert (second.success, second.turns) == (False, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no episodes"),
        ('{"task": "a"}\n', "line 1: column 'success' has value None"),
        (
            '{"task": "a", "success": true}\n{"task": "b", "success": 0.5}\n',
            "line 2: column 'success' has value 0.5",
        ),
        ('{"task": "a", "success": true, "turns": -1}\n', "line 1: column 'turns' has value -1"),
        ('{"task": "", "success": true}\n', "line 1: column 'task' has value ''"),
        ('[1]\n{"task": "a", "success": true}\n', "line 1"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, text, said):
    Path(tmp_path / "e.jsonl").write_text(text)
    with pytest.raises(DataError) as error:
        read_episodes(tmp_path / "e.jsonl")
    assert said in str(error.value) and "e.jsonl" in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no episodes"),
        ("task,success\n", "has no episodes"),
        ("task,success\n\n\na,maybe\n", "line 4: column 'success' has value 'maybe'"),
        ("task,success\na,1\nb,1,extra\n", "line 3: not 2 columns"),
        ("task,success\na,1\nb\n", "line 3: not 2 columns"),
        ('task,success,turns\na,"1,2\nb,1,2\n', "line 3: not 3 columns"),  # a quote is not closed
        ("task,success,success\na,1,0\n", "line 1: column 'success' is there twice; rename or remove one"),
    ],
)
def test_a_damaged_line_of_a_csv_file_is_named(tmp_path, text, said):
    (tmp_path / "e.csv").write_text(text)
    with pytest.raises(DataError) as error:
        read_episodes(tmp_path / "e.csv")
    assert said in str(error.value) and "e.csv" in str(error.value)


def test_what_a_spreadsheet_writes_is_read(tmp_path):
    """Excel begins UTF-8 with a byte order mark, and separates empty columns behind the last one."""
    (tmp_path / "e.csv").write_text("\ufefftask,success,,\r\na,1,,\r\n", encoding="utf-8")
    (tmp_path / "e.jsonl").write_text('\ufeff{"task": "a", "success": true}\n', encoding="utf-8")
    for name in ("e.csv", "e.jsonl"):
        (episode,) = read_episodes(tmp_path / name)
        assert (episode.task, episode.success) == ("a", True)


def test_a_csv_file_may_hold_transcripts_of_any_length(tmp_path):
    (tmp_path / "e.csv").write_text(f"task,success,transcript\na,1,{'x' * 200_000}\n")
    (episode,) = read_episodes(tmp_path / "e.csv")
    assert (episode.task, episode.success) == ("a", True)


def test_the_command_passes_a_stored_evaluation_and_refuses_it_without_a_task(monkeypatch, capsys, tmp_path):
    stored = KEPT / "nano/webshop/webshop-1.5m/grpo/seed0/episodes.jsonl"
    lines = [json.dumps(row) for row in read_jsonl(stored)]
    words = ("--env", "webshop", "--task-set", "nano/test", "--max-turns", "10")
    file = tmp_path / "ours.jsonl"
    file.write_text("\n".join(lines) + "\n")
    code, out, _ = run(monkeypatch, capsys, "verify", "episodes", file, *words)
    tasks = len(environment_of("webshop").tasks("nano/test"))
    assert code == 0 and f"{tasks} episodes of {tasks} tasks of the task set: {tasks} tasks once" in out
    # The third task is played twice, the fourth never: as many episodes, another score.
    file.write_text("\n".join([*lines[:3], lines[2], *lines[4:]]) + "\n")
    code, out, error = run(monkeypatch, capsys, "verify", "episodes", file, *words)
    assert code == 2 and "not played equally often" in error
    assert json.loads(lines[3])["task"] in out and "never played" in out
    code, _, error = run(monkeypatch, capsys, "verify", "episodes", file, "--env", "webshop")
    assert code == 2 and "add the other one" in error
    code, _, error = run(monkeypatch, capsys, "verify", "episodes", tmp_path)
    assert code == 2 and "is not a file" in error
    code, _, error = run(monkeypatch, capsys, "verify", "episodes", file, "--column", "gamefile")
    assert code == 2 and "NAME=COLUMN" in error


def played(folder, order, batch, workers):
    """Episodes of the base checkpoint at ``order`` of the first twelve tasks of WebShop, by task."""
    settings = [f"evaluation.batch={batch}", f"workers={workers}", "evaluation.episodes_per_task=2"]
    run_ = resolve("nano", "webshop", "zero_shot", 0, overrides=settings)
    with open_session(run_, run_.model) as session:
        tasks = session.package.tasks("nano/test")[:12]
        rows = play_all(session, [tasks[k] for k in order], folder / "played.jsonl", {}).episodes
    return {(row["task"], row["member"]): row for row in rows}


def test_one_model_in_three_orders_batches_and_worker_numbers_plays_the_same_episodes(tmp_path):
    forward = list(range(12))
    conditions = [(forward, 24, 0), (forward[::-1], 5, 1), (forward[::2] + forward[1::2], 1, 2)]
    first, *others = (
        played(tmp_path / str(k), order, batch, workers)
        for k, (order, batch, workers) in enumerate(conditions)
    )
    assert len(first) == 24 and {row["success"] for row in first.values()} == {True, False}
    assert all(other == first for other in others)  # to the transcript's digest
