"""An Env of verifiers as an engine: its ``run`` is a coroutine that waits for the replies of whoever sits in its seat.

The library's own seat starts a program for each attempt (its harness), which asks a model server; 0.4.0 has no public
way to reply from outside. So the seat is ours, handed to ``Env.setup``, ``run`` and ``finalize``, which are public.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, TypeVar, get_origin, get_type_hints

import verifiers.v1 as vf
from r3l.envs.base.one_file import OneFileEngine
from verifiers.v1.state import state_cls

from r3l.core.environment import Observation
from r3l.core.errors import DataError, EngineError
from r3l.core.task import Task

T = TypeVar("T")
TOKEN_LIMITS = ("max_input_tokens", "max_output_tokens", "max_total_tokens")


def why_not(env: Any, task: Any) -> list[str]:
    """What an Env or its tasks need that is not there; nothing where they can be played."""
    seats = _seats(env)
    needs_runtime = [
        hook.__name__ for kind in ("reward", "metric") for hook in task.hooks(kind) if _needs_runtime(hook)
    ]
    reasons = {
        f"it has the seats {', '.join(seats)}, and one model is trained in one": len(seats) != 1,
        "it gives tools": bool(task.toolsets(task.config) or type(env.taskset).toolsets(env.taskset.config)),
        "its tasks run in a container": task.NEEDS_CONTAINER or task.data.image is not None,
        f"{', '.join(needs_runtime)} asks for a runtime": bool(needs_runtime),
        "it starts services of its own": type(env).start is not vf.Env.start,
        "it rewrites messages (@vf.intercept)": any(
            hasattr(getattr(type(task), n), "intercept") for n in dir(type(task))
        ),
        "a @vf.stop looks at requests or responses": any(
            _boundary(hook) is not vf.Trace for hook in task.hooks("stop")
        ),
        "its seat limits tokens; set sampling.max_context instead": any(
            getattr(seat, limit) is not None for seat in seats.values() for limit in TOKEN_LIMITS
        ),
    }
    return [reason for reason, holds in reasons.items() if holds]


def messages_before(task: Any) -> list[dict[str, str]]:
    """What a task shows before the message that is the first observation: its system prompt, and examples."""
    messages = [_as_text(message) for message in _opening(task)]
    return messages if task.data.prompt is None else messages[:-1]


class VerifiersEngine(OneFileEngine):
    """One episode at a time; all engines of a process run in one event loop, on a thread of its own.

    ``by_line``: an action that ends with a line break is a line of a response that goes on.
    """

    def __init__(self, env: Any, tasks: list[Any], solved_at: float, by_line: bool) -> None:
        self._env, self._tasks, self._solved_at, self._by_line = env, tasks, solved_at, by_line
        self._response = ""
        self.refusal: EngineError | None = None  # what of its Env cannot be played at all
        self._episode: asyncio.Task[float] | None = None
        self._said: asyncio.Queue[list[Any]]
        self._replies: asyncio.Queue[str]

    def reset(self, task: Task) -> Observation:
        """Start an episode. Raises EngineError where it ends before anything is asked."""
        return _in_loop(self._start(task))

    def step(self, action: str) -> Observation:
        """Reply, once a response is whole, and wait for what is said to it, or for the end and its reward."""
        if self._episode is None or (self._episode.done() and self._episode.exception() is None):
            raise EngineError("step before a successful reset")
        self._response += action
        if self._by_line and action.endswith("\n"):
            return Observation("")
        response, self._response = self._response, ""
        now = _in_loop(self._answer(response))
        if self.refusal is not None:
            raise self.refusal
        return now

    def close(self) -> None:
        _in_loop(self._cancel())

    async def ask(self, messages: list[Any]) -> str:
        """The reply to a dialogue. Called by the seat."""
        await self._said.put(messages)
        return await self._replies.get()

    async def _start(self, task: Task) -> Observation:
        await self._cancel()
        self._response = ""
        mine = self._tasks[task.payload["number"]]
        if mine.hash != task.payload["task"]:
            raise DataError(f"task {task.id} is another one in each process: the taskset is not deterministic")
        self._said, self._replies = asyncio.Queue(), asyncio.Queue()
        self._episode = asyncio.create_task(self._play(mine))
        messages = await self._next()
        if messages is None:
            error = self._episode.exception()
            raise EngineError(f"task {task.id} ended before anything was said: {error!r}") from error
        if [_as_text(message) for message in messages[:-1]] != task.payload["before"]:
            raise DataError(f"task {task.id}: its Env shows other messages first than those of the task")
        return Observation(_as_text(messages[-1])["content"])

    async def _answer(self, response: str) -> Observation:
        assert self._episode is not None
        await self._replies.put(response)
        messages = await self._next()
        if messages is not None:
            return Observation(_as_text(messages[-1])["content"])
        error = self._episode.exception()
        if error is not None:
            return Observation("", done=True, failed=f"{type(error).__name__}: {error}")
        reward = self._episode.result()
        return Observation("", reward=reward, done=True, success=reward >= self._solved_at)

    async def _next(self) -> list[Any] | None:
        """What is said next; None where the episode has ended."""
        assert self._episode is not None
        said = asyncio.create_task(self._said.get())
        await asyncio.wait({said, self._episode}, return_when=asyncio.FIRST_COMPLETED)
        if said.done():
            return said.result()
        said.cancel()
        return None

    async def _play(self, task: Any) -> float:
        """An episode as ``Env.run_episode`` has it, with our seat; its reward."""
        config = self._env.config
        episode = vf.Episode(env=vf.EnvInfo(id=config.env_id), task=_recorded(task))
        agents = vf.Agents(config, lambda name, seat: Seat(self, name, seat, episode.traces))
        await self._env.setup(agents)
        await self._env.run(task, agents)
        episode.ok = True
        await self._env.finalize(task, episode)
        return float(sum(trace.reward for trace in episode.traces))

    async def _cancel(self) -> None:
        if self._episode is not None:
            self._episode.cancel()
            await asyncio.wait({self._episode})
            self._episode = None


class Seat:
    """In the place of a vf.Agent: what is said there goes to the engine, without any program or model server."""

    def __init__(self, engine: VerifiersEngine, name: str, config: Any, finished: list[Any]) -> None:
        self._engine, self._name, self._config, self._finished = engine, name, config, finished
        self._taken = False
        self.trainable = True

    async def run(self, task: Any) -> Any:
        """One reply to the task's prompt; its trace, scored."""
        async with self.interaction(task) as talk:
            await talk.turn()
        return talk.trace

    @asynccontextmanager
    async def interaction(self, task: Any) -> AsyncIterator[Conversation]:
        """A dialogue, whose trace is scored at its end."""
        if self._taken:
            many = f"the Env has several dialogues with its seat {self._name!r}, but an episode of r3l is one dialogue"
            self._engine.refusal = EngineError(many)
            raise self._engine.refusal
        self._taken = True
        info = vf.AgentInfo(config=self._config, name=self._name, trainable=self.trainable)
        trace = vf.Trace(task=_recorded(task), agent=info, state=state_cls(type(task))())
        await _call(task.setup, trace)
        yield Conversation(self._engine, task, trace, self._config.max_turns)
        trace.stop("user_closed")
        await _call(task.finalize, trace)
        await task.score(trace)
        trace.ok = True
        self._finished.append(trace)


