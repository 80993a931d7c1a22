"""ALFWorld's own text engine at full speed: the packages' C library and grammar without their waiting.

Texts, admissible commands, rewards and endings are those of ``textworld``'s PddlEnv under ``alfworld``'s
AlfredDemangler, byte for byte: tests/envs/alfworld plays both. Own code because of its speed: on the 274 published
evaluation games (7,354 equal observations) a start takes 6 ms instead of 1,794, a step 0.37 ms instead of 54, and
coming back to step 20 takes 16 microseconds instead of 2.2 s (results/stored/bench_env_alfworld.json).
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import tempfile
import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from r3l.envs.alfworld.engine.games import game_texts
from r3l.envs.alfworld.engine.textgen import (
    Bindings,
    Grammar,
    Nodes,
    World,
    load_grammar,
    parse_nodes,
    query_predicates,
)
from r3l.envs.alfworld.engine.translate import (
    Problem,
    Row,
    Signature,
    check_versions,
    load_problem,
    parse_atom,
    problem_key,
)

from r3l.core.environment import Observation
from r3l.core.errors import DataError, EngineError
from r3l.core.task import Task


@dataclass(frozen=True)
class _Operator:
    """A ground action of the current problem."""

    id: int
    effects: int
    command: str
    bindings: Bindings
    feedback: Nodes


@dataclass(frozen=True)
class _Mark:
    """A state of one loaded problem. Everything in it is immutable or replaced on change."""

    load: int
    state: int
    facts: Mapping[Signature, tuple[Row, ...]]
    commands: Mapping[str, _Operator]
    observation: Observation


class AlfworldEngine:
    """One live game (an ``Environment``). Not for use by two threads at once; engines are independent.

    Raises EngineError when the installed packages are not the proved releases.
    """

    def __init__(self) -> None:
        check_versions()
        self._lib: Any = None
        self._key: tuple[str, str] | None = None
        self._loads = 0  # tells marks of different problems apart
        self._start: _Mark | None = None
        self._commands: Mapping[str, _Operator] = {}
        self._observation = Observation("")

    def reset(self, task: Task) -> Observation:
        """Start ``task``. Raises DataError, naming the task, when its game is incomplete or damaged."""
        domain, grammar, problem = game_texts(task)
        key = (problem_key(domain, problem), grammar)
        if key == self._key and self._start is not None:
            return self.restore(self._start)
        self._key = self._start = None
        translated = load_problem(domain, problem, self._library(), task.id)
        self._load(translated, read_grammar(grammar, task.id))
        self._key = key
        return self._observation

    def step(self, action: str) -> Observation:
        """Apply ``action`` (blanks around it are ignored); one that is not admissible changes nothing."""
        if self._start is None:
            raise EngineError("step before a successful reset")
        operator = self._commands.get(action.strip())
        if operator is None:
            text = "Nothing happens."
        else:
            self._apply(operator)
            text = self._grammar.render(operator.feedback, operator.bindings, self._world)
        return self._observe(text)

    def snapshot(self) -> _Mark:
        """A mark of the present state; valid until another task is reset. Costs microseconds."""
        if self._start is None:
            raise EngineError("snapshot before a successful reset")
        return _Mark(self._loads, self._lib.get_state_id(), dict(self._world.facts), self._commands, self._observation)

    def restore(self, snapshot: Any) -> Observation:
        """Return to ``snapshot``; its observation. Raises EngineError for a mark of another problem."""
        if not isinstance(snapshot, _Mark) or self._lib is None or snapshot.load != self._loads:
            raise EngineError("the snapshot belongs to another game than the one now loaded")
        self._lib.set_state_id(snapshot.state)
        self._world.facts = dict(snapshot.facts)
        self._commands, self._observation = snapshot.commands, snapshot.observation
        return self._observation

    def close(self) -> None:
        if self._lib is not None:
            _IDLE.append(self._lib)
        self._lib = self._key = self._start = None

    def _library(self) -> Any:
        if self._lib is None:
            with _TAKING:
                self._lib = _take()
        return self._lib

    def _load(self, problem: Problem, grammar: Grammar) -> None:
        self._loads += 1
        self._lib.load_sas(problem.sas.encode("utf-8"))
        self._problem, self._grammar, self._world = problem, grammar, World(problem)
        self._changing = set(problem.changing)
        self._names = {name: shown for name, (_, shown) in problem.entities.items()}
        self._operators: dict[int, _Operator] = {}
        self._operator_names: dict[int, bytes] = {}
        self._effects: dict[bytes, tuple[Signature, Signature, Row]] = {}
        self._observe(grammar.render(parse_nodes("#intro#"), {}, self._world))
        self._observation = Observation(  # the shipped path scores steps, not starts
            self._observation.text,
            self._observation.admissible,
            0.0,
            self._observation.done,
            self._observation.success,
        )
        self._start = _Mark(
            self._loads, self._lib.get_state_id(), dict(self._world.facts), self._commands, self._observation
        )

    def _observe(self, text: str) -> Observation:
        self._commands = self._applicable()
        won = bool(self._lib.check_goal())
        self._observation = Observation(text, tuple(sorted(self._commands)), float(won), won, won)
        return self._observation

    def _applicable(self) -> dict[str, _Operator]:
        """Command -> operator, the first where several share a command (as the shipped lookup has it)."""
        import fast_downward

        listed = (fast_downward.Operator * self._lib.get_applicable_operators_count())()
        self._lib.get_applicable_operators(listed)
        commands: dict[str, _Operator] = {}
        seen: set[bytes] = set()
        for entry in listed:
            number = entry.id
            name = self._operator_names.get(number)
            if name is None:
                name = self._operator_names[number] = entry._name
            if name in seen:
                continue
            seen.add(name)
            operator = self._operators.get(number) or self._ground(number, name, entry.nb_effect_atoms)
            commands.setdefault(operator.command, operator)
        return commands

    def _ground(self, number: int, raw: bytes, effects: int) -> _Operator:
        action, *arguments = raw.decode("cp1252").split()
        template, feedback = self._grammar.actions[action]
        # Parameters that Fast Downward added itself come last and have no argument.
        places = [(name, kind) for name, kind in self._problem.parameters[action]]
        bindings: Bindings = dict(zip(places, arguments, strict=False))
        command = self._grammar.render(template, bindings, self._world).format_map(self._names)
        operator = _Operator(number, effects, command, bindings, feedback)
        if not query_predicates(template) & self._changing:
            self._operators[number] = operator
        return operator

    def _apply(self, operator: _Operator) -> None:
        import fast_downward

        atoms = (fast_downward.Atom * operator.effects)()
        self._lib.apply_operator(operator.id, atoms)
        facts = dict(self._world.facts)
        for atom in atoms:
            raw = atom._name
            effect = self._effects.get(raw)
            if effect is None:
                effect = self._effects[raw] = self._effect(raw)
            becomes, ceases, row = effect
            facts[ceases] = _without(facts.get(ceases, ()), row)
            facts[becomes] = _with(facts.get(becomes, ()), row)
        self._world.facts = facts

    def _effect(self, raw: bytes) -> tuple[Signature, Signature, Row]:
        name, row = parse_atom(raw.decode("cp1252"))
        types = tuple(self._problem.objects[argument] for argument in row)
        opposite = name.removeprefix("not_") if name.startswith("not_") else "not_" + name
        return (name, types), (opposite, types), row


def _with(rows: tuple[Row, ...], row: Row) -> tuple[Row, ...]:
    at = bisect_left(rows, row)
    return rows if at < len(rows) and rows[at] == row else (*rows[:at], row, *rows[at:])


def _without(rows: tuple[Row, ...], row: Row) -> tuple[Row, ...]:
    at = bisect_left(rows, row)
    return (*rows[:at], *rows[at + 1 :]) if at < len(rows) and rows[at] == row else rows


def read_grammar(text: str, task_id: str) -> Grammar:
    """The grammar of a task. Raises DataError, which names the task, where it cannot be read."""
    try:
        return load_grammar(text)
    except Exception as error:  # tatsu, json and compile errors alike: the text is what is wrong
        raise DataError(
            f"ALFWorld task {task_id}: its grammar cannot be read ({type(error).__name__}: {error}). "
            "Fetch the game again with alfworld-download -f, or drop the task from the task set."
        ) from error


# Loading costs milliseconds and memory: engines that are closed leave theirs to the next one.
_IDLE: list[Any] = []
_TAKING = threading.Lock()  # the library's path is a global: threads that load at once would leave each other's there

# ELF-64, little-endian (elf.h): offsets in the file header, then in a program header.
ELF_64 = b"\x7fELF\x02\x01"
PROGRAM_HEADERS, ENTRY_SIZE_AND_COUNT = 32, 54
SEGMENT = struct.Struct("<I4xQ16xQ")  # type, offset in the file, size in the file
LOADED = 1


def _take() -> Any:
    """A handle that nobody else has: libdownward holds one problem, so every open engine needs its own.

    fast_downward copies the whole file for each handle, 33 MB, of which 32 are debugging information.
    """
    if _IDLE:
        return _IDLE.pop()
    from fast_downward import interface

    whole = Path(interface.DOWNWARD_LIB_PATH)
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / whole.name
        part.write_bytes(loaded_part(whole))
        with mock.patch.object(interface, "DOWNWARD_LIB_PATH", str(part)):
            handle = interface.load_lib()
    # Exported by libdownward but left out of the Python layer.
    handle.get_state_id.argtypes, handle.get_state_id.restype = [], ctypes.c_int
    handle.set_state_id.argtypes, handle.set_state_id.restype = [ctypes.c_int], None
    return handle


def loaded_part(path: Path) -> bytes:
    """The bytes of a shared library up to the last that the loader maps; all of them where it is not ELF-64."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        is_elf = whole[: len(ELF_64)] == ELF_64
        return whole[: max(_segment_ends(whole)) if is_elf else len(whole)]


def _segment_ends(whole: mmap.mmap) -> Iterator[int]:
    (start,) = struct.unpack_from("<Q", whole, PROGRAM_HEADERS)
    size, count = struct.unpack_from("<HH", whole, ENTRY_SIZE_AND_COUNT)
    for number in range(count):
        kind, offset, length = SEGMENT.unpack_from(whole, start + number * size)
        if kind == LOADED:
            yield offset + length
