"""A Slurm of one node on loopback, started for the tests and ended after them."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel")
CONF = Path(__file__).with_name("slurm.conf").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Slurm:
    """``environment``: what a command needs to find this Slurm."""

    environment: dict[str, str]

    def __call__(self, *command: str) -> str:
        """The output of one of Slurm's commands; its failure is ours."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def jobs(self, *states: str) -> list[tuple[str, str, str]]:
        """(id, state, rule with wildcards) of the jobs, oldest first."""
        rows = self(
            "squeue", "--states", ",".join(states) or "all", "--noheader", "--sort=i", "--format=%i %T %k"
        )
        return [tuple(row.split(" ", 2)) for row in rows.splitlines()]


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        pytest.skip(f"Slurm is not installed ({', '.join(missing)}): apt-get install slurm-wlm munge")
    folder = tmp_path_factory.mktemp("slurm")
    environment = _configure(folder)
    socket_path = folder / "munge.socket"
    munged = [
        "munged",
        "--foreground",
        "--force",
        f"--socket={socket_path}",
        f"--key-file={folder / 'munge.key'}",
    ]
    munged += [f"--{name}-file={folder / f'munge.{name}'}" for name in ("pid", "log", "seed")]
    daemons = []
    try:
        for command in (munged, ["slurmctld", "-D"], ["slurmd", "-D"]):
            daemons.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
            time.sleep(1)
        cluster = Slurm(environment)
        _wait_for_node(cluster, folder)
        yield cluster
        cluster("scancel", f"--user={os.getuid()}")
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(timeout=30)


def _configure(folder: Path) -> dict[str, str]:
    for name in ("state", "spool", "bin"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    with socket.socket() as a, socket.socket() as b:
        for one in (a, b):
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in (a, b)]
    host, user = (
        socket.gethostname().partition(".")[0],
        subprocess.check_output(["id", "-un"], text=True).strip(),
    )
    text = CONF.format(host=host, user=user, ports=ports, folder=folder, cpus=os.cpu_count())
    (folder / "slurm.conf").write_text(text)
    (folder / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
    # The plugin's job steps drop every SLURM_ variable, SLURM_CONF too: this srun knows where this Slurm is.
    srun = folder / "bin" / "srun"
    srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"\n')
    srun.chmod(0o755)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": path}


def _wait_for_node(slurm: Slurm, folder: Path) -> None:
    state = ["sinfo", "--noheader", "--format=%T"]
    for _ in range(60):
        if b"idle" in subprocess.run(state, env=slurm.environment, capture_output=True).stdout:
            return
        time.sleep(0.5)
    logs = "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("slurm*.log")))
    pytest.fail(f"the node did not come up:\n{logs}")
