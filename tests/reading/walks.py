"""Trace four walks through the code: how many files and functions a reader visits to follow one thing.

    python tests/reading/walks.py                       all four, of this checkout
    python tests/reading/walks.py set table --files     two of them, and what each file contributes
    python tests/reading/walks.py table --functions     one of them, and its functions in the order of calls
    python tests/reading/walks.py --root ../base        of another checkout (another commit's worktree)

`set`: from ``--set train.lr=...`` and a key of the method to a Run. `loss`: one training step at tier nano,
from the method's first attempt at a task to the loss of the step's last micro-batch. `table`: from the stored
runs to the printed Table 1 (all of its cells). `observation`: from an environment's name to the first
observation of a test task.

What is counted (``Trace``): functions of r3l, envs and baselines that Python calls on the main thread, each
function once; their files; and switches, how often a called function is in another file than the function
called before it. A comprehension belongs to the function that contains it; a lambda counts. Not counted: what
runs while a module is imported, torch and other packages, code that numba compiled. Each walk runs in its own
process, so caches in memory are empty; where the cache folder ($R3L_CACHE) lacks the columns of the stored
runs, `table` also counts how they are unpacked and written there.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("r3l", "envs", "baselines")
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}

# Where a public entry point is, newest first: a walk has to run before and after a module was renamed.
ENTRIES = {
    "resolve": ("r3l.config:resolve", "r3l.config.resolution:resolve"),
    "environment_of": ("r3l.config:environment_of", "r3l.config.environment:environment_of"),
    "app": ("r3l.cli:app",),
    "train": ("r3l:train", "r3l.api.running:train"),
    "ConfigError": ("r3l.core.errors:ConfigError",),
}


def entry(name: str) -> Any:
    """The object of ENTRIES that this checkout has."""
    for place in ENTRIES[name]:
        module, _, attribute = place.partition(":")
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(import_module(module), attribute)
    raise SystemExit(f"walks.py: no {name} at {' or '.join(ENTRIES[name])}; add its new place to ENTRIES")


class Trace:
    """Records every call of a function of this project, in order, while the ``with`` block runs.

    ``first`` and ``last`` are names of functions: calls before the first call of ``first`` are dropped, and
    those after the last return of ``last``.
    """

    def __init__(
        self,
        root: Path,
        packages: tuple[str, ...] = PACKAGES,
        first: str = "",
        last: str = "",
    ) -> None:
        self._folder = f"{root.resolve()}{os.sep}"
        self._prefixes = tuple(f"{self._folder}{package}{os.sep}" for package in packages)
        self._first, self._last = first, last
        self._calls: list[CodeType] = []
        self._begun = not first
        self._end = 0
        self._imports = 0  # module bodies that run at the moment

    def __enter__(self) -> Trace:
        sys.setprofile(self._record)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _record(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event not in ("call", "return"):  # a function written in C
            return
        if code.co_name == "<module>":
            self._imports += 1 if event == "call" else -1
            return
        if self._imports or not code.co_filename.startswith(self._prefixes):
            return
        if event == "return":
            if code.co_name == self._last:
                self._end = len(self._calls)
            return
        # The body of a class statement is a code object too, but not an optimised one.
        if code.co_name in COMPREHENSIONS or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        self._begun = self._begun or code.co_name == self._first
        if self._begun:
            self._calls.append(code)

    def walk(self, name: str) -> Walk:
        """The counts. Raises ValueError where ``first`` was not called or ``last`` did not return."""
        calls = self._calls[: self._end] if self._last else self._calls
        if not calls:
            raise ValueError(f"walk {name}: nothing was called between {self._first!r} and {self._last!r}")
        paths = [code.co_filename.removeprefix(self._folder) for code in calls]
        called = Counter(zip(paths, calls, strict=True))  # in the order of first calls
        visits: Counter[str] = Counter()
        ways_in: set[tuple[str, CodeType]] = set()
        before = ""
        for path, code in zip(paths, calls, strict=True):
            if path != before:
                visits[path] += 1
                ways_in.add((path, code))
                before = path
        entered = Counter(path for path, _ in ways_in)
        per_file = Counter(path for path, _ in called)
        return Walk(
            name,
            len(per_file),
            len(called),
            visits.total() - 1,
            len(calls),
            {path: (count, entered[path], visits[path]) for path, count in per_file.most_common()},
            {
                f"{path}:{code.co_firstlineno} {code.co_qualname}": times
                for (path, code), times in called.items()
            },
        )


@dataclass(frozen=True)
class Walk:
    """Counts of one walk.

    ``per_file``: the called functions of a file, those that were called from another file, and how often the
    walk came into the file. ``per_function``: the calls of each function, in the order of first calls.
    """

    name: str
    files: int
    functions: int
    switches: int
    calls: int
    per_file: dict[str, tuple[int, int, int]]
    per_function: dict[str, int]


def set_walk(root: Path) -> Walk:
    """From a key of the run and one of the method, as `r3l train --set` takes them, to a Run in ALFWorld."""
    resolve, config_error = entry("resolve"), entry("ConfigError")
    # Newer checkouts take a bare key as the method's; older ones refuse it, and it has to be written out. A
    # process of its own finds out which, since resolving fills caches.
    program = "import sys, walks; walks.entry('resolve')('nano', 'alfworld', 'r3l', 0, None, ['alpha=5'])"
    paths = os.pathsep.join([str(Path(__file__).parent), str(root)])
    environment = {**os.environ, "PYTHONPATH": paths}
    tried = subprocess.run([sys.executable, "-c", program], env=environment, cwd=root, capture_output=True)
    key = "alpha" if tried.returncode == 0 else "method_settings.alpha"
    with Trace(root) as trace:
        try:
            resolve("nano", "alfworld", "r3l", 0, None, ["train.lr=1e-4", f"{key}=5"])
        except config_error as error:
            raise SystemExit(f"walks.py: {error}") from error
    return trace.walk(f"`--set train.lr=1e-4 --set {key}=5` to a Run")


def loss_walk(root: Path) -> Walk:
    """One step of R3L on arithmetic, 8 tasks; its 3 seconds are sampling, updating and saving."""
    settings = {"train.steps": 1, "train.tasks_per_step": 8, "workers": 0}
    train = entry("train")
    with tempfile.TemporaryDirectory() as folder, Trace(root, first="explore", last="loss") as trace:
        train("math", "r3l", settings=settings, run_dir=Path(folder) / "run")
    return trace.walk("tokens to loss (r3l, math, one step)")


def table_walk(root: Path) -> Walk:
    """`r3l table table1 --results results/stored` by the command's own app."""
    app = entry("app")
    with contextlib.redirect_stdout(io.StringIO()) as printed, Trace(root) as trace:
        app(["table", "table1", "--results", "results/stored"], standalone_mode=False)
    if "R3L" not in printed.getvalue():
        raise SystemExit("walks.py: Table 1 has no row of R3L")
    return trace.walk("stored runs to the printed Table 1")


