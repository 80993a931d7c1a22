"""Our stored measurements: the committed tables are what the committed runs give."""

import csv

import pytest

from r3l.core.files import read_json, read_jsonl
from r3l.core.paths import ROOT
from r3l.report import budget, records, tables
from r3l.runs.metrics import base_success
from r3l.runs.places import find_runs
from r3l.workflow import plan

STORED = ROOT / "results" / "stored"


@pytest.fixture(scope="module")
def runs():
    return records.load(find_runs(STORED))


def stored_rows(name):
    with (STORED / f"{name}_nano.csv").open() as file:
        return list(csv.DictReader(file))


TABLES = ["table1", "table2", "mathematics", "table_rltf", "alpha", "group_size", "retries", "sync_interval"]


@pytest.mark.parametrize("name", [*TABLES, "learning", "retry_improvement", "cost", "pivot", "budget"])
def test_stored_tables_regenerate_from_the_stored_runs(runs, name, tmp_path):
    """By `r3l table NAME --results results/stored --seeds-planned 5 --out results/stored/NAME_nano.csv`."""
    if name == "budget":
        rows = budget.budget_rows(runs)
        tables.write(rows, budget.table(rows), tmp_path / "table.csv")
    else:
        table, config = plan.tables()[name], plan.load()
        table_runs = [record for record in runs if record["env"] in config.columns(table)]
        run = {record["method"] for record in table_runs}
        methods = [m for m in table.methods if m in run or m in config.rows(table)]
        tables.build(table, table_runs, methods, 5, "nano").write(tmp_path / "table.csv")
    for path in tmp_path.iterdir():
        assert path.read_text() == (STORED / f"{name}_nano{path.suffix}").read_text(), path.suffix


def test_stored_scores_are_those_of_the_stored_episodes():
    for path in find_runs(STORED):
        episodes = read_jsonl(path.parent / "episodes.jsonl")
        scores = read_json(path)["groups"]["all"]
        assert scores["episodes"] == len(episodes) >= 140
        assert abs(scores["success"] - sum(e["success"] for e in episodes) / len(episodes)) < 1e-12


def test_what_training_counted_agrees_with_itself(runs):
    """Step by step. Stored runs of Critique-GRPO counted success without the rollouts that a refinement replaced."""
    for record in runs:
        for line in record.metrics:
            total = {part: sum(v for k, v in line.items() if k.startswith(f"{part}/")) for part in ("stop", "trained")}
            assert (total["stop"], total["trained"]) == (line["rollouts"], line["tokens/trained"]), record.path
            if not record["method"].startswith("critique_grpo"):
                assert line["train/success"] == pytest.approx(base_success(line)), record.path


WAITING = {"rltf_sft", "rltf_fm", "rltf_sd"}  # with their own feedback; with the environment's they are stored


def all_rows(table):
    """The methods that the nano tier has in a table and that are stored."""
    return set(plan.load(plan.workflow_content() | {"grid": "full"}).rows(plan.tables()[table])) - WAITING


@pytest.mark.parametrize("name", ["table1", "table2"])
def test_every_method_of_a_table_has_a_measured_row(name):
    rows = [row for row in stored_rows(name) if row["env"] == "alfworld"]
    assert {r["method"] for r in rows} == all_rows(name)
    assert all(int(r["seeds_done"]) >= 1 and r["mean"] for r in rows)


TABLE_RLTF = plan.tables()["table_rltf"]


def test_rltfs_methods_have_five_seeds_of_one_of_its_puzzles():
    done = {r["method"]: r["seeds_done"] for r in stored_rows("table_rltf") if r["env"] == "knights_knaves"}
    stored = {f"{method}@feedback=environment" if method in WAITING else method for method in TABLE_RLTF.core}
    assert {done[method] for method in stored} == {"5"} and {done[method] for method in WAITING} == {"0"}


@pytest.mark.parametrize("env", [*plan.load().envs, "math"])
def test_every_method_has_five_seeds(env):
    table = "mathematics" if env == "math" else "table1"
    done = {row["method"]: row["seeds_done"] for row in stored_rows(table) if row["env"] == env}
    assert done.pop("constant_answer_baseline", "0") == "0"
    assert set(done) == all_rows("table1") and set(done.values()) == {"5"}


# Runs of 20 updates (mathematics 30) until they leave the tree; tables show them under the name of their start model.
FIRST_GENERATION = {"nano", "nano_scienceworld", "nano_webshop", "nano_math", "nano_puzzles"}


def test_stored_runs_are_of_the_present_configuration(runs):
    """Their fingerprints are those that the configs give today: nobody compares with numbers of another setting."""
    for record in runs:
        if record["model"] in FIRST_GENERATION:
            continue
        run = plan.resolve(record["tier"], record["env"], record["method"], record["seed"])
        made_with = read_json(record.path.parent / "manifest.json").get("corrections", [])
        assert run.fingerprint(made_with) == record["fingerprint"], record.path
        assert (run.fingerprint() == record["fingerprint"]) == (not record.outdated), record.path
