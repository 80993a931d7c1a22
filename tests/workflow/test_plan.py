"""The workflow: which jobs there are, what makes them run again, what happens to a directory in the way."""

from __future__ import annotations

import json
import math
import re
import shutil
import zipfile

import pytest
import yaml
from program import Program, run
from start_models import START_MODEL, cell, start_model

from r3l.config import resolve
from r3l.core.errors import ConfigError
from r3l.files.paths import ROOT
from r3l.workflow import plan
from r3l.workflow.jobs import Jobs


def snakemake(directory, *arguments, how=("-n",), checkout=ROOT):
    """A dry run, in an empty folder so that nothing counts as done."""
    fixed = ("--quiet", "rules", "--snakefile", checkout / "Snakefile", "--workflow-profile", "none")
    code, stdout, stderr = Program("snakemake", *how, *fixed, *arguments, folder=directory).wait()
    return code, stdout + stderr


def jobs(text):
    return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", text, flags=re.M)}


TABLE1 = plan.tables()["table1"]


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def test_tables_figures_the_report_and_base_checkpoints_are_targets(folder):
    targets = ("table1.csv", "report.html", "retry_improvement.md", "llama.tex", "figures/pivot.pdf")
    targets += (f"models/{START_MODEL}",)  # only on request
    code, text = snakemake(
        folder, *(f"results/{target}" for target in targets), "--config", "seeds=[0,1,2]", "envs=[webshop]"
    )
    assert code == 0, text
    assert jobs(text) == {
        "task_set": 1,
        "train": 9,  # retry_improvement and pivot have runs of Table 1, llama published numbers only
        "evaluate": 9,
        "table": 3,
        "figure": 2,
        "html_report": 1,
        "sft": 1,
        "total": 26,
    }


@pytest.mark.slow
def test_snakemakes_own_report_lists_results_by_category(folder):
    """Finished files are enough for it, so they are made by hand. The assets of its page come with the
    package."""
    done = ["task_sets/nano/alfworld.json", "table1.csv", "figures/learning_curves.png", "report.html"]
    done += ["figures/learning_curves.pdf"]
    done += [f"{cell('alfworld', 'zero_shot')}/seed0/{name}.json" for name in ("result", "evaluation")]
    make_by_hand(folder, *(f"results/{name}" for name in done))
    targets = ("results/table1.csv", "results/report.html")
    options = ("--config", "envs=[alfworld]", "methods=[zero_shot]")
    code, text = snakemake(folder, *targets, *options, how=("--cores", "1", "--touch"))
    assert code == 0, text
    code, text = snakemake(folder, *targets, *options, how=("--report", "made.zip"))
    assert code == 0, text
    page = zipfile.ZipFile(folder / "made.zip").read("made/report.html").decode()
    for expected in (
        "R3L and its baselines",
        "Tables",
        "Figures",
        "Runs",
        "learning_curves",
        "everything on one page",
    ):
        assert expected in page
    assert '"method": "zero_shot"' in page  # labels of a run


@pytest.fixture
def dry_run(folder, monkeypatch, capfd):
    """What `r3l run ARGUMENTS --dry-run` plans, without asking snakemake."""

    def planned(*arguments):
        monkeypatch.chdir(folder)
        monkeypatch.setattr("r3l.cli.run.count_jobs", lambda command, renamed: {})
        code, out, err = run(monkeypatch, capfd, "run", *arguments, "--dry-run", "--json")
        assert code == 0, err
        return json.loads(out)

    return planned


def test_one_run_with_a_model_that_is_not_its_environments_own(dry_run):
    method = "r3l@alpha=5,retries=2"
    command = dry_run("--env", "webshop", "--method", method, "--model", START_MODEL, "--seed", 3)["command"]
    assert f"results/nano/webshop/{START_MODEL}/{method}/seed3/evaluation.json" in command
    planned = Jobs(content(envs=["webshop"], methods=[method], model=START_MODEL, seeds=[3]), {})
    cell = {"tier": "nano", "env": "webshop", "model": START_MODEL, "method": method, "seed": 3}
    assert planned.run(cell).method_settings["alpha"] == 5
    assert {f"model={START_MODEL}", "seeds=[3]", 'envs=["webshop"]'} <= set(command)


