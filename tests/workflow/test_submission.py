"""Jobs as the Slurm plugin submits them: the shells on the way to a node change no value."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from snakemake.target_jobs import parse_target_jobs_cli_args
from start_models import start_model

from r3l.config import resolve
from r3l.files.paths import ROOT, STORED_MODELS
from r3l.workflow.execution import decode_jobs
from r3l.workflow.jobs import STATE

SBATCH = """#!/bin/sh
# Keeps the script of the job as the shells left it, and refuses it.
printf '%s\\n' "$@" > sbatch.arguments
cat > sbatch.script
exit 1
"""
PROFILE = (ROOT / "workflow" / "profiles" / "slurm" / "config.yaml").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """A folder with programs `sbatch` and `sacct` on PATH, and a profile completed by a user."""
    text = re.sub(".*slurm_account:.*\n", "", PROFILE).replace("YOUR_PARTITION", "main")
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "config.yaml").write_text(re.sub("restart-times: .*", "restart-times: 0", text))
    (tmp_path / "bin").mkdir()
    # The plugin calls sacct too, which a machine without Slurm lacks: this one knows of no job.
    for name, script in {"sbatch": SBATCH, "sacct": "#!/bin/sh\n"}.items():
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("method", "model"),
    [
        ("r3l@alpha=5,retries=2", "plain"),
        ("grpo", "a $(touch ran) `touch ran` model"),
        ("r3l@alpha=5,retries=2", """it's "quoted" $HOME \\"""),
    ],
)
def test_a_submitted_job_names_the_run_that_was_planned(folder, method, model):
    shutil.copytree(STORED_MODELS / start_model("math"), folder / model)
    run = resolve("nano", "math", method, 0, str(folder / model))
    task_sets = folder / "results" / "task_sets" / "nano" / "math.json"  # of a job that runs here, before
    task_sets.parent.mkdir(parents=True)
    task_sets.write_text("{}")
    given = [f"model={folder / model}", "envs=[math]", f'methods=["{method}"]']
    environment = os.environ | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--snakefile",
        str(ROOT / "Snakefile"),
        "--profile",
        "profile",
    ]
    command += [f"results/{run.directory}/result.json", "--config", *given]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert (folder / "sbatch.script").exists(), done.stdout + done.stderr

    # The shell of the node gives these words to snakemake there.
    script = (folder / "sbatch.script").read_text().replace(sys.executable, "printf '%s\\n'")
    words = subprocess.run(
        ["sh"], cwd=folder, input=script, capture_output=True, text=True
    ).stdout.splitlines()
    assert words[words.index("--config") + 1 :][:3] == given
    assert not (folder / "ran").exists()
    named = parse_target_jobs_cli_args([words[words.index("--target-jobs") + 1]])
    (job,) = decode_jobs(named)
    assert job.rulename == "train" and STATE.format(**job.wildcards_dict) == f"results/{run.directory}"
