"""Check of a model's chat template, before any work: can it render every form of dialog that a run will
send?
"""

from __future__ import annotations

from r3l.chat.chat_template import name_of
from r3l.chat.renderer import ChatRenderer
from r3l.config import Run, build_method, dialogue_of, environment_of
from r3l.core.environment import Observation
from r3l.core.errors import ConfigError
from r3l.core.text import Message
from r3l.core.trajectory import Trajectory, TrajectoryKind
from r3l.reflection import ReflectionSettings, reflection_request
from r3l.retry import PivotSettings, Restart, RetrySettings, with_guidance

# A first observation that every environment's dialogue can read, so that no engine has to be started.
FIRST = Observation("Your task is to: answer.\nInstruction: answer.")
Dialog = tuple[list[Message], list[Message]]  # messages before the first response, and before a later one


def try_dialogs(
    run: Run, renderer: ChatRenderer, rendered_by_server: bool = False, task_set: str | None = None
) -> None:
    """Raise ConfigError if the chat template cannot render the dialogs that ``run`` sends; changes nothing.

    Most templates refuse a system message in mid-dialog, some refuse any. Templates of thinking models drop
    earlier thoughts, so a dialog that keeps them is one that the model has never seen; a server that renders
    the messages (``rendered_by_server``) drops them itself. The first task of ``task_set`` is rendered; by
    default of the one that the run plays.
    """
    # Rendering raises the template's refusals.
    dialogs = _dialogs(run, task_set)
    for opening, later in dialogs:
        renderer.opening(opening)
        if later and run.samples == "turn":
            renderer.opening([*opening, Message("assistant", "."), *later])
        elif later:
            renderer.following(later, ended=True)

    # A thought that the template drops, but the run keeps: only where a dialog has several turns.
    keeps_thoughts = run.samples == "trajectory" and not rendered_by_server
    several_turns = any(later for _, later in dialogs) and dialogue_of(run).stop == "end"
    if keeps_thoughts and several_turns and renderer.drops_thoughts:
        raise ConfigError(
            f"{run.tier}/{run.env}: the chat template of {name_of(renderer.tokenizer)} drops the thoughts "
            "of earlier responses, as thinking models' templates do, but samples is 'trajectory', which "
            "keeps them: later turns would read what the model never reads elsewhere. Set samples=turn "
            "(--set samples=turn), or use a chat_template that keeps <think>...</think>"
        )


def _dialogs(run: Run, task_set: str | None) -> list[Dialog]:
    """One example of each form of dialog that ``run`` sends: an episode, a retry, a reflection.

    Retries and reflections only if the method's settings have them.
    """
    dialogue = dialogue_of(run)
    method = build_method(run)
    settings = run.env_settings
    options = getattr(method, "settings", None)
    task_set = task_set or (settings.train_task_set if method.trains else settings.test_task_set)
    task = environment_of(run.env).tasks(task_set)[0]
    opening = dialogue.opening(task, FIRST)
    observed = [Message("user", FIRST.text)]
    dialogs: list[Dialog] = []

    # An episode. With a history in the prompt, or a single turn, no further message follows.
    dialogs.append((opening, [] if dialogue.history is not None or settings.max_turns == 1 else observed))

    # A retry: guidance at its start (turn 0), or in mid-dialog.
    if isinstance(options, RetrySettings):
        guidance = None if getattr(options, "guidance", None) == "none" else "."
        twice = isinstance(options, PivotSettings) and options.replay_duplicate_obs
        first, later = (
            with_guidance(
                Restart(turn, guidance, repeat_observation=twice),
                options.guidance_place,
            )
            for turn in (0, 1)
        )
        between = [] if dialogue.stop == "line" and run.samples == "trajectory" else observed
        dialogs.append((first(opening).messages, later(between).messages if settings.max_turns > 1 else []))

    # A reflection: a compact one continues the episode, others are separate dialogs.
    if isinstance(options, ReflectionSettings):
        base = Trajectory(task, 0, TrajectoryKind.BASE)
        request = reflection_request(dialogue, base, FIRST, options, [])
        dialogs.append((opening, request) if dialogue.style == "compact" else (request, []))
    return dialogs
