"""Equal tuning: the rule by hand, and the runs that it takes."""

import json

import pytest
from start_models import START_MODEL, cell, start_model

from r3l.config import resolve
from r3l.core.errors import ConfigError, DataError
from r3l.evaluation import tuning as of_runs
from r3l.evaluation.evaluate import evaluate_run
from r3l.evaluation.tuning import choose
from r3l.files.json_files import read_jsonl
from r3l.files.paths import ROOT
from r3l.local.engine import train
from r3l.report.tuning import tuning_table, tunings
from r3l.workflow import plan
from r3l.workflow.jobs import Jobs


def test_the_rule_by_hand():
    """Four seeds, t(3) 3.182. From 1e-4 to 3e-4: 0.1, 0.1, 0.2, 0.2, mean 0.15, error 0.0289, so above 0.058: better.
    From 3e-4 to 9e-4: -0.1, 0.1, 0.1, 0.2, mean 0.075, error 0.063: not shown, though its mean is the highest."""
    low, usual, high = [0.2, 0.4, 0.3, 0.3], [0.3, 0.5, 0.5, 0.5], [0.2, 0.6, 0.6, 0.7]
    assert choose({1e-4: low, 3e-4: usual, 9e-4: high})[0] == 3e-4
    assert choose({9e-4: high, 3e-4: usual, 1e-4: low})[0] == 3e-4  # in any order
    assert choose({1e-4: usual, 3e-4: low, 9e-4: high})[0] == 1e-4
    assert choose({1e-4: low, 3e-4: low, 9e-4: usual})[0] == 9e-4
    # Variances over two seeds: 0.02, 0.02 and 0.08, on average 0.04; of a mean of two 0.02.
    assert choose({1e-4: [0.2, 0.4], 3e-4: [0.3, 0.5], 9e-4: [0.25, 0.65]})[1] == pytest.approx(0.02**0.5)
    # Three seeds without spread show the smallest difference; two may differ alike by chance.
    assert choose({1e-4: [0.5] * 3, 3e-4: [0.5] * 3, 9e-4: [0.51] * 3}) == (9e-4, 0.0)
    assert choose({1e-4: [0.5, 0.5], 3e-4: [0.5, 0.5], 9e-4: [0.51, 0.51]}) == (1e-4, 0.0)
    assert choose({1e-4: [0, 0], 3e-4: [0, 0], 9e-4: [0, 0]})[0] == 1e-4
    with pytest.raises(ValueError, match="two seeds"):
        choose({1e-4: [0.5], 3e-4: [0.4]})


def test_a_tuning_takes_twelve_runs_as_long_as_those_of_experiments_with_seeds_of_its_own():
    place = cell("math", "rltf_sd@feedback=environment")
    runs = plan.tuning_runs("nano", "math", place.rpartition("/")[2])
    assert list(runs) == ["3.33e-05", "0.0001", "0.0003"]
    assert list(runs["0.0003"]) == [f"{place},train.lr=0.0003/seed{seed}" for seed in (100, 101, 102, 103)]
    for rate, of_rate in runs.items():
        assert {(run.train.lr, run.train.steps) for run in of_rate.values()} == {(float(rate), 60)}
        assert {run.env_settings.validation_task_set for run in of_rate.values()} == {"chain/validation"}
    with pytest.raises(ConfigError, match="zero_shot trains nothing"):
        plan.tuning_runs("nano", "math", "zero_shot")
    with pytest.raises(ConfigError, match="tier smol has no tuning settings"):
        plan.tuning_runs("smol", "alfworld", "grpo")


@pytest.mark.parametrize("chosen", [-1, 0.5, float("nan"), None, "0.0001"])
def test_a_stored_tuning_chose_a_rate_that_it_tried(tmp_path, chosen):
    content = json.loads((ROOT / "results/stored/tuning/nano/math/grpo.json").read_text())
    path = tmp_path / "tuning/nano/math/grpo.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content | {"chosen": chosen}))
    with pytest.raises(DataError, match="grpo.json: key 'chosen'"):
        tunings(tmp_path, "nano", None, None)


class Wildcards(dict):
    """As snakemake has them: keys are attributes too."""

    __getattr__ = dict.__getitem__


def test_the_workflow_knows_the_runs_of_a_tuning_by_their_names_alone():
    jobs = Jobs(plan.workflow_content(), {})
    wanted = Wildcards({"tier": "nano", "env": "alfworld", "method": "grpo"})
    assert jobs.tunings(None) == [
        f"results/tuning/nano/{env}/{method}.json" for env in jobs.config.envs for method in ("grpo", "r3l")
    ]
    evaluations = jobs.tuning_evaluations(wanted)
    assert len(evaluations) == 12
    assert all(path.endswith("/evaluations/small/validation/evaluation.json") for path in evaluations)
    place = {"tier": "nano", "env": "alfworld", "model": START_MODEL, "seed": "101"}
    place["method"] = "grpo@train.lr=0.0009"
    run = jobs.run(Wildcards(place))
    assert (run.train.lr, run.seed) == (9e-4, 101)
    with pytest.raises(ConfigError, match="no table of this configuration has"):
        jobs.run(Wildcards(place | {"model": start_model("math")}))


def test_a_tuning_is_made_of_what_its_runs_left(tmp_path):
    """Two real runs of one update, scored on the validation task set."""
    short = ["train.steps=1", "train.tasks_per_step=1", "method_settings.group_size=2", "train.lr=1e-4"]
    short += ["env_settings.max_turns=2"]
    runs = {
        tmp_path / str(seed): resolve("nano", "math", "grpo", seed, overrides=short) for seed in (100, 101)
    }
    for run_dir, run in runs.items():
        train(run, run_dir)
        with pytest.raises(DataError, match="not scored on the validation task set"):
            of_runs.tuning("grpo", {"0.0001": runs})
        evaluate_run(run_dir, "chain/validation")
    content = of_runs.tuning("grpo", {"0.0001": runs})
    assert not any(
        (run_dir / "evaluation.json").exists() for run_dir in runs
    )  # the test task set stays unseen
    (rate,) = content["rates"]
    for run_dir, tried in zip(runs, rate["runs"], strict=True):
        episodes = read_jsonl(run_dir / "evaluations" / "chain" / "validation" / "episodes.jsonl")
        assert tried["success"] == sum(e["success"] for e in episodes) / len(episodes)
        assert (len(tried["curve"]), tried["rollouts"]) == (1, 2)
    assert rate["success"] == pytest.approx(sum(tried["success"] for tried in rate["runs"]) / 2)
    assert content["chosen"] == 1e-4 and content["task_set"]["name"] == "chain/validation"
    three = content | {"rates": [rate, rate, rate]}
    (cells,) = tuning_table([three]).cells()
    assert cells[2].text.startswith("0.0001: ") and cells[2].bold
