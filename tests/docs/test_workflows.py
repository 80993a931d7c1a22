"""What the GitHub workflows and .ci/run do is in the Makefile, target by target."""

from __future__ import annotations

import re

import pytest
import yaml

from r3l.files.paths import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(workflow):
    """Every command of a workflow, once a value of its matrix."""
    for job in yaml.safe_load(workflow.read_text())["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        targets = [*matrix.get("target", [""]), *(case["target"] for case in matrix.get("include", []))]
        for step in (step for step in job["steps"] if "run" in step):
            yield from {step["run"].replace("${{ matrix.target }}", target) for target in targets}


def called(command):
    """The target of a call of make; None for any other command."""
    match = re.match(r"make (\w+)( |$)", command)
    return match[1] if match else None


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_command_is_a_target_of_make(workflow):
    found = list(commands(workflow))
    assert found and {called(command) for command in found} <= TARGETS


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_the_python_that_was_set_up_is_the_one_that_is_used(workflow):
    """The Makefile would take the newest suitable one of the machine."""
    assert all(" PYTHON=python " in command for command in commands(workflow))


def test_all_checks_run_somewhere():
    found = {called(command) for workflow in WORKFLOWS for command in commands(workflow)}
    assert found == {"test", "lint", "docs", "dist", "slow"}


def test_ci_calls_targets_of_make():
    lines = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("make ")]
    assert lines and {called(line) for line in lines} <= TARGETS