class Conversation:
    """In the place of a vf.Interaction."""

    def __init__(self, engine: VerifiersEngine, task: Any, trace: Any, max_turns: int | None) -> None:
        self._engine, self._task, self._max_turns = engine, task, max_turns
        self._opening = _opening(task)
        self.trace = trace

    async def turn(self, message: Any = None) -> Any:
        """The reply to the prompt or to a further message; ``terminated`` where a limit or a @vf.stop ends it."""
        if await self._is_over():
            return vf.Segment(messages=[], terminated=True)
        for said in self._opening:
            self._add(said)
        self._opening = []
        for said in [message] if isinstance(message, str) else message or []:
            self._add(vf.UserMessage(content=said) if isinstance(said, str) else said)
        reply = vf.AssistantMessage(content=await self._engine.ask([node.message for node in self.trace.nodes]))
        self._add(reply, sampled=True)
        self.trace.calls.append(vf.ModelCall(node=len(self.trace.nodes) - 1, finish_reason="stop"))
        return vf.Segment(messages=[reply])

    def _add(self, message: Any, sampled: bool = False) -> None:
        nodes = self.trace.nodes
        nodes.append(vf.MessageNode(parent=len(nodes) - 1 if nodes else None, message=message, sampled=sampled))

    async def _is_over(self) -> bool:
        if self._max_turns is not None and self.trace.num_turns >= self._max_turns:
            self.trace.stop("max_turns")
        for hook in self._task.hooks("stop"):
            stopped = hook(self.trace)
            if await stopped if inspect.isawaitable(stopped) else stopped:
                self.trace.stop(hook.__name__)
        return self.trace.stop_condition is not None


def _opening(task: Any) -> list[Any]:
    """The messages of a task itself."""
    data = task.data
    system = [] if data.system_prompt is None else [vf.SystemMessage(content=data.system_prompt)]
    return [*system, *([vf.UserMessage(content=data.prompt)] if isinstance(data.prompt, str) else data.prompt or [])]


def _as_text(message: Any) -> dict[str, str]:
    """Role and text. Raises DataError for a picture."""
    content = message.content
    if not isinstance(content, str):
        if any(part.type != "text" for part in content):
            raise DataError("a message holds a picture; environments here are of texts")
        content = "\n".join(part.text for part in content)
    return {"role": message.role, "content": content}


def _recorded(task: Any) -> Any:
    return vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)


def _seats(env: Any) -> dict[str, Any]:
    return {name: value for name, value in env.config if isinstance(value, vf.AgentConfig)}


def _needs_runtime(hook: Any) -> bool:
    runtime = inspect.signature(hook).parameters.get("runtime")
    return runtime is not None and runtime.default is inspect.Parameter.empty


def _boundary(hook: Any) -> Any:
    """What a @vf.stop looks at."""
    kinds = (get_origin(hint) or hint for name, hint in get_type_hints(hook).items() if name != "return")
    return next((kind for kind in kinds if kind in (vf.Request, vf.Response, vf.Trace)), None)


async def _call(hook: Any, trace: Any) -> None:
    """A task's setup or finalize, with those of its arguments that it names; there is no runtime."""
    known = {"trace": trace, "runtime": None}
    await hook(**{name: known[name] for name in inspect.signature(hook).parameters if name in known})


def _in_loop(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process's engines. Its own thread: the caller may run one in this thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="verifiers", daemon=True).start()
    return loop
