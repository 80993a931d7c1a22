"""Teacher: rollouts that are scored again with a hint in their prompt (SDPO, SDAR, RLSD, AgentOPSD).

The hint of a rollout is a solved sibling's actions, or feedback on its failure. The policy does not see it.
The engine scores each rollout in its teacher's context before advantages are computed (r3l.core.trajectory).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Literal

from r3l.baselines.critique import criticise

from r3l.core.errors import ConfigError
from r3l.core.method import MethodSettings, TeacherWeights
from r3l.core.option import option
from r3l.core.policy import Completion
from r3l.core.rollout import Episode, RolloutContext, play
from r3l.core.task import Task
from r3l.core.text import after_thought
from r3l.core.trajectory import Trajectory, Turn
from r3l.feedback.feedback import FeedbackSettings
from r3l.feedback.prompt_templates import template
from r3l.retry import GuidancePlace, Restart, hint, with_guidance


class TeacherSettings(MethodSettings, FeedbackSettings):
    """Options of a method whose rollouts have a teacher: the policy with a hint in its prompt.

    ``teacher``: ``live`` (the weights that sampled), ``frozen`` (the base checkpoint's) or ``average``.
    ``guidance_place``: ``user_turn`` or ``system_message``.
    """

    teacher: TeacherWeights = option(
        "live",
        "the teacher's weights: those that sampled, the base checkpoint's, or an average",
        "our choice",
    )
    teacher_rate: float = option(
        0.05,
        "share of the new weights in the average, at each update",
        "SDPO released code: 0.05",
        gt=0,
        le=1,
    )
    teacher_sees: Literal["solution_or_feedback", "solution", "feedback", "nothing"] = option(
        "solution_or_feedback",
        "the hint: a solved sibling's actions, feedback on a failure, the first of the two that exists, "
        "or none",
        "SDPO released code",
    )
    guidance_place: GuidancePlace = option(
        "user_turn",
        "where the hint is inserted in the dialog (B-33)",
        "our choice: some chat templates forbid a system message in mid-dialog",
    )


async def play_taught(ctx: RolloutContext, task: Task, settings: TeacherSettings) -> list[Trajectory]:
    """Play N rollouts of ``task``; each gets a teacher if there is a hint for it (``teacher_sees``).

    A hint is the actions of a solved sibling, the first other rollout of the task that succeeds (SDPO), or
    feedback on its failure; the rollout's ``hint_kind`` says which, and ``ctx.counters`` counts them
    (``teacher/by_...``). Returns all N rollouts; the engine scores them in their teachers' contexts later.
    Raises ConfigError if ``settings`` lack the options of TeacherSettings.
    """
    if not isinstance(settings, TeacherSettings):
        raise ConfigError(
            f"play_taught needs to know what the teacher sees, and {type(settings).__name__} does not say "
            "it: derive it from TeacherSettings too (r3l.baselines.teacher)"
        )
    # Play first: a rollout's hint may come from any other one of its task.
    episodes = await ctx.gather(partial(play, ctx, task), range(settings.group_size))
    solved = [episode.trajectory for episode in episodes if episode.trajectory.success]

    async def taught(episode: Episode) -> Trajectory:
        rollout = episode.trajectory
        sibling = next((other for other in solved if other is not rollout), None)
        text = None
        # The hint: a solution where one is wanted and known, else feedback on a failure.
        if sibling is not None and settings.teacher_sees.startswith("solution"):
            text = solution(ctx, sibling)
            rollout.hint_kind = "solution"
            ctx.counters["teacher/by_solution"] += 1
        elif settings.teacher_sees.endswith("feedback") and not (rollout.success or rollout.failed):
            critique = await criticise(ctx, episode, settings.feedback)
            if critique is not None:
                text = critique.guidance
                rollout.hint_kind = "feedback"
                ctx.counters["teacher/by_feedback"] += 1
        if text is not None:
            give_teacher(ctx, episode, text, settings.guidance_place)
        await episode.close()
        return rollout

    return await ctx.gather(taught, episodes)


def solution(ctx: RolloutContext, solved: Trajectory) -> str:
    """The text of a hint that shows how a task was solved, from ``solved``, a successful attempt.

    It lists the actions of the attempt. If the attempt has a single turn, it shows that response, without the
    thought before it.
    """
    if len(solved.turns) == 1:
        actions = [after_thought(solved.turns[0].response).strip()]
    else:
        actions = solved.actions
    if ctx.dialogue.style == "compact":
        return hint(", ".join(actions))
    return template("guidance_solution").substitute(solution="\n".join(actions))


def give_teacher(ctx: RolloutContext, episode: Episode, text: str, place: GuidancePlace) -> None:
    """Give a finished rollout a teacher: sets ``teacher_prompt_ids`` of its turns, and its ``hint``.

    They are the tokens of prompts with the hint, ``text``: in the first prompt, or in each if every turn has
    a new prompt (``Dialogue.history``). ``place``: where in the prompt, ``system_message`` or ``user_turn``.
    The responses stay the same.
    """
    rollout = episode.trajectory
    guide = with_guidance(Restart(0, text), place)
    conversation = ctx.policy.open()
    turns: list[Turn] = []
    # Not strict: a last prompt that did not fit the context has no response.
    for turn, messages in zip(rollout.turns, episode.prompts, strict=False):
        afresh = ctx.dialogue.history is not None
        if afresh:
            conversation = conversation.restarted()
        shown = guide(messages).messages if afresh or not turns else messages
        for message in shown:
            conversation.add(message)
        response = Completion(turn.response, (), turn.response_ids, turn.logprobs, turn.finish_reason)
        ids = conversation.append_completion(response)
        turns.append(replace(turn, teacher_prompt_ids=ids if ids != turn.prompt_ids else None))
    conversation.close()
    rollout.turns = turns
    rollout.hint = text
