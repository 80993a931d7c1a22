"""Every form of dialog that a run will render, tried with its model's chat template before any work."""

from __future__ import annotations

from collections.abc import Iterator

from r3l.chat.renderer import ChatRenderer
from r3l.config import Run, build_method, dialogue_of, environment_of
from r3l.core.environment import Observation
from r3l.core.text import Message
from r3l.core.trajectory import Trajectory, TrajectoryKind
from r3l.reflection import ReflectionSettings, reflection_request
from r3l.retry import PivotSettings, Restart, RetrySettings, with_guidance

FIRST = Observation(
    "Your task is to: answer.\nInstruction: answer."
)  # every environment reads it: no engine is started


def try_dialogs(run: Run, renderer: ChatRenderer) -> None:
    """Raises ConfigError where the chat template refuses a role, or an order of roles, that ``run`` sends: most take
    no system message in mid-dialog, some take none at all."""
    for opening, later in _dialogs(run):
        renderer.opening(opening)
        if later and run.samples == "turn":
            renderer.opening([*opening, Message("assistant", "."), *later])
        elif later:
            renderer.following(later, ended=True)


def _dialogs(run: Run) -> Iterator[tuple[list[Message], list[Message]]]:
    """The messages before a first response, and those before a later one."""
    dialogue, method, settings = dialogue_of(run), build_method(run), run.env_settings
    task = environment_of(run.env).tasks(settings.train_task_set if method.trains else settings.test_task_set)[0]
    opening, observed = dialogue.opening(task, FIRST), [Message("user", FIRST.text)]
    yield opening, [] if dialogue.history is not None or settings.max_turns == 1 else observed
    options = getattr(method, "settings", None)
    if isinstance(options, RetrySettings):
        guidance = None if getattr(options, "guidance", None) == "none" else "."
        twice = isinstance(options, PivotSettings) and options.replay_duplicate_obs
        first, later = (
            with_guidance(Restart(turn, guidance, repeat_observation=twice), options.guidance_place) for turn in (0, 1)
        )
        between = [] if dialogue.stop == "line" and run.samples == "trajectory" else observed
        yield first(opening).messages, later(between).messages if settings.max_turns > 1 else []
    if isinstance(options, ReflectionSettings):
        base = Trajectory(task, 0, TrajectoryKind.BASE)
        request = reflection_request(dialogue, base, FIRST, options, [])
        yield (opening, request) if dialogue.style == "compact" else (request, [])
