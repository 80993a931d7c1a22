"""Panels: committed, hashed, disjoint, and loud when they differ."""

import json
from pathlib import Path

import pytest

from envs.alfworld import panels
from envs.alfworld.games import ids_sha256
from r3l.core.errors import ConfigError, DataError

LISTS = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "alfworld"


def test_sizes_groups_and_disjointness():
    train, test = panels.load("nano", "train"), panels.load("nano", "test")
    assert (len(train), len(test)) == (256, 200)
    for tasks in (train, test):
        assert len({t.id for t in tasks}) == len(tasks) and [t.id for t in tasks] == sorted(t.id for t in tasks)
        assert sum(t.group == "easy" for t in tasks) == len(tasks) / 2
    warm = [panels.warmstart_task(i) for i in range(200)]
    problems = [{t.payload["pddl_problem"] for t in tasks} for tasks in (train, test, warm)]
    assert not problems[0] & problems[1] and not problems[0] & problems[2] and not problems[1] & problems[2]


def test_the_committed_file_is_what_building_writes(tmp_path, monkeypatch):
    committed = json.loads((panels.COMMITTED / "nano.json").read_text())
    assert panels.sha256_of(panels.load("nano", "test")) == committed["splits"]["test"]["sha256"]
    assert panels.committed_hash("nano/test") == committed["splits"]["test"]["sha256"]
    monkeypatch.setattr(panels, "COMMITTED", tmp_path)
    with pytest.raises(DataError, match=r"nano\.json is missing.*r3l panel build"):
        panels.load("nano", "test")
    committed["splits"]["test"]["sha256"] = "0" * 64
    (tmp_path / "nano.json").write_text(json.dumps(committed))
    with pytest.raises(DataError, match=rf"has sha256 {'0' * 64}, but .* r3l panel build"):
        panels.load("nano", "test")
    (tmp_path / "nano.json").write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        panels.load("nano", "test")


@pytest.mark.slow
def test_building_proves_every_task_and_writes_the_committed_bytes(tmp_path, monkeypatch):
    committed = (panels.COMMITTED / "nano.json").read_bytes()
    monkeypatch.setattr(panels, "COMMITTED", tmp_path)
    assert panels.build("nano").read_bytes() == committed


def test_unknown_panels_are_named():
    for name in ("micro/test", "nano/dev", "valid"):
        with pytest.raises(ConfigError, match=name.partition("/")[0]):
            panels.tasks(name)


def test_missing_published_games_say_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    with pytest.raises(DataError, match="alfworld-download"):
        panels.tasks("valid_seen")


@pytest.mark.skipif(not LISTS.is_dir(), reason="no lists of the published games beside the repository")
@pytest.mark.parametrize("split", panels.OFFICIAL)
def test_committed_hashes_are_those_of_the_published_ids(split):
    ids = (LISTS / f"list_{split}.txt").read_text().split()
    assert ids_sha256(ids) == panels.committed_hash(split)


def test_overlapping_seeds_are_refused(tmp_path, monkeypatch):
    text = (panels.DEFINITIONS / "alfworld_nano.yaml").read_text().replace("first_seed: 1000000", "first_seed: 200")
    (tmp_path / "alfworld_close.yaml").write_text(text)
    monkeypatch.setattr(panels, "DEFINITIONS", tmp_path)
    with pytest.raises(ConfigError, match="seeds of train .* reach into those of test"):
        panels.definition("close")