def test_a_dry_run_of_the_paper_tier_shows_its_gpu_hours(dry_run):
    words = (
        "--tier",
        "paper",
        "--env",
        "alfworld",
        "--method",
        "grpo,r3l",
        "--model",
        "qwen2.5-1.5b",
        "--seed",
        "0",
    )
    planned = dry_run(*words, "--profile", "slurm")
    assert [row["method"] for row in planned["gpu_hours"]] == ["grpo", "r3l"]
    hours = max(row["gpu_hours"] for row in planned["gpu_hours"]) / 8  # of a run on one node
    restarts = planned["command"][planned["command"].index("--restart-times") + 1]
    assert int(restarts) == math.ceil((0.5 + 1.5 * hours) / 24) - 1 + 5  # in jobs of 24; and the profile's
    assert (
        "--restart-times" not in dry_run("--env", "math", "--method", "grpo", "--profile", "slurm")["command"]
    )


def test_a_dry_run_on_a_cluster_lists_all_that_is_to_edit_or_to_fetch(dry_run, tmp_path, monkeypatch):
    for variable in ("HF_HOME", "XDG_CACHE_HOME", "ALFWORLD_DATA"):
        monkeypatch.setenv(variable, str(tmp_path / "empty"))
    monkeypatch.delenv("R3L_WEBSHOP", raising=False)
    words = ("--tier", "paper", "--method", "r3l", "--model", "qwen2.5-1.5b", "--profile", "slurm")
    profile, weights, games, products = dry_run(*words, "--env", "alfworld,webshop")["to_prepare"]
    assert "slurm_account is still YOUR_ACCOUNT" in profile and "slurm_partition is still" in profile
    assert "weights of qwen2.5-1.5b" in weights and "hf download Qwen/Qwen2.5-1.5B-Instruct" in weights
    assert "data of alfworld" in games and "alfworld-download" in games
    assert "data of webshop" in products and "r3l data catalogue" in products
    # What is shipped is there.
    assert len(dry_run("--env", "webshop", "--method", "r3l", "--profile", "slurm")["to_prepare"]) == 1
    assert dry_run("--env", "webshop", "--method", "r3l")["to_prepare"] == []


def test_what_is_to_edit_is_shown_before_snakemake_plans(folder, monkeypatch, capfd):
    """Planning the paper's Table 1 takes snakemake ten seconds and more."""

    def planned(command, renamed):
        print("snakemake plans")
        return {"train": 1}

    monkeypatch.chdir(folder)
    monkeypatch.setattr("r3l.cli.run.count_jobs", planned)
    words = ("--tier", "paper", "--env", "webshop", "--method", "r3l", "--model", "qwen2.5-1.5b")
    code, out, _ = run(monkeypatch, capfd, "run", *words, "--profile", "slurm", "--dry-run")
    assert code == 0
    shown = [out.index(text) for text in ("YOUR_ACCOUNT", "data of webshop", "snakemake plans", "GPU hours")]
    assert shown == sorted(shown)


