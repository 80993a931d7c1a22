"""What the GitHub workflows and .ci/run do is in the Makefile, target by target."""

from __future__ import annotations

import re

import yaml

from r3l.files.paths import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands():
    """Every command of every workflow, once a value of its matrix."""
    for workflow in WORKFLOWS:
        for job in yaml.safe_load(workflow.read_text())["jobs"].values():
            matrix = job.get("strategy", {}).get("matrix", {})
            targets = [*matrix.get("target", [""]), *(case["target"] for case in matrix.get("include", []))]
            for step in (step for step in job["steps"] if "run" in step):
                yield from {step["run"].replace("${{ matrix.target }}", target) for target in targets}


def test_every_command_is_a_target_of_make_with_the_python_that_was_set_up():
    """Without PYTHON the Makefile would take the newest suitable one of the machine."""
    found = list(commands())
    called = {re.match(r"make (\w+) ", command)[1] for command in found}
    assert called == {"test", "lint", "docs", "dist", "slow"} <= TARGETS
    assert all(" PYTHON=python " in command for command in found)


def test_ci_calls_targets_of_make():
    called = re.findall(r"^make (\w+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert called and set(called) <= TARGETS
