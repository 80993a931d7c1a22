"""An Env of verifiers as an engine: its coroutine ``run`` waits for the replies of its seat's agent.

The library's own agent starts a program for each attempt (its harness), which requests a model server;
release 0.4.0 has no public way to pass replies from outside. So the agent is ours; the public methods
``Env.setup``, ``run`` and ``finalize`` receive it.
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
    """Reasons why this engine cannot play an Env or its tasks, as texts; [] if it can."""
    reasons: list[str] = []
    seats = {name: value for name, value in env.config if isinstance(value, vf.AgentConfig)}
    if len(seats) != 1:
        reasons.append(f"it has the seats {', '.join(seats)}, and one model is trained in one")
    if task.toolsets(task.config) or type(env.taskset).toolsets(env.taskset.config):
        reasons.append("it gives tools")
    if task.NEEDS_CONTAINER or task.data.image is not None:
        reasons.append("its tasks run in a container")

    # Rewards and metrics that cannot be called without the program of the library's own agent.
    needs_runtime = []
    for hook in [*task.hooks("reward"), *task.hooks("metric")]:
        runtime = inspect.signature(hook).parameters.get("runtime")
        if runtime is not None and runtime.default is inspect.Parameter.empty:
            needs_runtime.append(hook.__name__)
    if needs_runtime:
        reasons.append(f"{', '.join(needs_runtime)} needs a runtime")

    if type(env).start is not vf.Env.start:
        reasons.append("it starts its own services")
    if any(hasattr(getattr(type(task), name), "intercept") for name in dir(type(task))):
        reasons.append("it rewrites messages (@vf.intercept)")
    if any(_inspected(hook) is not vf.Trace for hook in task.hooks("stop")):
        reasons.append("a @vf.stop inspects requests or responses")
    limits = [getattr(seat, limit) for seat in seats.values() for limit in TOKEN_LIMITS]
    if any(limit is not None for limit in limits):
        reasons.append("its seat limits tokens; set sampling.max_context instead")
    return reasons


def messages_before(task: Any) -> list[dict[str, str]]:
    """The messages before the first observation, with ``role`` and ``content``: system prompt and examples.

    Raises DataError if one has an image.
    """
    messages = [_as_text(message) for message in _opening(task)]
    if task.data.prompt is None:
        return messages
    return messages[:-1]  # the last one is the first observation


class VerifiersEngine(OneFileEngine):
    """Engine that plays a verifiers Env, one episode at a time, as a game of observations and actions.

    The Env runs as a coroutine, in an event loop that the engines of a process share in a thread. ``tasks``:
    its tasks by number. ``solved_at``: reward from which a task counts as solved. ``by_line``: an action is
    one line, and a line break at its end means that the response goes on.
    """

    def __init__(self, env: Any, tasks: list[Any], solved_at: float, by_line: bool) -> None:
        self._env = env
        self._tasks = tasks
        self._solved_at = solved_at
        self._by_line = by_line
        self._response = ""  # lines of the current response
        self.refusal: EngineError | None = None  # set if the Env turns out to be unplayable
        self._episode: asyncio.Task[float] | None = None
        self._said: asyncio.Queue[list[Any]]
        self._replies: asyncio.Queue[str]

    def reset(self, task: Task) -> Observation:
        """Start an episode, which ends a running one.

        Raises EngineError if it ends before its first message, DataError if the taskset makes another task
        here than when the task set was read.
        """
        return _in_loop(self._start(task))

    def step(self, action: str) -> Observation:
        """Add an action to the response; once that is complete, send it and return the Env's next message.

        With ``by_line`` a response is incomplete while the action ends with a line break, and gives an empty
        observation. At the end of the episode the observation has the reward, or in ``failed`` an error of
        the Env. Raises EngineError before a successful ``reset``, after an episode that ended with a reward,
        and if the Env opens a second dialogue.
        """
        if self._episode is None or (self._episode.done() and self._episode.exception() is None):
            raise EngineError("step before a successful reset")
        self._response += action
        if self._by_line and action.endswith("\n"):
            return Observation("")
        response = self._response
        self._response = ""
        now = _in_loop(self._answer(response))
        if self.refusal is not None:
            raise self.refusal
        return now

    def close(self) -> None:
        """Cancel the running episode, if there is one."""
        _in_loop(self._cancel())

    async def ask(self, messages: list[Any]) -> str:
        """Hand ``messages`` to the model and wait for its reply, the response that ``step`` receives.

        :class:`SeatInteraction` calls it where verifiers would call a model server.
        """
        await self._said.put(messages)
        return await self._replies.get()

    async def _start(self, task: Task) -> Observation:
        await self._cancel()
        self._response = ""
        mine = self._tasks[task.payload["number"]]
        if mine.hash != task.payload["task"]:
            raise DataError(f"task {task.id} differs between processes: the taskset is not deterministic")
        self._said = asyncio.Queue()
        self._replies = asyncio.Queue()
        self._episode = asyncio.create_task(self._play(mine))
        messages = await self._next()
        if messages is None:
            error = self._episode.exception()
            raise EngineError(f"task {task.id} ended before its first message: {error!r}") from error
        if [_as_text(message) for message in messages[:-1]] != task.payload["before"]:
            raise DataError(f"task {task.id}: its Env's first messages differ from the task's")
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
        """Wait until the Env wants a reply; returns the dialogue so far, None if the episode has ended."""
        assert self._episode is not None
        said = asyncio.create_task(self._said.get())
        await asyncio.wait({said, self._episode}, return_when=asyncio.FIRST_COMPLETED)
        if said.done():
            return said.result()
        said.cancel()
        return None

    async def _play(self, task: Any) -> float:
        """Play an episode of the Env with the engine as its model; returns the reward."""
        # The steps of ``Env.run_episode``
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
    """The agent (verifiers: seat) of an Env that the model plays. It replaces a vf.Agent.

    Its replies are the actions that the engine receives, instead of a model server's.
    """

    def __init__(self, engine: VerifiersEngine, name: str, config: Any, finished: list[Any]) -> None:
        self._engine = engine
        self._name = name
        self._config = config
        self._finished = finished  # traces that are scored
        self._taken = False
        self.trainable = True

    async def run(self, task: Any) -> Any:
        """Play one reply to the task's prompt; return the scored vf.Trace."""
        async with self.interaction(task) as talk:
            await talk.turn()
        return talk.trace

    @asynccontextmanager
    async def interaction(self, task: Any) -> AsyncIterator[SeatInteraction]:
        """Open a dialogue of several turns; at the end of the block its vf.Trace is scored.

        Raises EngineError for a second dialogue, since an episode is one dialogue.
        """
        if self._taken:
            self._engine.refusal = EngineError(
                f"the Env has several dialogues with its seat {self._name!r}, but an episode is one dialogue"
            )
            raise self._engine.refusal
        self._taken = True
        info = vf.AgentInfo(config=self._config, name=self._name, trainable=self.trainable)
        trace = vf.Trace(task=_recorded(task), agent=info, state=state_cls(type(task))())
        await _call(task.setup, trace)
        yield SeatInteraction(self._engine, task, trace, self._config.max_turns)
        trace.stop("user_closed")
        await _call(task.finalize, trace)
        await task.score(trace)
        trace.ok = True
        self._finished.append(trace)


