"""Ray and Trinity as processes of their own environment, which end when this one does."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import psutil

from r3l.config import ROOT
from r3l.core.errors import ConfigError, EngineError

START = 120.0  # seconds that Ray may take to start; our choice
CPUS = 16  # that Ray is told of: its actors hold one each and mostly wait, so it is more than there are
OBJECTS = 300_000_000  # bytes of Ray's object store; our choice, far above a step's experiences at nano
STUB = Path(__file__).with_name("vllm_stub")  # see its docstring
PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class Environment:
    """A virtual environment with Trinity in it."""

    folder: Path

    @classmethod
    def find(cls) -> Self:
        """$R3L_TRINITY, else what `make trinity` makes. Raises ConfigError where there is none."""
        folder = Path(os.environ.get("R3L_TRINITY") or ROOT / ".venv-trinity")
        if not (folder / "bin" / "trinity").is_file():
            raise ConfigError(
                f"the trinity engine needs an environment of its own, and {folder} has none: run `make trinity`, or "
                "set R3L_TRINITY to a virtual environment with trinity-rft 0.6.0 and this package"
            )
        return cls(folder)

    def program(self, name: str) -> str:
        """The path of one of its programs."""
        return str(self.folder / "bin" / name)

    @contextmanager
    def ray(self, folder: Path, variables: Mapping[str, str]) -> Iterator[Ray]:
        """A Ray cluster of one node on the loopback interface; logs in ``folder``."""
        temporary = Path(tempfile.mkdtemp(prefix="r3l-ray-"))  # short: sockets lie in it
        port, client = _free_port(), _free_port()
        options = {
            "node-ip-address": "127.0.0.1",
            "port": port,
            "ray-client-server-port": client,
            "min-worker-port": 0,  # any free one
            "max-worker-port": 0,
            "num-cpus": CPUS,
            "object-store-memory": OBJECTS,
            "temp-dir": temporary,
            "include-dashboard": "false",
        }
        variables = {**self._variables(folder), **variables, "RAY_ADDRESS": f"127.0.0.1:{port}"}
        arguments = ["--head", "--block", "--disable-usage-stats", *(f"--{k}={v}" for k, v in options.items())]
        try:
            with _running([self.program("ray"), "start", *arguments], folder / "ray.log", variables) as head:
                ray = Ray(self, folder, variables)
                ray.wait(head)
                yield ray
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _variables(self, folder: Path) -> dict[str, str]:
        path = [str(ROOT), *([] if self._has_vllm() else [str(STUB)])]
        return {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(path),
            "NO_PROXY": "127.0.0.1",
            "OMP_NUM_THREADS": "1",
            "HF_DATASETS_CACHE": str(folder.absolute() / "datasets"),
            "RAY_DEDUP_LOGS": "0",
        }

    def _has_vllm(self) -> bool:
        return any((self.folder / "lib").glob("python*/site-packages/vllm"))


@dataclass(frozen=True)
class Ray:
    """A running cluster."""

    environment: Environment
    folder: Path
    variables: Mapping[str, str]

    def wait(self, head: subprocess.Popen[bytes]) -> None:
        """Until the cluster answers. Raises EngineError with the end of its log where it does not."""
        began = time.monotonic()
        status = [self.environment.program("ray"), "status"]
        while subprocess.run(status, env=self.variables, capture_output=True, check=False).returncode:
            if head.poll() is not None or time.monotonic() - began > START:
                text = (self.folder / "ray.log").read_text(errors="replace")
                raise EngineError(f"Ray did not start; the end of {self.folder / 'ray.log'}:\n{text[-2000:]}")
            time.sleep(0.5)

    @contextmanager
    def trinity(self, config: Path) -> Iterator[subprocess.Popen[bytes]]:
        """`trinity run` with ``config``; its output is in trinity.log."""
        command = [self.environment.program("trinity"), "run", "--config", str(config)]
        with _running(command, self.folder / "trinity.log", self.variables) as process:
            yield process


@contextmanager
def _running(command: Sequence[str], log: Path, variables: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its output in ``log``; it and all that it has started end with the context."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = _start(command, output, variables)
        try:
            yield process
        finally:
            _end(process)


def _start(command: Sequence[str], output: IO[bytes], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdout=output,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=dict(variables),
        start_new_session=True,  # Ctrl-C reaches us alone, and we end them in order
        preexec_fn=_end_with_parent,
    )


def _end_with_parent() -> None:
    """In a new process: be terminated when the one that started it dies, be it by SIGKILL."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(process: subprocess.Popen[bytes]) -> None:
    family = _family(process)
    process.terminate()
    _, left = psutil.wait_procs(family, timeout=10)
    for one in left:
        one.kill()
    psutil.wait_procs(left, timeout=10)
    process.wait()


def _family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        root = psutil.Process(process.pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
