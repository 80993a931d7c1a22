"""Task sets: committed, hashed, disjoint, and loud when they differ."""

from pathlib import Path

import pytest
import r3l.envs.base.task_sets
from r3l.envs.alfworld import task_sets
from r3l.envs.alfworld.games import ids_sha256
from r3l.envs.base.task_sets import definition_path

from r3l.core.errors import ConfigError, DataError

LISTS = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "alfworld"


def test_sizes_groups_and_disjointness():
    train, test, validation = (task_sets.tasks(f"nano/{split}") for split in ("train", "test", "validation"))
    assert (len(train), len(test), len(validation)) == (256, 200, 128)
    for tasks in (train, test, validation):
        assert len({t.id for t in tasks}) == len(tasks) and [t.id for t in tasks] == sorted(t.id for t in tasks)
        assert sum(t.group == "easy" for t in tasks) == len(tasks) / 2
    warm = [task_sets.sft_task(i) for i in range(200)]
    problems = [{t.payload["pddl_problem"] for t in tasks} for tasks in (train, test, validation, warm)]
    assert len(set.union(*problems)) == sum(map(len, problems))


def test_unknown_published_splits_are_named():
    with pytest.raises(ConfigError, match="valid"):
        task_sets.tasks("valid")


def test_missing_published_games_say_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    with pytest.raises(DataError, match="alfworld-download"):
        task_sets.tasks("valid_seen")


@pytest.mark.skipif(not LISTS.is_dir(), reason="no lists of the published games beside the repository")
@pytest.mark.parametrize("split", task_sets.PUBLISHED)
def test_committed_hashes_are_those_of_the_published_ids(split):
    ids = (LISTS / f"list_{split}.txt").read_text().split()
    assert ids_sha256(ids) == task_sets.committed_hash(split)


def test_overlapping_seeds_are_refused(tmp_path, monkeypatch):
    text = definition_path("alfworld", "nano").read_text().replace("first_seed: 1000000", "first_seed: 200")
    (tmp_path / "alfworld_close.yaml").write_text(text)
    monkeypatch.setattr(r3l.envs.base.task_sets, "DEFINITIONS", tmp_path)
    with pytest.raises(ConfigError, match="seeds of train .* reach into those of test"):
        task_sets.definition("close")
