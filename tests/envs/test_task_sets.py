"""Task sets of every environment: hashed, proved, and loud when the committed file or a name is wrong."""

import importlib
import json
import shutil

import pytest
import r3l.envs.base.task_sets
from program import run
from r3l.envs.registry import find_environment

from r3l.core.errors import ConfigError, DataError


@pytest.fixture(params=["alfworld", "scienceworld", "webshop", "math"])
def env(request):
    return request.param


@pytest.fixture
def copied(env, tmp_path, monkeypatch):
    """The committed nano file, where it may be damaged."""
    original = r3l.envs.base.task_sets.committed_path(env, "nano")
    copy = tmp_path / env / "task_sets" / "nano.json"
    copy.parent.mkdir(parents=True)
    shutil.copy(original, copy)
    monkeypatch.setattr(r3l.envs.base.task_sets, "ENVS", tmp_path)
    return copy


def module(env):
    return importlib.import_module(f"r3l.envs.{env}.task_sets")


@pytest.mark.parametrize("split", ["train", "test", "validation"])
def test_the_committed_hash_is_that_of_the_tasks(env, split):
    task_sets = module(env)
    assert task_sets.sha256_of(task_sets.tasks(f"nano/{split}")) == task_sets.committed_hash(f"nano/{split}")


def test_a_missing_file_says_how_to_make_it(env, copied):
    copied.unlink()
    with pytest.raises(DataError, match=rf"nano\.json is missing.*r3l task-set build nano --env {env}"):
        find_environment(env).tasks("nano/test")


def test_other_tasks_than_the_committed_ones_are_refused(env, copied):
    content = json.loads(copied.read_text())
    content["splits"]["test"]["sha256"] = "0" * 64
    copied.write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"has sha256 {'0' * 64}, but .* r3l task-set build nano --env {env}"):
        find_environment(env).tasks("nano/test")


@pytest.mark.parametrize("text", ["{", "[]", '{"splits": {}}', '{"splits": {"test": {}}}'])
def test_a_damaged_file_says_how_to_mend_it(env, copied, text):
    copied.write_text(text)
    with pytest.raises(DataError, match=rf"is (missing or )?damaged.*r3l task-set build nano --env {env}"):
        find_environment(env).tasks("nano/test")


def test_no_two_splits_share_a_task(env):
    sets = [{task.id for task in module(env).tasks(f"nano/{split}")} for split in ("train", "test", "validation")]
    assert len(sets[2]) == 128 and len(set.union(*sets)) == sum(map(len, sets))


@pytest.mark.parametrize("task_set", ["micro/test", "nano/dev"])
def test_unknown_panels_are_named(env, task_set):
    with pytest.raises(ConfigError, match=task_set.partition("/")[0]):
        find_environment(env).tasks(task_set)


@pytest.mark.slow
def test_building_proves_every_task_and_writes_the_committed_bytes(env, copied):
    before = copied.read_bytes()
    assert find_environment(env).build_task_set("nano") == copied and copied.read_bytes() == before


def test_task_sets_are_built_for_the_environments_of_the_registry(monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, "data", "build", "micro", "--env", "puzzles")
    assert code == 2 and "puzzles task set 'micro' is unknown; in configs/task_sets: binary_matrix_nano/SPLIT" in err
