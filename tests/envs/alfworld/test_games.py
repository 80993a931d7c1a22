"""Downloads and packed files as tasks: a download made here of generated houses; the real ones if present."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from official_alfworld import official_game
from r3l.envs.alfworld import games
from r3l.envs.alfworld.engine import AlfworldEngine
from r3l.envs.alfworld.houses import generate
from r3l.envs.alfworld.rooms import House

from r3l.core.environment import Observation
from r3l.core.errors import DataError
from r3l.core.task import Task

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "alfworld"
PACKED = Path(os.environ.get("R3L_ALFWORLD_PACKED", SHARED / "packed_valid.jsonl.xz"))
needs_packed = pytest.mark.skipif(
    not PACKED.exists(), reason=f"the published games are not at {PACKED} (set R3L_ALFWORLD_PACKED)"
)
PLACES = {
    "train/look_at_obj_in_light-Book-None-DeskLamp-1/trial_T1": generate(House("look_at_obj_in_light", seed=1)),
    "valid_seen/pick_two_obj_and_place-Mug-None-Shelf-2/trial_T2": generate(House("pick_two_obj_and_place", seed=2)),
    "valid_seen/pick_cool_then_place_in_recep-Egg-None-Safe-3/trial_T3": generate(
        House("pick_cool_then_place_in_recep", seed=3)
    ),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small download, in the published layout and format."""
    for game_id, house in PLACES.items():
        path = tmp_path / "json_2.1.1" / game_id / "game.tw-pddl"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({**official_game(house), "solvable": True}), encoding="utf-8")
    return tmp_path


def test_listing_counting_and_hashing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(root))
    assert games.count_games() == {"train": 1, "valid_seen": 2, "valid_unseen": 0}
    ids = games.list_games("valid_seen", expected=2)
    assert ids == sorted(key for key in PLACES if key.startswith("valid_seen"))
    assert games.ids_sha256(ids) == games.ids_sha256(reversed(ids)) != games.ids_sha256(ids[:1])


def test_a_loaded_game_is_a_whole_task(root: Path) -> None:
    for game_id, house in PLACES.items():
        task = games.load_game(game_id, root)
        assert (task.id, task.env, task.split) == (game_id, "alfworld", game_id.split("/")[0])
        assert task.group == house.payload["family"]
        assert task.payload["goal_text"] == house.payload["goal_text"]
        assert task.payload["walkthrough"] == house.payload["walkthrough"]
        json.dumps(dict(task.payload))


def test_missing_data_names_path_counts_and_command(root: Path) -> None:
    with pytest.raises(DataError) as caught:
        games.list_games("valid_unseen", root)
    message = str(caught.value)
    assert all(part in message for part in (str(root), "holds 0", "expected 134", "alfworld-download"))
    with pytest.raises(DataError, match="holds 2 ALFWorld games, expected 140"):
        games.list_games("valid_seen", root)
    with pytest.raises(DataError, match="no split 'test'"):
        games.list_games("test", root)
    with pytest.raises(DataError, match="does not exist.*alfworld-download"):
        games.load_game("train/a-b/c", root)


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"pddl_domain": "", "grammar": ""}',
        b'{"pddl_domain":"","grammar":"","pddl_problem":""}',
    ],
)
def test_a_damaged_game_names_its_file(root: Path, content: bytes) -> None:
    game_id = min(PLACES)
    path = root / "json_2.1.1" / game_id / "game.tw-pddl"
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged") as caught:
        games.load_game(game_id, root)
    assert str(path) in str(caught.value)


def test_packing_keeps_every_game_as_it_plays(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "packed" / "games.jsonl.xz"
    assert games.pack(root, out) == len(PLACES)
    content = out.read_bytes()
    games.pack(root, out)
    assert out.read_bytes() == content  # the same games make the same file
    packed = games.load_packed(out)
    assert [task.id for task in packed] == sorted(PLACES)
    engine = AlfworldEngine()
    for task in packed:
        loaded = games.load_game(task.id, root)
        assert (task.split, task.group) == (loaded.split, loaded.group)
        assert task.payload["grammar"] == loaded.payload["grammar"]
        seen = _played(engine, task)
        assert seen == _played(engine, loaded)
        assert seen[-1].success
    engine.close()


def _played(engine: AlfworldEngine, task: Task) -> list[Observation]:
    return [engine.reset(task), *(engine.step(action) for action in task.payload["walkthrough"])]


def test_packed_selection_and_what_it_lacks(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "games.jsonl.xz"
    games.pack(root, out)
    assert {task.split for task in games.load_packed(out, "train")} == {"train"}
    assert [task.id for task in games.load_packed(out, ids=[min(PLACES)])] == [min(PLACES)]
    with pytest.raises(DataError, match="lacks split valid_unseen"):
        games.load_packed(out, "valid_unseen")
    with pytest.raises(DataError, match="lacks 1 of 2 wanted ids, first train/x/y"):
        games.load_packed(out, ids=[min(PLACES), "train/x/y"])


def test_packed_files_stand_in_for_a_download(root: Path, tmp_path: Path) -> None:
    """A games' folder that holds packed files only; each split is taken from the file that has it."""
    for split in ("train", "valid_seen"):
        games.pack(root, tmp_path / f"packed_{split}.jsonl.xz", [split])
    for split in ("train", "valid_seen"):
        expected = [task.id for task in games.load_games(split, root, expected=0)]
        assert expected and [task.id for task in games.load_games(split, tmp_path)] == expected
    with pytest.raises(DataError, match="holds 0 ALFWorld games"):
        list(games.load_games("valid_unseen", tmp_path))


def test_a_damaged_or_missing_packed_file_is_named(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "games.jsonl.xz"
    games.pack(root, out)
    whole = out.read_bytes()
    for content in (whole[: len(whole) // 2], b"not xz", b""):
        out.write_bytes(content)
        with pytest.raises(DataError, match="games.jsonl.xz"):
            games.load_packed(out)
    out.unlink()
    with pytest.raises(DataError, match="does not exist"):
        games.load_packed(out)
    out.write_bytes(whole)
    (tmp_path / games.GRAMMAR_FILE).unlink()
    with pytest.raises(DataError, match="shared_grammar"):
        games.load_packed(out)


def test_nothing_to_pack_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no ALFWorld games to pack"):
        games.pack(tmp_path, tmp_path / "out.jsonl.xz")
    assert not list(tmp_path.iterdir())


@needs_packed
def test_the_published_evaluation_games() -> None:
    tasks = games.load_packed(PACKED)
    assert Counter(task.split for task in tasks) == {
        split: count for split, count in games.EXPECTED_GAMES.items() if split != "train"
    }
    families = Counter(task.group for task in tasks if task.split == "valid_unseen")
    assert families == {
        "pick_and_place_simple": 24,
        "look_at_obj_in_light": 18,
        "pick_clean_then_place_in_recep": 31,
        "pick_heat_then_place_in_recep": 23,
        "pick_cool_then_place_in_recep": 21,
        "pick_two_obj_and_place": 17,
    }
