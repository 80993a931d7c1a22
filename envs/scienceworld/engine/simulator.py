"""ScienceWorld's simulator, called directly: the original class requests all valid actions at every step.

Texts, scores and endings equal those of ``scienceworld.ScienceWorldEnv`` (tests/envs/scienceworld plays
both). 8 environments on 2 cores take 82 steps a second instead of 20, in 0.35 GB instead of 4.4
(results/stored/bench_env_scienceworld.json).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from r3l.envs.scienceworld import ScienceWorldOptions
from r3l.envs.scienceworld.engine.cache import CachedEngine, ObservationCache, open_disk_cache
from r3l.envs.scienceworld.engine.jvm import Jvm, Simulator, find_java, shared_jvm

from r3l.core.environment import Observation
from r3l.core.errors import DataError, EngineError, EngineLost
from r3l.core.task import Task

T = TypeVar("T")
FULL_SCORE = 100  # the simulator's score runs from -100 (failed) to 100 (solved)


class SimulatorLost(EngineLost):
    """The simulator failed, or its process died or hung; the next ``reset`` takes another one."""


class ScienceWorldEngine:
    """The engine of ScienceWorld (an ``Environment``), which plays one task at a time, without a cache.

    Not thread-safe; several engines are independent. Creating one starts the process's Java if needed, and
    raises EngineError if Java or the package is missing or unsuitable. Any call raises SimulatorLost if the
    simulator fails in it (the episode is then played again).
    """

    def __init__(self, options: ScienceWorldOptions | None = None) -> None:
        self.options = options or ScienceWorldOptions()
        self._jvm: Jvm = shared_jvm()
        self._simulator: Simulator | None = None
        self._tainted = False  # slow for good, since it computed a gold path
        self._started = False
        self._score = 0
        self._first_score: int | None = None
        self._largest_delta = 0  # largest gain of a step
        self._largest_gain = 0  # largest gain over the first score

    def reset(self, task: Task) -> Observation:
        """Start ``task``. The observation is the task's description and a look around.

        Payload: ``task`` (the simulator's name), ``variation``, ``simplifications`` (comma-separated, or
        "easy"). Raises DataError if it is invalid.
        """
        self._started = False
        name = task.payload.get("task")
        variation = task.payload.get("variation")
        simplifications = task.payload.get("simplifications", "easy")
        self._ensure_simulator()
        self._check(task.id, name, variation, simplifications)
        self._call(lambda s: s.load(name, variation, simplifications, False))
        description = self._call(lambda s: s.getTaskDescription())
        self._score = FULL_SCORE  # the score of the first look is not a gain of a step
        self._largest_delta = 0
        self._first_score = None
        self._largest_gain = 0
        first = self._step("look around")
        self._started = True
        return Observation(f"{description}\n{first.text}", (), first.reward, first.done, first.success)

    def step(self, action: str) -> Observation:
        """Apply ``action``, any text; if the simulator does not understand it, the observation says so.

        Raises EngineError before a successful reset. The observation's reward is the episode's reward so far
        (option ``reward``); it is done when the task is solved, lost, or over ``step_limit``.
        """
        if not self._started:
            raise EngineError("step before a successful reset")
        return self._step(action)

    def snapshot(self) -> None:
        """None: the simulator's state cannot be copied; actions are replayed instead (7 ms per step)."""
        return

    def restore(self, snapshot: Any) -> Observation:
        """Raises EngineError: there are no snapshots, so it is never called."""
        raise EngineError("ScienceWorld states are restored by replay")

    def gold_actions(self, task: Task) -> list[str]:
        """Restart ``task`` and return the simulator's own solution. Takes seconds and much memory.

        The simulator stays slow, since it then computes a path at each start: use a separate engine, never
        rollouts'. ``reset`` must follow before a step. The task's payload, with all three keys, is not
        checked.
        """
        payload = task.payload
        self._started = False
        self._ensure_simulator()
        self._call(lambda s: s.load(payload["task"], payload["variation"], payload["simplifications"], True))
        self._tainted = True
        return list(self._call(lambda s: s.getGoldActionSequence()))

    def variations(self, name: str) -> dict[str, list[int]]:
        """The simulator's split of a task type: variation numbers by ``train``, ``dev`` and ``test``.

        Loads variation 0 instead of a started task, so ``reset`` must follow. The name is not checked: the
        simulator replaces an unknown one by another.
        """
        self._started = False
        self._ensure_simulator()
        self._call(lambda s: s.load(name, 0, "easy", False))
        return {
            "train": list(self._call(lambda s: s.getVariationsTrain())),
            "dev": list(self._call(lambda s: s.getVariationsDev())),
            "test": list(self._call(lambda s: s.getVariationsTest())),
        }

    def close(self) -> None:
        """Return the simulator for other engines; a later ``reset`` takes one again."""
        if self._simulator is not None and self._jvm.alive:
            if self._tainted:
                self._discard()
            else:
                self._jvm.give(self._simulator)
        self._simulator = None
        self._started = False

    def _step(self, action: str) -> Observation:
        """Play ``action`` and keep the scores from which the option ``reward`` is computed."""
        text = self._call(lambda s: s.step(action))
        score = round(FULL_SCORE * float(self._call(lambda s: s.getScore())))
        if self._first_score is None:
            self._first_score = score
        self._largest_delta = max(self._largest_delta, score - self._score)
        self._largest_gain = max(self._largest_gain, score - self._first_score)
        self._score = score

        # The simulator's own flag stays false after a failure and at the time limit (as in the original
        # class).
        timed_out = int(self._call(lambda s: s.getNumMoves())) > self.options.step_limit
        done = bool(self._call(lambda s: s.getCompleted())) or score < 0 or timed_out
        points = {
            "score": max(0, score),
            "max_gain": self._largest_gain,
            "max_delta_released": self._largest_delta,
        }[self.options.reward]
        return Observation(str(text), (), points / FULL_SCORE, done, score == FULL_SCORE)

    def _check(self, task_id: str, name: Any, variation: Any, simplifications: str) -> None:
        """Raise DataError for an invalid payload.

        The simulator itself replaces an unknown task type by another one and ignores an unknown
        simplification.
        """
        known = self._call(lambda s: s.getTaskMaxVariations(name)) if isinstance(name, str) else -1
        if known < 1:
            raise DataError(
                f"ScienceWorld task {task_id}: payload key 'task' is {name!r}, which is not a task type",
            )
        allowed = ["easy", *self._call(lambda s: s.getPossibleSimplifications()).split(", ")]
        unknown = [s for s in simplifications.split(",") if s and s not in allowed]
        if unknown:
            raise DataError(
                f"ScienceWorld task {task_id}: payload key 'simplifications' names {unknown[0]!r}; it may "
                f"name {', '.join(allowed)}"
            )
        if not isinstance(variation, int) or not 0 <= variation < known:
            raise DataError(
                f"ScienceWorld task {task_id}: payload key 'variation' is {variation!r}; "
                + f"{name} has 0 to {known - 1}"
            )

    def _ensure_simulator(self) -> None:
        if not self._jvm.alive:
            self._jvm = shared_jvm()
            self._simulator = None
        if self._simulator is None:
            self._simulator = self._guarded(self._jvm.take)

    def _call(self, call: Callable[[Any], T]) -> T:
        if self._simulator is None:  # lost in the previous call
            raise SimulatorLost("the ScienceWorld simulator was lost")
        simulator = self._simulator
        return self._guarded(lambda: self._jvm.call(simulator, call))

    def _guarded(self, call: Callable[[], T]) -> T:
        """Call ``call`` and turn failures into SimulatorLost; a simulator that failed is discarded."""
        from py4j.protocol import Py4JError, Py4JJavaError

        try:
            return call()
        except Py4JJavaError as error:  # out of memory, or a defect of the simulator
            self._discard()
            reason = error.java_exception.toString()
            raise SimulatorLost(f"the ScienceWorld simulator failed: {reason}") from error
        except (Py4JError, OSError) as error:  # the process died, or a call exceeded its deadline
            self._simulator = None
            self._jvm.close()
            raise SimulatorLost(f"the ScienceWorld process does not answer ({error})") from error

    def _discard(self) -> None:
        if self._simulator is not None:
            self._jvm.discard(self._simulator)
        self._simulator = None
        self._tainted = False


_caches: dict[ScienceWorldOptions, ObservationCache] = {}


def create(options: ScienceWorldOptions) -> CachedEngine:
    """Create an engine; all engines of a process share one Java process and its cached observations.

    Raises EngineError if there is no Java, even if all needed observations are cached.
    """
    find_java()
    if options not in _caches:
        disk = open_disk_cache(options)
        _caches[options] = ObservationCache(lambda: ScienceWorldEngine(options), disk=disk)
    return CachedEngine(_caches[options])
