"""The paper's grid: what nobody has run reads 0/3 seeds, beside the published numbers."""

import json
from dataclasses import replace

import pytest
import yaml
from typer.testing import CliRunner

from r3l.cli import app
from r3l.core.errors import ConfigError
from r3l.report import tables
from r3l.workflow import plan


def paper(table):
    config = plan.load(plan.workflow_content("paper"))
    return config, plan.tables()[table]


@pytest.mark.parametrize(
    ("table", "runs"),
    [
        ("table1", 4 * 4 * 15 * 3),  # environments, models, methods with zero-shot, seeds
        ("table2", 4 * 1 * 11 * 3),
        ("alpha", 4 * 1 * 5 * 3),
        ("table_rltf", 1 * 4 * 14 * 3),  # of its environments the tier has DAPO alone; of its rows none with a judge
        ("llama", 4 * 1 * 7 * 3),
    ],
)
def test_the_runs_of_a_table(table, runs):
    config, table_config = paper(table)
    planned = plan.runs(config, table_config)
    assert len(planned) == runs
    assert all(path.startswith("paper/") for path in planned)


def test_nothing_run_reads_0_of_3_seeds_beside_the_published_numbers():
    config, table = paper("table1")
    built = tables.build(table, [], config.rows(table), len(config.seeds), config.tier, benches=config.benches(table))
    cells = replace(built, empty=True).printed.section("Qwen2.5-1.5B-Instruct, ours")["R3L"]
    assert {cell.text for column, cell in cells.items() if column not in ("method", "feedback")} == {"0/3 seeds"}
    assert cells["feedback"].text == "self"
    assert built.printed.section("Qwen2.5-1.5B-Instruct, paper")["R3L"]["ALFWorld"].text == "0.928"
    (row,) = [r for r in built.flat() if (r["method"], r["env"], r["model"]) == ("r3l", "alfworld", "qwen2.5-1.5b")]
    assert (row["mean"], row["seeds_done"], row["seeds_planned"]) == (None, 0, 3)
    assert (row["paper"], row["verdict"], row["verdict_reason"]) == (0.928, "incomplete", "no run")


def test_measures_have_rows_for_what_is_planned_too():
    config, table = paper("cost")
    built = tables.build(table, [], config.rows(table), 3, config.tier, benches=config.benches(table))
    assert {row.seeds_done for row in built.rows} == {0}
    assert len(built.rows) == 4 * 2 * 4 * 4  # environments, models, methods, measures


def test_a_tier_without_a_file_of_its_own_has_the_runs_of_the_workflow():
    assert plan.workflow_content("nano") == plan.workflow_content() | {"tier": "nano"}
    assert plan.load(plan.workflow_content("nano")).models_of(plan.tables()["table2"]) == [None]


def test_a_model_twice_is_an_error():
    with pytest.raises(ConfigError, match="models names something twice"):
        plan.load(plan.workflow_content("paper") | {"models": ["qwen3-4b", "qwen3-4b"]})


def test_tasksets_are_written_with_the_configuration(tmp_path):
    """ScienceWorld's task sets need no download: every step's tasks in order, and the whole test task set."""
    out = tmp_path / "run.yaml"
    given = ["--tier", "paper", "--env", "scienceworld", "--set", "train.steps=2", "--run-dir", str(tmp_path)]
    done = program("train", *given, "--trinity-config", str(out), "--write-tasks")
    assert done.exit_code == 0, done.output
    lines = [
        json.loads(line)["id"] for line in (tmp_path / "trinity" / "tasks" / "train.jsonl").read_text().splitlines()
    ]
    assert len(lines) == len(set(lines)) == 2 * 96
    assert len((tmp_path / "trinity" / "tasks" / "test.jsonl").read_text().splitlines()) == 1308
    assert yaml.safe_load(out.read_text())["buffer"]["total_steps"] == 2


def test_a_configuration_of_a_profile(tmp_path):
    configs = []
    for method in ("r3l", "r3l@profile=released_code"):
        given = ("--tier", "paper", "--method", method, "--trinity-config", str(tmp_path / "run.yaml"))
        assert program("train", *given).exit_code == 0
        configs.append((tmp_path / "run.yaml").read_text())
    assert ["k2" in config for config in configs] == [False, True]  # R3L's KL, which only the release has


def program(*arguments):
    return CliRunner().invoke(app, list(arguments))
