"""Task sets: committed, hashed, disjoint, and loud when they differ."""

import pytest
from r3l.envs.alfworld.tasks import TASK_SETS

from r3l.core.errors import ConfigError, DataError


def test_sizes_groups_and_disjointness():
    train, test, validation = (TASK_SETS.tasks(f"nano/{split}") for split in ("train", "test", "validation"))
    assert (len(train), len(test), len(validation)) == (256, 200, 128)
    for tasks in (train, test, validation):
        assert len({t.id for t in tasks}) == len(tasks) and [t.id for t in tasks] == sorted(t.id for t in tasks)
        assert sum(t.group == "easy" for t in tasks) == len(tasks) / 2
    warm = [TASK_SETS.spare_task("nano", i) for i in range(60)]
    problems = [{t.payload["pddl_problem"] for t in tasks} for tasks in (train, test, validation, warm)]
    assert len(set.union(*problems)) == sum(map(len, problems))


def test_missing_published_games_say_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    with pytest.raises(DataError, match="alfworld-download"):
        TASK_SETS.tasks("valid_seen")
    with pytest.raises(ConfigError, match="published games: train, valid_seen, valid_unseen"):
        TASK_SETS.tasks("valid")
