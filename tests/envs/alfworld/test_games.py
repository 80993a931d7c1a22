"""Three published games as tasks: listed, read, played; errors name missing and damaged files."""

import json
from collections import Counter

import pytest
from r3l.envs.alfworld import ENVIRONMENT
from r3l.envs.alfworld.engine import games
from r3l.envs.alfworld.engine.text_engine import AlfworldEngine
from r3l.envs.alfworld.task_sets import tasks

from r3l.core.errors import DataError

LAMP = "valid_seen/look_at_obj_in_light-CD-None-DeskLamp-320/trial_T20190907_224451_655673"
CLEAN = "valid_unseen/pick_clean_then_place_in_recep-SoapBar-None-Cabinet-424/trial_T20190908_214926_337906"


def test_a_downloaded_game_is_a_whole_task_that_its_walkthrough_wins(download):
    engine = AlfworldEngine()
    played = list(games.load_games("valid_seen", download, expected=2))
    assert Counter(task.group for task in played) == {"look_at_obj_in_light": 1, "pick_two_obj_and_place": 1}
    for task in (*played, games.load_game(CLEAN, download)):
        assert json.dumps(dict(task.payload)) and task.split == task.id.split("/")[0]
        now = engine.reset(task)
        assert f"Your task is to: {task.payload['goal_text']}." in now.text and not now.success
        for action in task.payload["walkthrough"]:
            now = engine.step(action)
        assert now.success
    engine.close()
    assert played[0].id == LAMP and played[0].payload["goal_text"] == "look at cd under the desklamp"


def test_missing_data_names_path_counts_and_command(download, monkeypatch):
    with pytest.raises(
        DataError, match=f"{download}.* holds 0 ALFWorld games, expected 3553. Run alfworld-download"
    ):
        games.list_games("train", download)
    monkeypatch.setenv("ALFWORLD_DATA", str(download))
    with pytest.raises(DataError, match="holds 2 ALFWorld games, expected 140"):
        ENVIRONMENT.tasks("valid_seen")
    with pytest.raises(DataError, match="no split 'test'"):
        games.list_games("test", download)
    with pytest.raises(DataError, match="does not exist.*alfworld-download"):
        games.load_game("train/a-b/c", download)


def test_other_games_than_the_published_ones_are_refused(download, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(download))
    for number in range(138):
        path = download / "json_2.1.1" / "valid_seen" / f"pick-{number}" / "trial" / "game.tw-pddl"
        path.parent.mkdir(parents=True)
        path.write_bytes((download / "json_2.1.1" / LAMP / "game.tw-pddl").read_bytes())
    with pytest.raises(DataError, match="these are other games"):
        ENVIRONMENT.tasks("valid_seen")


def test_other_ids_of_a_listed_set_than_its_digest_says_are_refused(download, monkeypatch):
    """A game of another list has another score; the digest of the published list stands beside its ids."""
    monkeypatch.setenv("ALFWORLD_DATA", str(download))
    listed = {"ids": [CLEAN], "sha256": games.ids_sha256([CLEAN])}
    monkeypatch.setattr(tasks, "committed", lambda env, name: listed)
    assert [task.id for task in ENVIRONMENT.tasks("agentbench")] == [CLEAN]
    listed["ids"] = [LAMP]
    with pytest.raises(DataError, match=r"agentbench: expected ids with sha256 .*agentbench.json"):
        ENVIRONMENT.tasks("agentbench")


def changed(root, game, key, old, new):
    path = root / "json_2.1.1" / game / "game.tw-pddl"
    content = json.loads(path.read_text())
    assert old in content[key]
    path.write_text(json.dumps({**content, key: content[key].replace(old, new)}))


@pytest.mark.parametrize(
    ("old", "new"), [("move {o} to {r}", "put {o} in/on {r}"), ("take {o}", "pick up {o}")]
)
def test_games_of_another_release_are_refused(download, old, new):
    """Games of another release are an error, since prompts name commands that they do not know."""
    changed(download, LAMP, "grammar", old, new)
    with pytest.raises(DataError, match=r"is of another release.*alfworld-download -f") as caught:
        games.load_game(LAMP, download)
    assert new in str(caught.value) and old in str(caught.value)


@pytest.mark.parametrize(
    ("key", "old", "new"), [("grammar", "You pick", "You take"), ("pddl_problem", "1", "2")]
)
def test_every_file_behind_an_id_is_in_the_digest(download, monkeypatch, key, old, new):
    monkeypatch.setenv("ALFWORLD_DATA", str(download))
    before = ENVIRONMENT.inputs(["valid_seen", "nano/test"])
    changed(download, games.list_games("valid_seen", expected=0)[-1], key, old, new)
    games._digests_of_split.cache_clear()  # as in another process
    assert ENVIRONMENT.inputs(["valid_seen", "nano/test"]) != before


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b'{"pddl_domain": "", "grammar": ""}'])
def test_a_damaged_game_names_its_file(download, content):
    path = download / "json_2.1.1" / LAMP / "game.tw-pddl"
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged") as caught:
        games.load_game(LAMP, download)
    assert str(path) in str(caught.value)


def test_the_digests_for_machines_without_the_package_are_those_of_the_package():
    assert games.text_digests(["small/test"]) == games.PACKAGED