def observation_walk(root: Path) -> Walk:
    """The environment `math`: found by its name, its test tasks listed, its engine made and reset."""
    environment_of = entry("environment_of")
    with Trace(root) as trace:
        package = environment_of("math")
        task = package.tasks("nano/test")[0]
        engine = package.create({})
        engine.reset(task)
    engine.close()
    return trace.walk("environment `math` to its first observation")


WALKS: dict[str, Callable[[Path], Walk]] = {
    "set": set_walk,
    "loss": loss_walk,
    "table": table_walk,
    "observation": observation_walk,
}


def walk_in_process(name: str, root: Path) -> Walk:
    """Trace one walk in a new process, whose imports come from ``root``."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, str(Path(__file__).resolve()), name, "--here", "--root", str(root)]
    printed = subprocess.check_output(command, cwd=root, env=environment, encoding="utf-8")
    return Walk(**json.loads(printed.splitlines()[-1]))


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter  # keeps the lines of the docstring
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("walks", nargs="*", help=f"default: all of {', '.join(WALKS)}")
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout to trace")
    parser.add_argument("--files", action="store_true", help="also list the files of each walk")
    parser.add_argument("--functions", action="store_true", help="also list the functions, by first call")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names, root = arguments.walks or list(WALKS), arguments.root.resolve()
    if unknown := [name for name in names if name not in WALKS]:
        parser.error(f"unknown walk {unknown[0]!r}; known: {', '.join(WALKS)}")
    if arguments.here:
        print(json.dumps(asdict(WALKS[names[0]](root))))
        return
    walks = [walk_in_process(name, root) for name in names]
    print("| walk | files | functions | switches | calls |\n|---|---:|---:|---:|---:|")
    for walk in walks:
        print(f"| {walk.name} | {walk.files} | {walk.functions} | {walk.switches:,} | {walk.calls:,} |")
    if arguments.files:
        for walk in walks:
            print(f"\n{walk.name}:\n\n| file | functions | ways in | visits |\n|---|---:|---:|---:|")
            for path, (functions, ways_in, visits) in walk.per_file.items():
                print(f"| `{path}` | {functions} | {ways_in} | {visits:,} |")
    if arguments.functions:
        for walk in walks:
            print(f"\n{walk.name}:\n\n| function | calls |\n|---|---:|")
            for name, calls in walk.per_function.items():
                print(f"| `{name}` | {calls:,} |")


if __name__ == "__main__":
    main()
