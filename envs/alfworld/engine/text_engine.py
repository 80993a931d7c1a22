"""Fast text engine of ALFWorld, on the C library and the grammar of the original packages.

Texts, admissible commands, rewards and endings are byte-equal to ``textworld``'s PddlEnv under
``alfworld``'s AlfredDemangler; tests/envs/alfworld plays both. The reason for own code is speed: on the 274
published evaluation games (7,354 equal observations) a start takes 6 ms instead of 1,794, a step 0.37 ms
instead of 54, and a return to step 20 takes 16 microseconds instead of 2.2 s
(results/stored/bench_env_alfworld.json).
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import tempfile
import threading
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    """A ground action of the loaded problem."""

    id: int
    effects: int
    command: str
    bindings: Bindings
    feedback: Nodes


@dataclass(frozen=True)
class _GameSnapshot:
    """A state of one loaded problem. Its parts are immutable or replaced on change, so none is copied."""

    load: int
    state: int
    facts: Mapping[Signature, tuple[Row, ...]]
    commands: Mapping[str, _Operator]
    observation: Observation


class AlfworldEngine:
    """The engine of ALFWorld (an ``Environment``), which plays one game at a time.

    Not thread-safe; several engines are independent. Creating one raises EngineError unless the installed
    packages are the verified releases.
    """

    def __init__(self) -> None:
        check_versions()
        self._lib: Any = None
        self._key: tuple[str, str] | None = None
        self._loads = 0  # number of problems loaded so far; by it snapshots of different problems differ
        self._start: _GameSnapshot | None = None
        self._commands: Mapping[str, _Operator] = {}
        self._observation = Observation("")

    def reset(self, task: Task) -> Observation:
        """Start ``task``. Raises DataError, naming the task, if its game is incomplete or damaged."""
        domain, grammar_text, problem_text = game_texts(task)

        # Members of a group play the same task one after the other: its loaded problem is used again.
        key = (problem_key(domain, problem_text), grammar_text)
        if key == self._key and self._start is not None:
            return self.restore(self._start)

        # Load the translated problem into this engine's own copy of the C library.
        self._key = None
        self._start = None
        if self._lib is None:
            self._lib = take_library()
        problem = load_problem(domain, problem_text, self._lib, task.id)
        grammar = read_grammar(grammar_text, task.id)
        self._loads += 1
        self._lib.load_sas(problem.sas.encode("utf-8"))
        self._problem = problem
        self._grammar = grammar
        self._world = World(problem)
        self._changing = set(problem.changing)
        self._names = {name: shown for name, (_, shown) in problem.entities.items()}
        self._operators: dict[int, _Operator] = {}  # ground actions whose command never changes
        self._operator_names: dict[int, bytes] = {}
        self._effects: dict[bytes, tuple[Signature, Signature, Row]] = {}

        # The first observation. The original rewards steps, not starts, even if the goal already holds.
        self._observe(grammar.render(parse_nodes("#intro#"), {}, self._world))
        self._observation = replace(self._observation, reward=0.0)
        facts = dict(self._world.facts)
        self._start = _GameSnapshot(
            self._loads,
            self._lib.get_state_id(),
            facts,
            self._commands,
            self._observation,
        )
        self._key = key
        return self._observation

    def step(self, action: str) -> Observation:
        """Apply ``action`` (blanks around it are ignored) and return the next observation.

        An inadmissible action changes nothing and is answered "Nothing happens." Raises EngineError before a
        successful ``reset``.
        """
        import fast_downward

        if self._start is None:
            raise EngineError("step before a successful reset")
        operator = self._commands.get(action.strip())
        if operator is None:
            return self._observe("Nothing happens.")

        # Apply the ground action in the C library, and its effects to the facts that texts render.
        atoms = (fast_downward.Atom * operator.effects)()
        self._lib.apply_operator(operator.id, atoms)
        facts = dict(self._world.facts)
        for atom in atoms:
            raw = atom._name
            effect = self._effects.get(raw)
            if effect is None:
                name, row = parse_atom(raw.decode("cp1252"))
                types = tuple(self._problem.objects[argument] for argument in row)
                opposite = name.removeprefix("not_") if name.startswith("not_") else "not_" + name
                effect = ((name, types), (opposite, types), row)
                self._effects[raw] = effect
            becomes, ceases, row = effect
            facts[ceases] = _without(facts.get(ceases, ()), row)
            facts[becomes] = _with(facts.get(becomes, ()), row)
        self._world.facts = facts
        return self._observe(self._grammar.render(operator.feedback, operator.bindings, self._world))

    def snapshot(self) -> _GameSnapshot:
        """The current state; valid until another task is reset. Takes microseconds.

        Raises EngineError before the first successful reset.
        """
        if self._start is None:
            raise EngineError("snapshot before a successful reset")
        facts = dict(self._world.facts)
        return _GameSnapshot(self._loads, self._lib.get_state_id(), facts, self._commands, self._observation)

    def restore(self, snapshot: Any) -> Observation:
        """Return to ``snapshot``. Raises EngineError for a snapshot of another problem."""
        if not isinstance(snapshot, _GameSnapshot) or self._lib is None or snapshot.load != self._loads:
            raise EngineError("the snapshot belongs to another game than the one now loaded")
        self._lib.set_state_id(snapshot.state)
        self._world.facts = dict(snapshot.facts)
        self._commands = snapshot.commands
        self._observation = snapshot.observation
        return self._observation

    def close(self) -> None:
        if self._lib is not None:
            _IDLE.append(self._lib)
        self._lib = None
        self._key = None
        self._start = None

    def _observe(self, text: str) -> Observation:
        """Set the admissible commands and the observation of the current state."""
        import fast_downward

        listed = (fast_downward.Operator * self._lib.get_applicable_operators_count())()
        self._lib.get_applicable_operators(listed)
        commands: dict[str, _Operator] = {}
        seen: set[bytes] = set()
        for entry in listed:
            # Reading a name from C is slow, so names are kept by number.
            number = entry.id
            name = self._operator_names.get(number)
            if name is None:
                name = entry._name
                self._operator_names[number] = name
            if name in seen:
                continue
            seen.add(name)
            operator = self._operators.get(number)
            if operator is None:
                # Parameters that Fast Downward adds come last and have no argument.
                action, *arguments = name.decode("cp1252").split()
                template, feedback = self._grammar.actions[action]
                places = [(place, kind) for place, kind in self._problem.parameters[action]]
                bindings: Bindings = dict(zip(places, arguments, strict=False))
                command = self._grammar.render(template, bindings, self._world).format_map(self._names)
                operator = _Operator(number, entry.nb_effect_atoms, command, bindings, feedback)
                # A command that depends on facts that change must be rendered again in every state.
                if not query_predicates(template) & self._changing:
                    self._operators[number] = operator
            commands.setdefault(operator.command, operator)  # the first of several, as in the original
        self._commands = commands

        won = bool(self._lib.check_goal())
        self._observation = Observation(text, tuple(sorted(commands)), float(won), won, won)
        return self._observation


def _with(rows: tuple[Row, ...], row: Row) -> tuple[Row, ...]:
    """Sorted ``rows`` with ``row`` added."""
    at = bisect_left(rows, row)
    return rows if at < len(rows) and rows[at] == row else (*rows[:at], row, *rows[at:])


def _without(rows: tuple[Row, ...], row: Row) -> tuple[Row, ...]:
    """Sorted ``rows`` with ``row`` removed."""
    at = bisect_left(rows, row)
    return (*rows[:at], *rows[at + 1 :]) if at < len(rows) and rows[at] == row else rows


def read_grammar(text: str, task_id: str) -> Grammar:
    """Parse the grammar ``text`` of task ``task_id``. Raises DataError naming the task if that fails."""
    try:
        return load_grammar(text)
    except Exception as error:  # errors of tatsu, json and our parser: in each case the text is the cause
        raise DataError(
            f"ALFWorld task {task_id}: its grammar cannot be read ({type(error).__name__}: {error}). "
            "Fetch the game again with alfworld-download -f, or drop the task from the task set."
        ) from error


# Library handles of closed engines, kept for the next ones since loading costs milliseconds and memory.
_IDLE: list[Any] = []
_TAKING = threading.Lock()  # loading patches a global path, so two threads must not load at once

# ELF-64, little-endian (elf.h): offsets in the file header, then in a program header.
ELF_64 = b"\x7fELF\x02\x01"
PROGRAM_HEADERS = 32
ENTRY_SIZE_AND_COUNT = 54
SEGMENT = struct.Struct("<I4xQ16xQ")  # type, offset in the file, size in the file
LOADED = 1


def take_library() -> Any:
    """A handle of Fast Downward's C library for one open engine: a closed engine's, or one loaded now.

    Each engine needs its own, since a loaded library holds a single problem.
    """
    with _TAKING:
        if _IDLE:
            return _IDLE.pop()
        from fast_downward import interface

        # fast_downward copies the library file for each handle: 33 MB, of which 32 are debugging information.
        # So it is given a shortened file.
        library = Path(interface.DOWNWARD_LIB_PATH)
        with tempfile.TemporaryDirectory() as folder:
            shortened = Path(folder) / library.name
            shortened.write_bytes(loaded_part(library))
            with mock.patch.object(interface, "DOWNWARD_LIB_PATH", str(shortened)):
                handle = interface.load_lib()
    # libdownward exports these two, but its Python layer does not declare them.
    handle.get_state_id.argtypes = []
    handle.get_state_id.restype = ctypes.c_int
    handle.set_state_id.argtypes = [ctypes.c_int]
    handle.set_state_id.restype = None
    return handle


def loaded_part(path: Path) -> bytes:
    """The bytes of a shared library up to the last one that the loader maps into memory.

    Returns all bytes of a file that is not ELF-64.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content[: len(ELF_64)] != ELF_64:
            return content[:]
        (start,) = struct.unpack_from("<Q", content, PROGRAM_HEADERS)
        size, count = struct.unpack_from("<HH", content, ENTRY_SIZE_AND_COUNT)
        segments = [SEGMENT.unpack_from(content, start + number * size) for number in range(count)]
        return content[: max(offset + length for kind, offset, length in segments if kind == LOADED)]
