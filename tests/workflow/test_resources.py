"""What jobs ask for, down to the sbatch line of the real plugin."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from program import Program
from slurm_plugin import sbatch_line
from start_models import START_MODEL

from r3l.config import resolve
from r3l.core.errors import ConfigError
from r3l.files.paths import ROOT
from r3l.report.gpu_hours import training_hours
from r3l.workflow.jobs import Jobs
from r3l.workflow.resources import (
    JobResources,
    ResourceConfig,
    ResourceRequest,
    Walltime,
    check_profile,
    load,
    requested_resources,
)

RUN = resolve("nano", "alfworld", "r3l@alpha=5", 0)
LINES = [
    {"mem_mb": 3000, "runtime": 120, "gpu": 0, "nodes": 1},
    {"tier": "nano", "gpu": 2},
    {"tier": "nano", "env": "webshop", "gpu": 4},
    {"rule": "evaluate", "runtime": 30},
    {"method": "r3l", "model": START_MODEL, "cpus": 6},
]


def config(*lines):
    walltime = Walltime(start=10, margin=2)
    return ResourceConfig(jobs=[JobResources(**line) for line in lines], walltime=walltime, sources={})


def test_later_lines_are_laid_over_earlier_ones():
    assert requested_resources(config(*LINES), "train", RUN) == ResourceRequest(
        mem_mb=3000, runtime=120, gpu=2, nodes=1, cpus=6
    )
    assert requested_resources(config(*LINES), "evaluate", RUN).runtime == 30
    assert requested_resources(
        config(*LINES), "train", resolve("nano", "webshop", "grpo", 0)
    ).model_dump() == {
        "mem_mb": 3000,
        "runtime": 120,
        "gpu": 4,
        "nodes": 1,
        "cpus": 1,  # the run's threads
        "parts": 1,
    }


@pytest.mark.parametrize(
    ("hours", "runtime", "parts"),
    [
        (None, 120, 1),
        (0.0, 10, 1),
        (0.5, 70, 1),
        (0.9, 118, 1),
        (2.0, 120, 3),
    ],  # 10 + 60 x 2 x hours, at most 120
)
def test_walltime_is_that_of_the_expected_hours_up_to_the_most(hours, runtime, parts):
    request = requested_resources(config(*LINES), "train", RUN, hours)
    assert (request.runtime, request.parts) == (runtime, parts)


@pytest.mark.parametrize(
    ("method", "steps", "hours", "runtime", "parts"),
    [  # the paper's 372.4 + 103.8 s a step of R3L, 406.2 + 87.6 of GRPO, on 16 GPUs: twice as long on 8
        ("r3l", 3, 3 * 476.2 * 2 / 3600, 30 + 72, 1),
        ("grpo", 3, 3 * 493.8 * 2 / 3600, 30 + 75, 1),
        ("r3l", 740, 740 * 476.2 * 2 / 3600, 1440, 13),  # 196 hours: 30 + 17,620 minutes
        ("zero_shot", 740, 0.0, 30, 1),
    ],
)
def test_walltime_of_the_paper_tier_by_hand(method, steps, hours, runtime, parts):
    run = resolve("paper", "alfworld", method, 0, "qwen2.5-1.5b", [f"train.steps={steps}"])
    assert training_hours(run) == pytest.approx(hours)
    request = requested_resources(load(), "train", run, training_hours(run))
    assert (request.runtime, request.parts) == (runtime, parts)


def test_a_dry_run_shows_the_walltime_of_every_job(tmp_path):
    given = ("envs=[alfworld]", "methods=[r3l]", "set=[train.steps=3]", "tier=paper", "model=qwen2.5-1.5b")
    command = ("snakemake", "-n", "-p", "--snakefile", ROOT / "Snakefile", "--workflow-profile", "none")
    code, text, _ = Program(*command, "results/table1.csv", "--config", *given, folder=tmp_path).wait()
    assert code == 0
    found = re.findall(r"^rule (\w+):(?:(?!^rule).)*? runtime=(\d+)", text, re.MULTILINE | re.DOTALL)
    assert sorted(set(found)) == [("evaluate", "480"), ("train", "102")], text


def test_nodes_share_the_gpus_equally():
    lines = [{"mem_mb": 1, "runtime": 1, "gpu": 9, "nodes": 2}]
    with pytest.raises(ConfigError, match="key 'gpu' has value 9, which cannot be shared equally by 2 nodes"):
        requested_resources(config(*lines), "train", RUN)


def test_the_committed_file_covers_every_tier():
    lines = load().jobs
    assert requested_resources(load(), "train", RUN).gpu == 0
    assert {line.tier: line.gpu for line in lines if line.rule is None} == {
        None: 0,
        "smol": 1,
        "smol_cpu": 0,
        "paper": 1,
        "rltf": 1,
    }


@pytest.mark.parametrize(
    ("method", "model", "nodes", "gpu"),
    [("r3l", "qwen2.5-1.5b", 1, 8), ("r3l", "qwen3-4b", 2, 16), ("zero_shot", "qwen3-4b", 1, 1)],
)
def test_the_paper_tier_trains_on_the_gpus_that_its_models_plan(method, model, nodes, gpu):
    run = resolve("paper", "alfworld", method, 0, model)
    job = requested_resources(load(), "train", run)
    assert (job.nodes, job.gpu) == (nodes, gpu)
    assert requested_resources(load(), "evaluate", run).gpu == 1  # a local model on one card
    on_one_card = resolve("smol", "alfworld", "r3l", 0, "qwen2.5-1.5b")
    assert requested_resources(load(), "train", on_one_card).gpu == 1  # another engine: the lines count


def test_a_job_of_two_nodes_in_both_ways_of_asking():
    job = ResourceRequest(mem_mb=800000, runtime=1440, gpu=16, nodes=2, cpus=64)
    by_number, by_name = sbatch_line(job, None), sbatch_line(job, "gpu:h200")
    for line in (by_number, by_name):
        for expected in (" -t 1440 ", " --mem 800000 ", " --nodes=2 ", " --cpus-per-task=64 "):
            assert expected in line
    assert by_number.endswith(" --gpus=16") and "--gres" not in by_number
    assert by_name.endswith(" --gres=gpu:h200:8") and "--gpus" not in by_name


def test_all_placeholders_are_named_with_what_shows_the_right_value():
    """In one message: a user who has corrected the first one would otherwise be stopped by the next."""
    with pytest.raises(ConfigError) as raised:
        check_profile({"slurm_account": "YOUR_ACCOUNT", "slurm_partition": "mine", "qos": "YOUR_QOS"})
    message = str(raised.value)
    assert message.startswith(
        "workflow/profiles/slurm/config.yaml: slurm_account is still YOUR_ACCOUNT (`sacc"
    )
    assert "qos is still YOUR_QOS (`sacctmgr" in message and "partition is" not in message
    check_profile({"slurm_account": "mine"})


@pytest.mark.parametrize("value", ["my lab", "$(id)", "a`b`", "lab;rm", "it's", "", "a,,b", "x\ny", "#"])
@pytest.mark.parametrize("key", ["slurm_account", "slurm_partition", "qos"])
def test_a_name_that_a_shell_would_read_otherwise_is_refused(key, value):
    with pytest.raises(ConfigError, match=f"{key} is .*it must be letters, digits"):
        check_profile({key: value})


@pytest.mark.parametrize("value", ["gpu-a100", "lab_1.x", "long,short", "me@site", 2024])
def test_ordinary_names_of_partitions_are_taken(value):
    check_profile({"slurm_partition": value})


def test_the_profile_says_how_gpus_are_asked_for():
    jobs = Jobs(None, {"gpu_gres": SimpleNamespace(raw="gpu")})
    wildcards = {"tier": "nano", "env": "alfworld", "model": START_MODEL, "method": "r3l", "seed": 0}
    request = {name: ask(wildcards) for name, ask in jobs.requests("train").items()}
    assert request == {"mem_mb": 3000, "runtime": 120, "nodes": 1, "gpu": None, "gres": None}
    assert jobs.threads("train")(wildcards) == 1
