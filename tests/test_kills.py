"""The standing attack: random kills of every process of a command, which goes on to what it would have been."""

import json
import random
import shutil
import time
from collections import Counter
from pathlib import Path

import kills
import pytest
from attack import SEED, kills_of
from program import Program
from start_models import cell

pytestmark = pytest.mark.attack

SMALL = ("train.steps=4", "train.tasks_per_step=2", "train.save_every=1", "threads=1", "method_settings.group_size=4")
SHORT = (*SMALL, "env_settings.max_turns=6")
RUN = ("--run-dir", "run")


def options(settings):
    return tuple(part for setting in settings for part in ("--set", setting))


def train(env, method, *settings):
    """Its command line; a later setting replaces an earlier one of the same name."""
    last = dict(setting.split("=", 1) for setting in settings)
    return ("train", "--env", env, "--method", method, *options(map("=".join, last.items())), *RUN)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a finished run of math, to evaluate."""
    folder = tmp_path_factory.mktemp("trained")
    arguments = train("math", "grpo", *SMALL, "train.steps=1", "evaluation.batch=25", "workers=1")
    code, _, stderr = Program("r3l.cli", *arguments, folder=folder).wait()
    assert code == 0, stderr
    return folder


def workflow(*methods):
    """A snakemake command line that trains and evaluates ``methods`` on mathematics."""
    snakefile = str(Path("Snakefile").absolute())
    config = {"envs": ["math"], "methods": methods, "set": SMALL}
    pairs = [f"{key}={json.dumps(value, separators=(',', ':'))}" for key, value in config.items()]
    targets = [f"results/{cell('math', method)}/seed0/evaluation.json" for method in methods]
    return ("--snakefile", snakefile, "--cores", "2", *targets, "--config", *pairs)


def jobs(role, trained):
    """What is at work when a process of ``role`` is killed."""
    if role == "java":
        science = train("scienceworld", "grpo", *SHORT, "workers=1", "train.steps=2", "train.tasks_per_step=1")
        return [kills.Job("train scienceworld", role, science)]
    if role == "snakemake":
        return [kills.Job("snakemake", role, workflow("grpo", "r3l"), "snakemake")]
    return [
        kills.Job("train math", role, train("math", "r3l", *SMALL, "workers=2")),
        kills.Job("train webshop", role, train("webshop", "grpo", *SHORT, "workers=2", "train.tasks_per_step=1")),
        kills.Job("train alfworld", role, train("alfworld", "r3l", *SHORT, "workers=1", "train.steps=2")),
        kills.Job("evaluate math", role, ("evaluate", "run"), before=trained),
    ]


@pytest.mark.parametrize("role", ["trainer", "worker", "java", "snakemake"])
def test_kills(role, trained, tmp_path, capsys):
    rng, began = random.Random(f"{SEED} {role}"), time.monotonic()
    prepared = {job: kills.quiet(job, tmp_path / f"quiet{k}") for k, job in enumerate(jobs(role, trained))}
    outcomes, late, sent = [], 0, Counter()
    while len(outcomes) < kills_of(role):
        job = rng.choice(list(prepared))
        folder = tmp_path / f"{len(outcomes)}.{late}"
        outcome = kills.kill_once(job, prepared[job], folder, rng)
        late += outcome is None
        if outcome:
            outcomes.append(outcome)
            sent[outcome.told.split(", ")[1].split()[0]] += 1
            with capsys.disabled():
                print(f"{outcome.told}: {'; '.join(outcome.wrong) or 'same'}", flush=True)
        if outcome is None or not outcome.wrong:
            shutil.rmtree(folder)
            shutil.rmtree(folder.with_name(f"{folder.name}.beside"))
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    with capsys.disabled():
        print(
            f"attack: seed {SEED}, {len(outcomes)} kills of {role} ({dict(sent)}) in {time.monotonic() - began:.0f} s: "
            f"{len(outcomes) - len(wrong)} went on to the same bytes"
        )
    assert not wrong, [(outcome.told, outcome.wrong) for outcome in wrong]
