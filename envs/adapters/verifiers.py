"""Environments of the library verifiers (its v1 interface); tasks are those of a taskset, by number.

An Env must have a single seat, without tools and without a container: a dialogue of texts with one or
several turns.
"""

from __future__ import annotations

import contextlib
import json
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError
from r3l.envs.adapters.base import AdaptedDialogue, AdaptedEnvironment, AdapterArguments
from r3l.envs.base.package import Options

from r3l.core.environment import Dialogue, Stop, Style
from r3l.core.option import option

if TYPE_CHECKING:
    from r3l.envs.adapters.verifiers_engine import VerifiersEngine


class VerifiersArguments(AdapterArguments):
    """The key ``arguments`` for an environment of the library verifiers."""

    taskset: dict[str, Any] = option(..., "config of the taskset: id (name of its package) and its own keys")
    turns: Literal["segments", "whole"] = option(
        "whole", "unit that a pivot can point at: a line of the response, or all of it", "our choice"
    )
    env: dict[str, Any] = option(
        {},
        "further config of its Env: id, seats (e.g. agent: {max_turns: 4})",
        "our choice",
    )


class Verifiers(AdaptedEnvironment[VerifiersArguments]):
    """An environment of the library verifiers: a taskset, which defines the rewards, and its Env."""

    arguments = VerifiersArguments
    extra = "verifiers"

    def payload(self, number: int) -> dict[str, Any]:
        """The contents of task ``number`` (from 0) of the taskset, part of the task set's hash.

        ``task``: the library's hash of the task. ``before``: the messages before its first observation.
        ``versions``: versions of verifiers and, if it is an installed package, of the taskset. Loads the
        taskset, with the ConfigErrors of :meth:`loaded`; raises DataError for a message with an image,
        IndexError if there is no such task.
        """
        from r3l.envs.adapters.verifiers_engine import messages_before

        task = self.loaded()[1][number]
        packages = {"verifiers": version("verifiers")}
        taskset = str(self.given.taskset["id"])
        # A taskset in a file next to the YAML file has no version; the file's digest is hashed instead.
        with contextlib.suppress(PackageNotFoundError):
            packages[taskset] = version(taskset)
        return {"task": task.hash, "before": messages_before(task), "versions": packages}

    def make_engine(self, options: Options) -> VerifiersEngine:
        """Create an engine; the engines of a process share the Env and its tasks.

        Raises ConfigError if the Env cannot be loaded, has too few tasks, or needs what the engine lacks.
        """
        from r3l.envs.adapters.verifiers_engine import VerifiersEngine

        return VerifiersEngine(*self.loaded(), self.given.solved_at, self.given.turns == "segments")

    def make_dialogue(self, style: Style, max_turns: int, options: Options) -> Dialogue:
        stop: Stop = "line" if self.given.turns == "segments" else "end"
        return AdaptedDialogue(self.given.domain, style, max_turns, stop)

    def loaded(self) -> tuple[Any, list[Any]]:
        """The verifiers Env, and its tasks up to the highest number that a split uses.

        Loaded once per process. Raises ConfigError if it cannot be loaded, has fewer tasks, or needs
        something that the engine lacks (``why_not``).
        """
        from r3l.envs.adapters.verifiers_engine import why_not

        end = max(end for _, end in self.given.splits.values())
        try:
            env, tasks = _load(json.dumps(self.given.taskset), json.dumps(self.given.env), end)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg'].lower()}" for e in error.errors())
            raise self.wrong("taskset", self.given.taskset, f"its Env refuses {wrong}") from error
        except Exception as error:  # code of a third party may raise anything
            fix = "install its package, or put its module into a folder of R3L_ENVS"
            why = f"it cannot be loaded: {type(error).__name__}: {' '.join(str(error).split())}"
            raise self.wrong("taskset", self.given.taskset, f"{why}; {fix}") from error
        if len(tasks) < end:
            why = f"the taskset has {len(tasks)} tasks; end each split at {len(tasks)} or before"
            raise self.wrong("splits", {k: list(v) for k, v in self.given.splits.items()}, why)
        reasons = why_not(env, tasks[0])
        if reasons:
            raise self.wrong("taskset", self.given.taskset, f"it cannot be played here: {'; '.join(reasons)}")
        return env, tasks


@cache
def _load(taskset: str, env: str, end: int) -> tuple[Any, list[Any]]:
    import verifiers.v1 as vf

    made = vf.load_environment(vf.resolve_env_config({**json.loads(env), "taskset": json.loads(taskset)}))
    return made, list(islice(made.taskset, end))
