"""Child processes of a run: Ray and Trinity, in their own virtual environment. They end with this process."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import psutil

from r3l.config import own_variables
from r3l.core.errors import ConfigError, EngineError
from r3l.core.named_folders import named_folder
from r3l.files.cleanup import temporary_folder
from r3l.files.paths import ROOT
from r3l.processes.parent import end_with_parent, kill

START = 120.0  # seconds within which Ray must start; our choice
TRIES = 5  # attempts to start it; our choice
STARTED = b"Ray runtime started"  # printed by `ray start`
LOOPBACK = "127.0.0.1"
COUNT = """
import ray
ray.init(log_to_driver=False)
print(len(ray.nodes()), int(ray.cluster_resources().get("GPU", 0)))
"""
SECONDS_TO_END = 10.0  # after SIGTERM, for a process and its children; then they are killed


@dataclass(frozen=True)
class TrinityEnvironment:
    """The virtual environment in ``folder``, in which Trinity-RFT and Ray are installed."""

    folder: Path

    @classmethod
    def find(cls) -> Self:
        """The environment in the folder $R3L_TRINITY, else in .venv-trinity, which `make trinity` makes.

        Raises ConfigError if R3L_TRINITY names no directory, or if the folder has no program ``trinity``.
        """
        folder = named_folder("R3L_TRINITY") or ROOT / ".venv-trinity"
        if not (folder / "bin" / "trinity").is_file():
            raise ConfigError(
                f"the trinity engine needs its own virtual environment, and {folder} has none: run "
                "`make trinity`, or set R3L_TRINITY to one with trinity-rft 0.6.0 and this package"
            )
        return cls(folder)

    def has(self, package: str) -> bool:
        """True if a package of this import name is installed in the environment."""
        return any((self.folder / "lib").glob(f"python*/site-packages/{package}"))

    def program(self, name: str) -> str:
        """Path of the program ``name`` in the environment; not checked."""
        return str(self.folder / "bin" / name)

    @contextmanager
    def ray(
        self, folder: Path, ip: str, sizes: Mapping[str, int], variables: Mapping[str, str] | None = None
    ) -> Iterator[Ray]:
        """Start a Ray cluster's head process at this node's address ``ip``; it ends with the block.

        ``folder``: folder of the logs. ``sizes``: resources of this node (``num-gpus``, ...), which replace
        the values that Ray detects. ``variables``: additional environment variables. Raises EngineError if
        Ray does not start at the fifth attempt.
        """
        # Free ports, since several runs may share a machine.
        port = _free_port()
        options = {
            "node-ip-address": ip,
            "port": port,
            "ray-client-server-port": _free_port(),
            "min-worker-port": 0,  # any free port
            "max-worker-port": 0,
            "include-dashboard": "false",
            **sizes,
        }
        address = f"{ip}:{port}"
        ray = Ray(self, folder, address, self._variables(folder, address) | dict(variables or {}))
        arguments = ["--head", "--block", "--disable-usage-stats"]
        arguments += [f"--{k}={v}" for k, v in options.items()]
        with temporary_folder("r3l-ray-") as temporary:  # Ray has sockets there, whose paths must be short
            command = [self.program("ray"), "start", *arguments, f"--temp-dir={temporary}"]
            with ExitStack() as stack:
                yield replace(ray, heads=(_started(ray, command, stack),))

    def joined(self, folder: Path, address: str) -> Ray:
        """The Ray cluster that runs at ``address`` already; nothing is started, ended or checked.

        ``folder``: folder of the logs.
        """
        return Ray(self, folder, address, self._variables(folder, address))

    def gpus_of(self, address: str) -> int:
        """Number of GPUs of the running Ray cluster at ``address``; ConfigError if it does not answer."""
        counted = self.count(self._variables(Path(), address))
        if counted is None:
            raise ConfigError(
                f"no Ray cluster answers at RAY_ADDRESS={address}: start one with {self.program('ray')} "
                "start --head, or unset RAY_ADDRESS to have one started here"
            )
        return counted[1]

    def count(self, variables: Mapping[str, str]) -> tuple[int, int] | None:
        """(number of nodes, number of GPUs) of a running Ray cluster; None if it does not answer.

        ``variables``: environment variables for the process that asks it; RAY_ADDRESS names the cluster.
        """
        command = [self.program("python"), "-c", COUNT]
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, check=False, preexec_fn=end_with_parent
        )
        if done.returncode:
            return None
        nodes, gpus = done.stdout.splitlines()[-1].split()
        return int(nodes), int(gpus)

    def _variables(self, folder: Path, address: str) -> dict[str, str]:
        """Environment variables of all processes that use the cluster at ``address``."""
        # The user's own modules, such as environments, must stay importable in every process.
        path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
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
            # Else Ray starts a worker for each CPU in its configuration, more than there are.
            "RAY_prestart_worker_first_driver": "0",
            "RAY_enable_worker_prestart": "0",
        }


@dataclass(frozen=True)
class Ray:
    """A Ray cluster at ``address``, for which we start processes.

    ``folder``: folder of their logs; ``variables``: their environment variables. ``heads``: the process that
    runs the cluster's head, if we started it (it ends as soon as any of Ray's own processes does); else
    empty.
    """

    environment: TrinityEnvironment
    folder: Path
    address: str
    variables: Mapping[str, str]
    heads: tuple[subprocess.Popen[bytes], ...] = ()

    def log_tail(self) -> str | None:
        """The end of ray.log as text for a message, if the head that we started has ended; else None."""
        if all(head.poll() is None for head in self.heads):
            return None
        path = self.folder / "ray.log"
        return f"Ray ended; the end of {path}:\n{path.read_text(errors='replace')[-2000:]}"

    def wait(self, started: subprocess.Popen[bytes], log: str, nodes: int = 1) -> None:
        """Wait until the cluster has this many ``nodes``.

        Raises EngineError, with the end of the file ``log``, after START (120) seconds or as soon as the
        process ``started`` ends.
        """
        began = time.monotonic()
        while True:
            # `ray start` says itself when one node is up. Asking Ray takes seconds of a core each time.
            if nodes == 1:
                is_up = STARTED in (self.folder / "ray.log").read_bytes()
            else:
                counted = self.environment.count(self.variables)
                is_up = counted is not None and counted[0] >= nodes
            if is_up:
                return
            if started.poll() is not None or time.monotonic() - began > START:
                text = (self.folder / log).read_text(errors="replace")
                where = "" if nodes == 1 else f" on {nodes} nodes"
                end = f"the end of {self.folder / log}:\n{text[-2000:]}"
                raise EngineError(f"Ray did not start{where}; {end}")
            time.sleep(0.5)

    def trinity(self, config: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Start `trinity run` with the file ``config`` for the block; its output goes to trinity.log."""
        command = [self.environment.program("trinity"), "run", "--config", str(config)]
        return self.process(command, "trinity.log")

    def process(
        self, command: Sequence[str], log: str, variables: Mapping[str, str] | None = None
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Start ``command`` for the block, after which it and its descendants are ended.

        ``log``: file in ``folder`` for its output. ``variables``: its environment variables; None: the
        cluster's.
        """
        return _running(command, self.folder / log, variables or self.variables)


def _started(ray: Ray, command: Sequence[str], stack: ExitStack) -> subprocess.Popen[bytes]:
    """Start Ray's head; it ends with ``stack``. Raises EngineError after TRIES attempts.

    Ray ends if its agents, which import much, are not ready within 15 s: on a busy machine they may not be.
    """
    for tries_left in reversed(range(TRIES)):
        with ExitStack() as attempt:
            head = attempt.enter_context(ray.process(command, "ray.log"))
            try:
                ray.wait(head, "ray.log")
            except EngineError:
                if not tries_left:
                    raise
            else:
                stack.push(attempt.pop_all())
                return head
    raise AssertionError


@contextmanager
def _running(
    command: Sequence[str],
    log: Path,
    variables: Mapping[str, str],
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``command`` with its output in ``log``; it and all its descendants end with the block."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=dict(variables),
            start_new_session=True,  # Ctrl-C reaches only this process, which then ends the others in order
            preexec_fn=end_with_parent,
        )
        try:
            yield process
        finally:
            # List the process and its descendants before it ends: afterwards some can no longer be found.
            # By session, since children of a killed process have lost their parent; and by parent, since
            # others may have left the session.
            family: list[psutil.Process] = []
            for one in psutil.process_iter():
                with suppress(ProcessLookupError):
                    if os.getsid(one.pid) == process.pid:
                        family.append(one)
            with suppress(psutil.NoSuchProcess):
                root = psutil.Process(process.pid)
                family += [one for one in (root, *root.children(recursive=True)) if one not in family]

            # SIGTERM goes only to the process, so that Ray and Trinity can shut down in order; then
            # everything left is killed.
            process.terminate()
            _, left = psutil.wait_procs(family, timeout=SECONDS_TO_END)
            kill(left)
            psutil.wait_procs(left, timeout=10)
            process.wait()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