class SeatInteraction:
    """One dialogue of an Env with the agent that the model plays; replaces a vf.Interaction.

    ``trace`` is the vf.Trace in which verifiers keeps the messages and from which it computes the score.
    """

    def __init__(self, engine: VerifiersEngine, task: Any, trace: Any, max_turns: int | None) -> None:
        self._engine = engine
        self._task = task
        self._max_turns = max_turns
        self._opening = _opening(task)
        self.trace = trace

    async def turn(self, message: Any = None) -> Any:
        """Get the model's reply to the prompt or to a further ``message``, as a vf.Segment of one message.

        If the turn limit is reached or a ``@vf.stop`` function of the task says so, the segment is empty and
        has ``terminated=True``.
        """
        # Check the limits first, as the library does.
        if self._max_turns is not None and self.trace.num_turns >= self._max_turns:
            self.trace.stop("max_turns")
        for hook in self._task.hooks("stop"):
            stopped = hook(self.trace)
            if inspect.isawaitable(stopped):
                stopped = await stopped
            if stopped:
                self.trace.stop(hook.__name__)
        if self.trace.stop_condition is not None:
            return vf.Segment(messages=[], terminated=True)

        # The model reads the task's own messages once, then the messages of this turn.
        for said in self._opening:
            self._add(said)
        self._opening = []
        messages = [message] if isinstance(message, str) else message or []
        for said in messages:
            self._add(vf.UserMessage(content=said) if isinstance(said, str) else said)

        dialogue = [node.message for node in self.trace.nodes]
        reply = vf.AssistantMessage(content=await self._engine.ask(dialogue))
        self._add(reply, sampled=True)
        self.trace.calls.append(vf.ModelCall(node=len(self.trace.nodes) - 1, finish_reason="stop"))
        return vf.Segment(messages=[reply])

    def _add(self, message: Any, sampled: bool = False) -> None:
        nodes = self.trace.nodes
        parent = len(nodes) - 1 if nodes else None
        nodes.append(vf.MessageNode(parent=parent, message=message, sampled=sampled))


def _opening(task: Any) -> list[Any]:
    """The messages of a task's own data: system prompt and prompt."""
    data = task.data
    messages: list[Any] = []
    if data.system_prompt is not None:
        messages.append(vf.SystemMessage(content=data.system_prompt))
    if isinstance(data.prompt, str):
        messages.append(vf.UserMessage(content=data.prompt))
    else:
        messages += data.prompt or []
    return messages


def _as_text(message: Any) -> dict[str, str]:
    """A message as role and text. Raises DataError if it has an image."""
    content = message.content
    if not isinstance(content, str):
        if any(part.type != "text" for part in content):
            raise DataError("a message has an image; only texts are supported")
        content = "\n".join(part.text for part in content)
    return {"role": message.role, "content": content}


def _recorded(task: Any) -> Any:
    return vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)


def _inspected(hook: Any) -> Any:
    """The type of object that a @vf.stop inspects: request, response or trace; None without a type hint."""
    for name, hint in get_type_hints(hook).items():
        kind = get_origin(hint) or hint
        if name != "return" and kind in (vf.Request, vf.Response, vf.Trace):
            return kind
    return None


async def _call(hook: Any, trace: Any) -> None:
    """Call a task's setup or finalize with the arguments that it names; ``runtime`` is None."""
    known = {"trace": trace, "runtime": None}
    await hook(**{name: known[name] for name in inspect.signature(hook).parameters if name in known})


def _in_loop(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process's engines, in a thread since the caller may run its own loop."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="verifiers", daemon=True).start()
    return loop
