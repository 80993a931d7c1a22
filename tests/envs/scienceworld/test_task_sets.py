"""Selections and task sets: sizes worked out by hand, disjoint, committed, and an error if they differ."""

from collections import Counter

import pytest
import r3l.envs.base.task_sets
from r3l.envs.base.task_sets import definition_path
from r3l.envs.scienceworld.task_sets.tasks import R3L_TEST, TASK_SETS, VARIATIONS, official_variations

from r3l.core.errors import ConfigError


def ids(tasks):
    return {task.id for task in tasks}


def test_r3l_selection_is_the_released_one():
    train, test = TASK_SETS.regenerate("r3l", "train"), TASK_SETS.regenerate("r3l", "test")
    assert (len(train), len(test)) == (2294, 1308)  # audit 3.4
    assert len(R3L_TEST) == 13 and {t.group for t in test} == set(R3L_TEST)
    assert len({t.group for t in train}) == 17 and not {t.group for t in train} & set(R3L_TEST)
    counts = Counter(t.group for t in [*train, *test])
    assert counts["inclined-plane-friction-named-surfaces"] == 693  # of 1386
    assert counts["test-conductivity"] == 450
    assert counts["lifespan-longest-lived"] == 62  # of 125
    assert [t.id for t in test] == sorted(t.id for t in test)


def test_official_selection_has_the_published_sizes():
    parts = [ids(TASK_SETS.regenerate("official", split)) for split in ("train", "dev", "test")]
    assert [len(part) for part in parts] == [3592, 1796, 1819]
    assert len(set.union(*parts)) == 7207 == sum(VARIATIONS.values())
    # 10 variations: quarters of 2, so 4 train, 2 dev, and the 4 left test
    assert [list(official_variations("identify-life-stages-2", s)) for s in ("train", "dev", "test")] == [
        [0, 1, 2, 3],
        [4, 5],
        [6, 7, 8, 9],
    ]


def write_definition(folder, monkeypatch, old, new):
    text = definition_path("scienceworld", "nano").read_text()
    assert old in text
    (folder / "scienceworld_odd.yaml").write_text(text.replace(old, new))
    monkeypatch.setattr(r3l.envs.base.task_sets, "DEFINITIONS", folder)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("from: [test]", "from: [train]", "train and test both draw from 'train'"),
        ("sft_from: [dev, train]", "sft_from: [test]", "sft_from shares"),
        ("find-plant", "find-plants", "unknown task types find-plants"),
        ("max_actions", "max_action", "max_action"),
    ],
)
def test_bad_definitions_are_refused(tmp_path, monkeypatch, old, new, message):
    write_definition(tmp_path, monkeypatch, old, new)
    with pytest.raises(ConfigError, match=message):
        TASK_SETS.definition("odd")


@pytest.mark.slow
@pytest.mark.parametrize("task_set", ["r3l", "official"])
def test_building_a_selection_writes_the_committed_bytes(tmp_path, monkeypatch, task_set):
    before = r3l.envs.base.task_sets.committed_path("scienceworld", task_set).read_bytes()
    monkeypatch.setattr(r3l.envs.base.task_sets, "ENVS", tmp_path)
    assert TASK_SETS.build(task_set).read_bytes() == before
