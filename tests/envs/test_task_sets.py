"""Task sets of every environment: hashes, validation, and errors for a wrong committed file or name."""

import json
import shutil

import pytest
import r3l.envs.base.task_sets
from r3l.envs.registry import ENVIRONMENTS, find_environment

from r3l.core.errors import ConfigError, DataError
from r3l.runs.manifest import describe_task_set

FAST = ("math", "puzzles")  # to build


@pytest.fixture(params=ENVIRONMENTS)
def env(request):
    return request.param


@pytest.fixture
def nano(env):
    """The name of an environment's small task set."""
    return "binary_matrix_nano" if env == "puzzles" else "nano"


@pytest.fixture
def copied(env, nano, tmp_path, monkeypatch):
    """A copy of the committed file that a test may damage."""
    original = r3l.envs.base.task_sets.committed_path(env, nano)
    copy = tmp_path / env / "task_sets" / original.name
    copy.parent.mkdir(parents=True)
    shutil.copy(original, copy)
    monkeypatch.setattr(r3l.envs.base.task_sets, "ENVS", tmp_path)
    return copy


def test_every_split_has_the_committed_hash_and_shares_no_task(env, nano):
    sets = find_environment(env).task_sets()
    splits = [sets.tasks(f"{nano}/{split}") for split in ("train", "test", "validation")]
    hashes = [sets.committed_hash(f"{nano}/{split}") for split in ("train", "test", "validation")]
    assert [sets.sha256(tasks) for tasks in splits] == hashes
    assert all([task.id for task in tasks] == sorted(task.id for task in tasks) for tasks in splits)
    ids = [{task.id for task in tasks} for tasks in splits]
    assert len(ids[2]) == 128 and len(set.union(*ids)) == sum(map(len, splits))
    assert not {sets.spare_task(nano, k).id for k in range(100)} & set.union(*ids)  # what SFT teaches


def test_other_tasks_than_the_committed_ones_are_refused(env, nano, copied):
    content = json.loads(copied.read_text())
    content["splits"]["test"]["sha256"] = "0" * 64
    copied.write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"has sha256 {'0' * 64}, but .* r3l data build {nano} --env {env}"):
        find_environment(env).tasks(f"{nano}/test")


@pytest.mark.parametrize("text", [None, "{", "[]", '{"splits": {}}', '{"splits": {"test": {}}}'])
def test_a_missing_or_damaged_file_says_how_to_make_it(copied, text):
    env, nano = copied.parents[1].name, copied.stem
    copied.unlink() if text is None else copied.write_text(text)
    with pytest.raises(DataError, match=rf"is (missing or )?damaged.*r3l data build {nano} --env {env}"):
        find_environment(env).tasks(f"{nano}/test")


@pytest.mark.parametrize("task_set", ["micro/test", "{nano}/dev", "{nano}"])
def test_unknown_task_sets_are_named(env, nano, task_set):
    name = task_set.format(nano=nano)
    with pytest.raises(ConfigError, match=name.partition("/")[0]):
        find_environment(env).tasks(name)


@pytest.mark.parametrize(
    "env", [e if e in FAST else pytest.param(e, marks=pytest.mark.slow) for e in ENVIRONMENTS]
)
def test_building_validates_every_task_and_writes_the_committed_bytes(env, nano, copied):
    before = copied.read_bytes()
    copied.unlink()
    assert find_environment(env).task_sets().build(nano) == copied and copied.read_bytes() == before


def test_a_group_of_a_task_set_is_a_task_set():
    """``nano/test/easy``: 100 of the 200 tasks, under a hash of its own."""
    package = find_environment("math")
    easy, hard, both = (package.tasks(f"chain/test{group}") for group in ("/easy", "/hard", ""))
    assert len(easy) == len(hard) == 100 and sorted([*easy, *hard], key=lambda t: t.id) == both
    assert {task.group for task in easy} == {"easy"}
    hashes = {package.task_set_hash(f"chain/test{group}") for group in ("/easy", "/hard", "")}
    assert len(hashes) == 3
    with pytest.raises(ConfigError, match=r"no group of math task set chain/test 'esy'; known: easy, hard"):
        package.tasks("chain/test/esy")
    assert len(find_environment("puzzles").tasks("knights_knaves_nano/test/2_people")) == 60  # "2 people"


def test_a_constant_answer_is_scored_on_the_group_alone():
    """Of the 100 hard problems 8 have the answer 0, the best constant of all 200."""
    described = describe_task_set("math", "chain/test/hard")
    assert described["tasks"] == 100
    assert described["constant_answer_baseline"] == {"answer": "0", "success": {"hard": 0.08, "all": 0.08}}