def test_a_placeholder_ends_a_run_before_any_work(folder, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    code, _, err = run(monkeypatch, capfd, "run", "--tier", "paper", "--profile", "slurm")
    assert code == 2 and "slurm_account is still YOUR_ACCOUNT" in err and "slurm_partition" in err
    assert list(folder.iterdir()) == []


def test_snakemake_counts_jobs_by_rule_in_a_dry_run_and_lists_them_with_p(folder):
    def listed(*options):
        return Program("snakemake", "-n", *options, *fixed, *given, folder=folder).wait()

    fixed = ("--snakefile", ROOT / "Snakefile", "--workflow-profile", "none", "results/table1.csv")
    given = ("--config", "envs=[math]", "methods=[grpo,r3l]")
    code, stdout, stderr = listed()
    assert code == 0 and jobs(stdout + stderr)["train"] == 2 and "rule train" not in stdout + stderr
    code, stdout, stderr = listed("-p")
    assert code == 0 and len(re.findall("^rule train:", stdout + stderr, flags=re.M)) == 2


@pytest.fixture
def moved(tmp_path_factory, monkeypatch):
    """This checkout elsewhere, all files new, with a comment in a task set's file, and a further such
    file."""
    checkout = tmp_path_factory.mktemp("moved")
    for name in ("Snakefile", "workflow", "configs", "r3l", "envs", "baselines", "pyproject.toml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, checkout / name)
    (checkout / "results").symlink_to(ROOT / "results")
    task_sets = checkout / "configs" / "task_sets"
    with (task_sets / "math_nano.yaml").open("a") as file:
        file.write("# a comment\n")
    shutil.copyfile(task_sets / "math_nano.yaml", task_sets / "math_mine.yaml")
    monkeypatch.setenv("PYTHONPATH", str(checkout))
    return checkout


def test_a_finished_run_is_made_again_for_its_meaning_only(folder, moved):
    """Its files are made by hand, and noted by snakemake as done. The folder is copied too, without these
    notes."""
    run_dir = f"results/{cell('dapo_templated', 'zero_shot')}/seed0"
    further = f"{run_dir}/evaluations/gsm8k_templated/test/evaluation.json"
    run = (
        f"{run_dir}/evaluation.json",
        "results/budget.csv",
        "--config",
        "methods=[zero_shot]",
        "envs=[dapo_templated]",
    )
    made = [f"{run_dir}/result.json", run[0], *(f"results/budget.{kind}" for kind in ("csv", "tex", "md"))]
    make_by_hand(folder, "results/task_sets/nano/dapo_templated.json", *made)
    recorded = {"fingerprint": resolve("nano", "dapo_templated", "zero_shot", 0).fingerprint()}
    (folder / run_dir / "manifest.json").write_text(json.dumps(recorded))
    code, text = snakemake(folder, *run, how=("--cores", "1", "--touch", "--forceall"))
    assert code == 0, text
    copied = folder / "copied"
    shutil.copytree(
        folder / "results", copied / "results", copy_function=shutil.copyfile
    )  # all times are new
    for where in (folder, copied):
        code, text = snakemake(where, *run, checkout=moved)
        assert code == 0 and jobs(text) == {}, text
    _, text = snakemake(folder, further, *run, 'set=["sampling.temperature=0.5"]')
    assert jobs(text) == {"train": 1, "evaluate": 1, "evaluate_further": 1, "budget": 1, "total": 4}, text


def make_by_hand(folder, *files):
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seedz": [1]}, r"did you mean 'seeds'\?"),
        ({"method": ["grpo"]}, "did you mean 'methods'"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [1, 1]}, "names something twice"),
        ({"methods": ["grp0"]}, "no method 'grp0'"),
    ],
)
def test_bad_configuration_is_an_error_of_ours(changes, message):
    with pytest.raises(ConfigError, match=message):
        Jobs(content(**changes), {})


def content(**changes):
    return yaml.safe_load(plan.WORKFLOW.read_text()) | changes


def test_runs_are_cells_by_seeds():
    runs = plan.runs(plan.load(content(seeds=[0, 5], methods=["grpo"], envs=["alfworld", "webshop"])), TABLE1)
    cells = [cell(env, "grpo") for env in ("alfworld", "webshop")]
    assert start_model() != start_model("webshop")  # an environment may have its own
    assert list(runs) == [f"{cell}/seed{seed}" for cell in cells for seed in (0, 5)]


def test_only_meaning_changes_the_fingerprint():
    def prints(**changes):
        return [run.fingerprint() for run in plan.runs(plan.load(content(**changes)), TABLE1).values()]

    assert prints() == prints(set=["workers=7"])
    assert prints() != prints(set=["train.steps=7"])
    assert len(set(prints(seeds=[0, 1]))) == 18


@pytest.mark.slow
def test_snakemakes_own_lint_misses_only_conda(folder):
    _, text = snakemake(folder, how=("--lint",))
    found = set(re.findall(r"^    \* (.*)", text, re.MULTILINE))
    assert found == {"Specify a conda environment or container for each rule.:"}, text
