"""What the target of every table trains and evaluates in every tier, planned in this process."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from start_models import START_MODEL, cell

from r3l.config import names, variant
from r3l.core.errors import ConfigError
from r3l.files.paths import ROOT, STORED, STORED_MODELS
from r3l.report import gpu_hours, published
from r3l.report.labels import env_label
from r3l.workflow import plan
from r3l.workflow.jobs import Jobs

TABLES = plan.tables()
CODELESS = {"LitBench", "WritingBench"}  # in RLTF's paper, not in its released code


def configured(tier, table):
    """One seed of the core rows with one of the table's models."""
    content = plan.workflow_content(tier) | {"seeds": [0], "grid": "core"}
    models = [model for model in content.get("models", []) if model in (table.models or [model])]
    return plan.load(content | {"models": models[:1] or content.get("models", [])})


@pytest.mark.parametrize("tier", ["nano", "smol", "paper", "rltf"])
@pytest.mark.parametrize("name", TABLES)
def test_a_target_trains_every_row_in_every_column(name, tier):
    """And `r3l run --dry-run` has GPU hours for all of it."""
    table, config = TABLES[name], configured(tier, TABLES[name])
    runs = plan.runs(config, table)
    if config.models_of(table):
        cells = {(env, method) for env in config.columns(table) for method in config.rows(table)}
        assert {(run.env, run.method) for run in runs.values()} == {c for c in cells if config.has_row(*c)}
    else:
        assert (runs, table.kind, tier != "paper") == ({}, "published", True)
    further = plan.further_evaluations(config, table)
    sets = [config.question_sets(table, run.env) for run in runs.values()]
    assert len(set(further)) == len(further) == sum(map(len, sets))
    if tier in ("paper", "rltf"):
        trained = [cost for cost in gpu_hours.costs(runs.values()) if cost.steps]
        trains = any(not run.method.startswith("zero_shot") for run in runs.values())
        assert all(cost.gpu_hours > 0 for cost in trained) and bool(trained) == trains


@pytest.mark.parametrize(
    "name", [name for name, table in TABLES.items() if table.published and table.kind == "scores"]
)
def test_every_published_column_is_one_of_ours(name):
    table, config = TABLES[name], configured("rltf" if name == "table_rltf" else "paper", TABLES[name])
    envs = config.columns(table)
    columns = {table.benchmarks.get(env, env_label(env)) for env in envs}
    columns |= {printed for env in envs for printed in config.question_sets(table, env).values()}
    assert {number.benchmark for number in published.load(table.published)} - CODELESS <= columns


def test_nano_pays_for_question_sets_where_they_are_asked_for():
    jobs = Jobs(plan.workflow_content(), {})
    asked = {name for name in TABLES if jobs.further_evaluations(name)}
    assert asked == {"transfer", "table_rltf"}
    run = f"results/{cell('dapo_templated', 'grpo')}/seed0"
    assert f"{run}/evaluation.json" in jobs.evaluations("transfer")
    assert [path for path in jobs.further_evaluations("transfer") if path.startswith(run)] == [
        f"{run}/evaluations/{name}/test/evaluation.json" for name in ("gsm8k_templated", "math500_templated")
    ]


def test_a_run_that_no_table_has_is_an_error():
    jobs = Jobs(plan.workflow_content(), {})
    place = {"tier": "nano", "env": "alfworld", "model": START_MODEL, "method": "r3l@alpha=5", "seed": 0}
    assert jobs.run(place).method_settings["alpha"] == 5.0  # of a table that nothing has asked for yet
    with pytest.raises(ConfigError, match=f"no table of this .* has results/{cell('alfworld', 'r3l')}/seed7"):
        jobs.run(place | {"method": "r3l", "seed": 7})


def test_every_method_is_a_row_of_a_table():
    rows = {variant(method).method for table in TABLES.values() for method in table.methods}
    assert rows == set(names("methods"))


def test_a_snakemake_without_r3l_says_what_to_install():
    without = "import sys; sys.modules['r3l'] = None; from snakemake.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", without, "-n", "--cores", "1", "results/table1.csv"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    shown = done.stdout + done.stderr
    assert done.returncode == 1 and "has no module r3l" in shown and "run make setup" in shown
    assert "Traceback" not in shown


def planned(**changes):
    content = plan.workflow_content() | {
        "envs": ["math"],
        "methods": ["zero_shot"],
        "seeds": [0, 1],
        **changes,
    }
    return Jobs(content, {}), plan.runs(plan.load(content), TABLES["mathematics"])


def test_a_directory_that_holds_another_run_is_renamed_whole(tmp_path, monkeypatch):
    """Seed 0 copied to seed 1, in a results folder without snakemake's notes."""
    monkeypatch.chdir(tmp_path)
    jobs, runs = planned()
    places = [Path("results", path) for path in runs]
    for place in places:
        shutil.copytree(STORED / cell("math", "zero_shot") / "seed0", place)
    jobs.evaluations("mathematics")
    assert all(map(Path.is_dir, places))  # a dry run renames nothing
    jobs, _ = planned()
    jobs.starts = True
    jobs.evaluations("mathematics")
    mine, other = sorted(places[0].parent.iterdir())
    assert (mine.name, other.name.partition(".")[0]) == ("seed0", "seed1") and other != places[1]
    assert {path.name for path in mine.iterdir()} - {".lock"} == {path.name for path in other.iterdir()} - {
        ".lock"
    }


def test_a_table_is_made_again_if_its_file_changes():
    jobs, _ = planned()
    made_of = jobs.made_of("mathematics")
    assert planned()[0].made_of("mathematics") == made_of
    jobs.tables["mathematics"] = TABLES["mathematics"].model_copy(update={"title": "Another title"})
    assert jobs.made_of("mathematics") != made_of


def test_two_models_of_one_name_are_two_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, model in (("a", "math-1.5m"), ("b", START_MODEL)):
        shutil.copytree(STORED_MODELS / model, tmp_path / folder / "final")
    models = ["a/final", "b/final", "org1/Name", "org2/Name"]
    jobs, runs = planned(models=models, seeds=[0])
    assert [run.model for run in runs.values()] == models and len(set(runs)) == 4
    for path, run in runs.items():
        place = dict(zip(("tier", "env", "model", "method", "seed"), Path(path).parts, strict=True))
        assert jobs.model(place | {"seed": 0}) == run.model
