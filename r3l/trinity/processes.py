"""Ray and Trinity run in an environment of their own, as child processes that end with this one."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Self

import psutil

from r3l.config import own_variables
from r3l.core.errors import ConfigError, EngineError
from r3l.files.cleanup import temporary_folder
from r3l.files.paths import ROOT
from r3l.processes.parent import end_with_parent, kill

START = 120.0  # seconds within which Ray must start; our choice
LOOPBACK = "127.0.0.1"
COUNT = "import ray; ray.init(log_to_driver=False); print(len(ray.nodes()), int(ray.cluster_resources().get('GPU', 0)))"
STUB = Path(__file__).with_name("vllm_stub")  # see its docstring
SECONDS_TO_END = 10.0  # for a process and its children to end by themselves; then they are killed


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
    def ray(
        self, folder: Path, ip: str, sizes: Mapping[str, int], variables: Mapping[str, str] | None = None
    ) -> Iterator[Ray]:
        """The head of a Ray cluster on this node's address ``ip``, which ends with the block; logs in ``folder``.

        ``sizes``: resources of this node (``num-gpus``, ...), in place of those that Ray detects.
        """
        port, client = _free_port(), _free_port()
        options = {
            "node-ip-address": ip,
            "port": port,
            "ray-client-server-port": client,
            "min-worker-port": 0,  # any free one
            "max-worker-port": 0,
            "include-dashboard": "false",
            **sizes,
        }
        ray = Ray(self, folder, f"{ip}:{port}", self._variables(folder, f"{ip}:{port}") | dict(variables or {}))
        arguments = ["--head", "--block", "--disable-usage-stats", *(f"--{k}={v}" for k, v in options.items())]
        with temporary_folder("r3l-ray-") as temporary:  # short: sockets lie in it
            command = [self.program("ray"), "start", *arguments, f"--temp-dir={temporary}"]
            with ray.process(command, "ray.log") as head:
                ray.wait(head, "ray.log")
                yield replace(ray, heads=(head,))

    def joined(self, folder: Path, address: str) -> Ray:
        """The cluster at ``address``, which was started elsewhere and is left running."""
        return Ray(self, folder, address, self._variables(folder, address))

    def gpus_of(self, address: str) -> int:
        """How many GPUs the Ray cluster at ``address`` has. Raises ConfigError where none answers."""
        counted = self.count(self._variables(Path(), address))
        if counted is None:
            raise ConfigError(
                f"no Ray cluster answers at RAY_ADDRESS={address}: start one with {self.program('ray')} start --head, "
                "or unset RAY_ADDRESS, and one is started here"
            )
        return counted[1]

    def count(self, variables: Mapping[str, str]) -> tuple[int, int] | None:
        """Nodes and GPUs of a cluster, None where none answers."""
        command = [self.program("python"), "-c", COUNT]
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, check=False, preexec_fn=end_with_parent
        )
        if done.returncode:
            return None
        nodes, gpus = done.stdout.splitlines()[-1].split()
        return int(nodes), int(gpus)

    def _variables(self, folder: Path, address: str) -> dict[str, str]:
        path = [str(ROOT), *([] if self._has_vllm() else [str(STUB)])]
        return {
            **os.environ,
            **own_variables(),
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(path),
            "RAY_ADDRESS": address,
            "NO_PROXY": f"{LOOPBACK},{address.rpartition(':')[0]}",
            "OMP_NUM_THREADS": "1",
            "HF_DATASETS_CACHE": str(folder.absolute() / "datasets"),
            "RAY_DEDUP_LOGS": "0",
        }

    def _has_vllm(self) -> bool:
        return any((self.folder / "lib").glob("python*/site-packages/vllm"))


@dataclass(frozen=True)
class Ray:
    """A cluster, and the variables of the processes that use it. ``heads``: its process, if we started it; it ends
    when any of Ray's own processes does."""

    environment: Environment
    folder: Path
    address: str
    variables: Mapping[str, str]
    heads: tuple[subprocess.Popen[bytes], ...] = ()

    def log_tail(self) -> str | None:
        """The end of its log where it has ended, else None."""
        if all(head.poll() is None for head in self.heads):
            return None
        path = self.folder / "ray.log"
        return f"Ray ended; the end of {path}:\n{path.read_text(errors='replace')[-2000:]}"

    def wait(self, started: subprocess.Popen[bytes], log: str, nodes: int = 1) -> None:
        """Wait until the cluster has ``nodes``. Raises EngineError with the end of ``log`` where it does not."""
        began = time.monotonic()
        while not self._has(nodes):
            if started.poll() is not None or time.monotonic() - began > START:
                text = (self.folder / log).read_text(errors="replace")
                wish = "" if nodes == 1 else f" on {nodes} nodes"
                raise EngineError(f"Ray did not start{wish}; the end of {self.folder / log}:\n{text[-2000:]}")
            time.sleep(0.5)

    def _has(self, nodes: int) -> bool:
        if nodes > 1:
            counted = self.environment.count(self.variables)
            return counted is not None and counted[0] >= nodes
        status = [self.environment.program("ray"), "status"]
        done = subprocess.run(status, env=self.variables, capture_output=True, check=False, preexec_fn=end_with_parent)
        return done.returncode == 0

    def trinity(self, config: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """`trinity run` with ``config``; its output is in trinity.log."""
        return self.process([self.environment.program("trinity"), "run", "--config", str(config)], "trinity.log")

    def process(
        self, command: Sequence[str], log: str, variables: Mapping[str, str] | None = None
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """A process of this cluster until the end of the block, its output in ``log`` of the folder."""
        return _running(command, self.folder / log, variables or self.variables)


@contextmanager
def _running(command: Sequence[str], log: Path, variables: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its output in ``log``; it and its descendants end with the context."""
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
        preexec_fn=end_with_parent,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    family = _family(process)
    process.terminate()
    _, left = psutil.wait_procs(family, timeout=SECONDS_TO_END)
    kill(left)
    psutil.wait_procs(left, timeout=10)
    process.wait()


def _family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The process and its descendants. If it was killed they have no parent any more, but are still in its session."""
    family = [one for one in psutil.process_iter() if _session_of(one) == process.pid]
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        family += [one for one in (root, *root.children(recursive=True)) if one not in family]
    return family


def _session_of(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return None


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
