"""Translation of PDDL problems by Fast Downward, once per problem, cached on disk.

The original translates every problem four times per game start (twice in ``load``, twice in ``reset``;
every second time only for a planner). A translation is a pure function of domain, problem and package
versions, so one result per problem is cached under ``$R3L_CACHE`` (default ``~/.cache/r3l``).
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from r3l.core.errors import DataError, EngineError
from r3l.files.paths import cache_folder
from r3l.files.unpacking import most, unpacked
from r3l.files.writing import write_atomic

# Releases whose private interfaces this package uses; results were compared with them byte for byte.
EXPECTED_VERSIONS: Mapping[str, str] = {
    "alfworld": "0.4.2",
    "textworld": "1.7.0",
    "fast-downward-textworld": "20.6.4",
}
_FORMAT = "r3l-alfworld-1"
_DIGEST_BYTES = 32
# The translator keeps its options in module globals and swaps sys.argv and sys.stdout.
_TRANSLATOR = threading.Lock()

Row = tuple[str, ...]
Signature = tuple[str, Row]


@dataclass(frozen=True)
class Problem:
    """A translated problem, as stored in the cache.

    - ``sas``: Fast Downward's input
    - ``facts``: (predicate, types, rows) of the facts that hold at the start
    - ``types``: (type, parent types)
    - ``objects``: id -> type
    - ``parameters``: action -> (name, type) of each parameter
    - ``entities``: id -> (type, displayed name)
    - ``changing``: predicates that can change
    """

    sas: str
    facts: list[tuple[str, list[str], list[list[str]]]]
    types: list[tuple[str, list[str]]]
    objects: dict[str, str]
    parameters: dict[str, list[tuple[str, str]]]
    entities: dict[str, tuple[str, str]]
    changing: list[str]


def installed_versions() -> dict[str, str]:
    """Installed version of each package in EXPECTED_VERSIONS, or "not installed"."""
    versions: dict[str, str] = {}
    for name in EXPECTED_VERSIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def check_versions() -> None:
    """Raise EngineError unless the packages of the engine have exactly the versions of EXPECTED_VERSIONS."""
    installed = installed_versions()
    wrong = [name for name, version in EXPECTED_VERSIONS.items() if installed[name] != version]
    if wrong:
        expected = EXPECTED_VERSIONS
        differences = ", ".join(f"{name} is {installed[name]}, expected {expected[name]}" for name in wrong)
        command = "pip install " + " ".join(f"{name}=={version}" for name, version in expected.items())
        raise EngineError(
            f"The ALFWorld engine uses private interfaces of pinned releases: {differences}. Run: {command}"
        )


@lru_cache(maxsize=2)
def packaged_text(name: str) -> str:
    """Text of a data file in the alfworld package (``alfred.pddl``, ``alfred.twl2``).

    Raises ModuleNotFoundError if the package is not installed.
    """
    return resources.files("alfworld").joinpath("data", name).read_text(encoding="utf-8")


def problem_key(domain: str, problem: str) -> str:
    """Cache key (hex sha256) of both PDDL texts, the cache's format and the expected package versions."""
    versions = ",".join(f"{name}={version}" for name, version in sorted(EXPECTED_VERSIONS.items()))
    digest = hashlib.sha256()
    for part in (_FORMAT, versions, domain, problem):
        encoded = part.encode("utf-8")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()


def load_problem(domain: str, problem: str, lib: Any, task_id: str) -> Problem:
    """The translation of ``problem``, from the cache or made now and cached.

    ``lib`` is a libdownward handle; a new translation leaves its problem loaded there. Raises DataError,
    naming the task, if Fast Downward cannot read the problem, and EngineError if the cache cannot be
    written.
    """
    cached = cached_problem(domain, problem)
    if cached is not None:
        return cached
    try:
        translated = _translate(domain, problem, lib)
    # The translator calls sys.exit on syntax errors. All its errors are about the data.
    except (Exception, SystemExit) as error:
        raise DataError(
            f"ALFWorld task {task_id}: its PDDL problem cannot be translated "
            f"({type(error).__name__}: {error}). The game file is damaged: fetch it again with "
            "alfworld-download -f, or drop the task from the task set."
        ) from error

    path = _cache_path(domain, problem)
    packed = zlib.compress(json.dumps(asdict(translated), separators=(",", ":")).encode("utf-8"), 6)
    try:
        write_atomic(path, hashlib.sha256(packed).digest() + packed)
    except OSError as error:
        raise EngineError(
            f"The translation cache {path.parent} cannot be written ({error}). "
            + "Set R3L_CACHE to a writable directory.",
        ) from error
    return translated


