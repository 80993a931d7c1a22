"""The sets of tier nano: templated problems that go through the published sets' readers, cleaning and
freezing."""

import json

import pytest
from r3l.envs.math import Math
from r3l.envs.math.task_sets import datasets
from r3l.envs.math.task_sets.arithmetic import TEMPLATED, problem, rows

from r3l.config import EnvConfig, load, names, resolve
from r3l.core.errors import ConfigError
from r3l.report.labels import env_label


@pytest.mark.parametrize("name", TEMPLATED)
def test_a_row_has_the_published_layout_and_is_read_as_one(name):
    made = TEMPLATED[name]
    task = problem(made.split, made.first, 2)
    first = next(rows(made))
    assert json.dumps(first)
    read = datasets.read_set(name, None)
    assert (read[0].problem, read[0].gold, len(read)) == (
        task.payload["problem"],
        task.payload["answer"],
        made.count,
    )


@pytest.mark.parametrize(
    ("env", "size"), [("gsm8k", 256), ("math500", 256), ("dapo", 255), ("deepmath", 256)]
)
def test_templated_problems_are_never_called_as_a_published_set(monkeypatch, env, size):
    """Its own name is refused at nano; the one that says templated needs no download."""
    monkeypatch.delenv("R3L_MATH", raising=False)
    with pytest.raises(
        ConfigError, match=rf"{env!r} has no tier 'nano': give --tier .* or --env {env}_templated"
    ):
        resolve("nano", env, "r3l", 0)
    settings = resolve("nano", f"{env}_templated", "r3l", 0).env_settings
    printed = (env_label(f"{env}_templated"), settings.train_task_set, settings.test_task_set)
    assert all("templated" in name for name in printed)
    taught, tested = Math().tasks(settings.train_task_set), Math().tasks(settings.test_task_set)
    assert (len(taught), len(tested)) == (size, 200)
    assert not {task.payload["problem"] for task in taught} & {task.payload["problem"] for task in tested}


def test_in_all_tiers_a_published_name_has_published_problems_alone():
    for env in (load("envs", name, EnvConfig) for name in names("envs")):
        made_here = ("_templated", "_easy", "_hard")  # the last two: groups of chains, for the map
        if env.environment == "math" and not env.env.endswith(made_here):
            sets = {name for tier in env.tiers.values() for name in (tier.train_task_set, tier.test_task_set)}
            assert {name.partition("/")[0] for name in sets} <= set(datasets.ORIGINS) | set(
                datasets.CLEANED
            ), env.env
            assert not [name for name in sets if "templated" in name]