def cached_problem(domain: str, problem: str) -> Problem | None:
    """The cached translation of a PDDL domain and problem (their texts); None if it is missing or damaged."""
    path = _cache_path(domain, problem)
    try:
        raw = path.read_bytes()
    except OSError:  # missing, or unreadable: then writing the new entry reports the error
        return None
    digest = raw[:_DIGEST_BYTES]
    packed = raw[_DIGEST_BYTES:]
    if hashlib.sha256(packed).digest() != digest:
        return None
    return Problem(**json.loads(unpacked(packed, zlib.decompressobj(), most(len(packed)), path)))


def _cache_path(domain: str, problem: str) -> Path:
    key = problem_key(domain, problem)
    return cache_folder("alfworld") / key[:2] / f"{key}.bin"


def _translate(domain: str, problem: str, lib: Any) -> Problem:
    """Translate by Fast Downward, and read the facts at the start; leaves the problem loaded in ``lib``."""
    import fast_downward
    from fast_downward.translate import pddl

    with _TRANSLATOR:
        argv = sys.argv
        stdout = sys.stdout
        try:
            task, sas = fast_downward.pddl2sas(domain, problem)
        finally:
            sys.argv = argv
            sys.stdout = stdout

    # Facts at the start, in three parts: the problem's atoms, its functions other than distances ...
    objects = {item.name: item.type_name for item in task.objects}
    facts: dict[Signature, set[Row]] = {}

    def add(name: str, arguments: Row) -> None:
        types = tuple(objects[argument] for argument in arguments)
        facts.setdefault((name, types), set()).add(arguments)

    for item in task.init:
        if isinstance(item, pddl.conditions.Atom) and item.predicate != "=":
            add(item.predicate, tuple(item.args))
        elif isinstance(item, pddl.f_expression.Assign) and item.fluent.symbol != "total-cost":
            value = str(item.expression.value)
            if not value.isdigit():  # digits are distances, which no text mentions
                add(value, tuple(item.fluent.args))

    # ... and the atoms of Fast Downward's state, which include derived predicates.
    lib.load_sas(sas.encode("utf-8"))
    state = (fast_downward.Atom * lib.get_state_size())()
    lib.get_state(state)
    atoms = [parse_atom(atom.name) for atom in state]
    for name, arguments in atoms:
        if not name.startswith("not_"):
            add(name, arguments)
    return Problem(
        sas=sas,
        facts=[(name, list(types), sorted(map(list, rows))) for (name, types), rows in facts.items()],
        types=[(item.name, list(item.supertype_names)) for item in task.types],
        objects=objects,
        parameters={a.name: [(p.name.strip("?"), p.type_name) for p in a.parameters] for a in task.actions},
        entities=_display_names(facts),
        changing=sorted({name.removeprefix("not_") for name, _ in atoms}),
    )


def parse_atom(text: str) -> tuple[str, Row]:
    """Parse ``Atom p(a, b)`` or ``NegatedAtom p(a, b)`` into (``p`` or ``not_p``, arguments).

    Raises ValueError for a text without a blank and a bracket.
    """
    kind, rest = text.split(" ", 1)
    name, arguments = rest.split("(", 1)
    row = tuple(argument for argument in arguments[:-1].split(", ") if argument)
    return ("not_" + name if kind == "NegatedAtom" else name), row


def _display_names(facts: Mapping[Signature, set[Row]]) -> dict[str, tuple[str, str]]:
    """Entity id -> (type, displayed name), numbered by alfworld's own Demangler."""
    from alfworld.agents.utils.misc import Demangler
    from textworld.generator.game import EntityInfo

    types: dict[str, str] = {}
    for (_, kinds), rows in facts.items():
        for row in rows:
            types.update(zip(row, kinds, strict=True))
    demangler = Demangler(game_infos={name: EntityInfo(name, kind) for name, kind in types.items()})
    return {name: (kind, demangler.demangle_alfred_name(name)) for name, kind in types.items()}
