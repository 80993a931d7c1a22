"""Play the attempts of a probe, a reflection on each, and their retries.

Every draw is seeded by its address (r3l.core.seeds). The retries of one attempt share their addresses: a
guided and an unguided retry from the same pivot are sampled from the same noise, so their difference is the
effect of the hint.

Batches of attempts do not depend on each other, and each leaves a line, so a killed probe repeats one batch
at most.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from r3l.algorithm import R3LSettings
from r3l.core.environment import INVALID_RESPONSES, Critique, Outcome
from r3l.core.errors import ConfigError, DataError
from r3l.core.rollout import Episode, RolloutContext, play
from r3l.core.task import Task
from r3l.core.trajectory import Trajectory, Turn
from r3l.envs.base.experts import NO_CAUSE, first_action
from r3l.envs.base.tagged import TaggedDialogue
from r3l.feedback.audits import agreement
from r3l.feedback.feedback import FeedbackSource, InvalidFeedback, ParsedReflection
from r3l.files.json_files import append_jsonl, read_jsonl, rewrite_jsonl
from r3l.probe.attempts import (
    SEED_WORD,
    Attempt,
    BatchLine,
    CriticReflection,
    Logprobs,
    OwnReflection,
    ProbeAttempts,
    RetryOutcome,
    attempts_in,
    attempts_sha256,
)
from r3l.probe.teachers import read_by_teachers, taught_copies
from r3l.processes.progress import Advance, progress
from r3l.reflection import reflect
from r3l.retry import guidance_text, restart_at, retry
from r3l.runs.session import PlaySession

CRITIC = (1,)  # the attempt in the seed address of the critic's reflection; the model's own is 0


def play_probe(
    session: PlaySession,
    settings: R3LSettings,
    tasks: Sequence[Task],
    attempts: int,
    path: Path,
    probed: Mapping[str, str],
) -> ProbeAttempts:
    """Play ``attempts`` attempts at each task, with reflections and retries; the expert plays each task once.

    Each finished batch is appended to ``path`` as a BatchLine; batches that it has already are returned, not
    played again. ``probed``: what identifies model, settings and tasks. Shows progress. Raises ConfigError if
    ``path`` has batches of another ``probed`` or batches that this call would not play, DataError if a line
    is damaged.
    """
    expert = _expert(session, tasks)

    # Resume: batches whose lines are complete are known by their (task, attempt number), so only the others
    # are played.
    members = [(task, k) for task in tasks for k in range(attempts)]
    size = session.batch * session.batches_at_once
    size = size // attempts * attempts or size  # complete tasks, whose attempts a teacher shows each other
    batches = [members[first : first + size] for first in range(0, len(members), size)]
    lines = read_jsonl(path, BatchLine)
    if any(line["probed"] != probed for line in lines):
        raise ConfigError(
            f"{path} holds attempts of another model, other settings or other tasks; choose another file "
            "with --out, or delete it"
        )
    known: dict[tuple[tuple[str, int], ...], list[Attempt]] = {}
    for number, line in enumerate(lines, start=1):
        of_line = attempts_in(line, f"{path}, line {number}")
        known[tuple((attempt.task, attempt.member) for attempt in of_line)] = of_line
    wanted = [tuple((task.id, k) for task, k in batch) for batch in batches]
    if not known.keys() <= set(wanted):
        raise ConfigError(
            f"{path} holds attempts of another number of tasks or attempts, or in batches of another size, "
            "and the file has what the result is computed from and nothing else; repeat that probe's "
            "options (-n, --attempts, --batch), or choose another file with --out"
        )
    rewrite_jsonl(path, lines)  # without a torn last line
    of_batches = [known.get(of_batch) for of_batch in wanted]  # None: still to be played

    # Play the rest, and write each batch as soon as it is complete.
    seconds: defaultdict[str, float] = defaultdict(float)
    done = sum(len(batch) for batch in of_batches if batch)
    # Both halves of the work are shown: a batch can take half an hour, attempts first, then the reflections
    # on them and their retries.
    with progress("attempts, then reflections and retries", 2 * len(members), done=2 * done) as advance:
        for k, batch in enumerate(batches):
            if of_batches[k] is None:
                now = _play_batch(session, settings, tasks, batch, seconds, advance)
                of_batches[k] = now
                content = [asdict(one) for one in now]
                line = BatchLine(probed=dict(probed), attempts=content, sha256=attempts_sha256(content))
                append_jsonl(path, line)
    all_attempts: list[Attempt] = []
    for of_batch in of_batches:
        all_attempts += of_batch or []
    return ProbeAttempts(all_attempts, expert, seconds, len(members) - done)


def _play_batch(
    session: PlaySession,
    settings: R3LSettings,
    tasks: Sequence[Task],
    batch: Sequence[tuple[Task, int]],
    seconds: defaultdict[str, float],
    advance: Advance,
) -> list[Attempt]:
    """Play one batch of (task, attempt number); adds its time to ``seconds``, by activity.

    ``advance`` is called twice for each attempt: when it ends, and when it is studied. A teacher that sees a
    solved attempt sees one of this batch.
    """
    solved = 0

    async def attempt(member: tuple[Task, int]) -> Episode:
        nonlocal solved
        episode = await play(ctx, *member)
        solved += episode.trajectory.success
        advance(f"{solved} solved in this batch")
        return episode

    async def study_attempt(episode: Episode) -> StudiedAttempt:
        studied = await study(ctx, settings, episode, [one.trajectory for one in episodes])
        advance("reflecting and retrying")
        return studied

    ctx = session.rollout_context((session.run.seed, SEED_WORD), session.run.sampling.temperature)
    ctx.tasks = tasks
    # All attempts first, then what follows them: a teacher may see any solved attempt of the batch.
    began = time.perf_counter()
    episodes = session.concurrently(attempt, batch)
    ended = time.perf_counter()
    studied = session.concurrently(study_attempt, episodes)
    attempts = with_readings(session, with_logprobs(session, studied), studied)
    seconds["attempts"] += ended - began
    seconds["retries"] += time.perf_counter() - ended
    return attempts


def with_logprobs(session: PlaySession, studied: Sequence[StudiedAttempt]) -> list[Attempt]:
    """The attempts, to whose guided retries log-probs of their tokens are added, with and without the hint.

    With the hint they come from sampling; without it the model computes them now. Nothing is added if the
    policy cannot compute log-probs, as at a server.
    """
    distilled = [one.distilled for one in studied if one.distilled is not None]
    scored = session.logprobs(distilled) if distilled else None
    if scored is None:
        return [one.attempt for one in studied]
    found = iter(scored)
    attempts = []
    for one in studied:
        attempt = one.attempt
        again = one.distilled
        if again is not None:
            sampled = again.old_logprobs()[again.credit_mask() > 0]
            logprobs = Logprobs(_rounded(sampled), _rounded(next(found)))
            assert attempt.own is not None and attempt.own.guided is not None
            guided = replace(attempt.own.guided, logprobs=logprobs)
            attempt = replace(attempt, own=replace(attempt.own, guided=guided))
        attempts.append(attempt)
    return attempts


def with_readings(
    session: PlaySession, attempts: Sequence[Attempt], studied: Sequence[StudiedAttempt]
) -> list[Attempt]:
    """The ``attempts`` with their teachers' readings (r3l.probe.teachers), computed now by the model.

    ``studied``: in the order of ``attempts``; it has the attempts in their teachers' contexts.
    """
    # One call scores the contexts of all attempts.
    readings = iter(read_by_teachers(session, [copied for one in studied for copied in one.taught.values()]))
    found = []
    for attempt, one in zip(attempts, studied, strict=True):
        teachers = {}
        for name in one.taught:
            reading = next(readings)
            if reading is not None:
                teachers[name] = reading
        found.append(replace(attempt, teachers=teachers))
    return found


def _rounded(values: np.ndarray) -> tuple[float, ...]:
    """Log-probs rounded to 1e-4 nats, since a line holds all tokens of hundreds of retries."""
    return tuple(round(float(value), 4) for value in values)


def _expert(session: PlaySession, tasks: Sequence[Task]) -> dict[str, bool] | None:
    """Success of the error-free expert by task id; None without an expert for these tasks and prompts."""
    if session.run.prompts != "compact":
        return None
    try:
        demonstrations = session.package.expert_demonstrations(tasks, session.run.env_settings.max_turns)
        return {demonstration.task.id: demonstration.success for demonstration in demonstrations}
    except (ConfigError, DataError):  # nothing is scripted, or not for such tasks
        return None


@dataclass(frozen=True)
class StudiedAttempt:
    """An attempt after its reflection and retries, and trajectories whose log-probs are still to be computed.

    ``distilled``: the guided retry with its hint taken out of the prompt, None if there is no retry; its
    log-probs tell how likely the model finds it without the hint. ``taught``: the attempt in the context of
    each teacher, by name.
    """

    attempt: Attempt
    distilled: Trajectory | None
    taught: Mapping[str, Trajectory]


async def study(
    ctx: RolloutContext, settings: R3LSettings, episode: Episode, others: Sequence[Trajectory] = ()
) -> StudiedAttempt:
    """Reflect on a finished attempt, by the model and the environment's critic, and play the retries of both.

    The episode is closed. An attempt without turns, or whose environment failed, is not reflected on.
    ``others``: attempts among which a solved one of the same task is looked for, for a teacher to see.
    """
    # The attempt as it was played.
    trajectory = episode.trajectory
    assert trajectory.stop_reason is not None
    attempt = Attempt(
        task=trajectory.task.id,
        group=trajectory.task.group,
        member=trajectory.member,
        success=trajectory.success,
        reward=trajectory.reward,
        stop=trajectory.stop_reason,
        turns=len(trajectory.turns),
        tokens=_tokens(trajectory.turns),
    )
    if isinstance(ctx.dialogue, TaggedDialogue):
        copied = list(_copied(ctx.dialogue, episode))
        attempt = replace(attempt, actions=len(copied), shown=sum(copied))

    # Reflections and retries; the critic judges only failures.
    retries = Retries(ctx, settings, episode)
    taught: Mapping[str, Trajectory] = {}
    if trajectory.turns and not trajectory.failed:
        critique = None if trajectory.success else ctx.dialogue.critique(episode.transcript())
        own = await retries.play_own_reflection(critique)
        critic = await retries.play_critic_reflection(critique)
        attempt = replace(attempt, own=own, critic=critic)
        taught = taught_copies(ctx, episode, others, retries.guidance, settings.guidance_place)
    await episode.close()
    return StudiedAttempt(attempt, retries.distilled, taught)


@dataclass
class Retries:
    """Plays the retries of one attempt, ``base``; retries with equal pivot and guidance are played only once.

    ``distilled``: the guided retry from the model's own pivot, with its hint taken out of the prompt.
    ``guidance``: the text of the model's reflection that guides a retry, None if there is none.
    """

    ctx: RolloutContext
    settings: R3LSettings
    base: Episode
    distilled: Trajectory | None = None
    guidance: str | None = None
    _retries: dict[tuple[int, str | None], tuple[RetryOutcome, Trajectory]] = field(default_factory=dict)

    async def play_own_reflection(self, critique: Critique | None) -> OwnReflection:
        """Have the attempt reflected on, and play three retries if the reflection names a pivot.

        The model reflects, or whom the setting ``feedback`` names. The retries begin at the pivot with the
        reflection as a hint, at the pivot without it, and at the start with it. ``critique``: the
        environment's, with which the pivot is compared; None without one. Sets ``guidance`` and
        ``distilled``.
        """
        reflection = await reflect(self.ctx, self.base, self.settings)
        parsed = reflection.parsed
        last = reflection.trajectory.turns[-1:]
        text = last[0].response
        if isinstance(parsed, InvalidFeedback):
            return OwnReflection(invalid=parsed.reason, text=text)
        right = (parsed.outcome is not Outcome.FAILURE) == self.base.trajectory.success
        if parsed.pivot is None:
            return OwnReflection(None, right, text)
        self.guidance = guidance_text(parsed, self.settings, self.ctx.dialogue.release)
        # What a critic or a judge writes is sampled from no model of ours, so it costs no tokens.
        written = _tokens(last) if reflection.author is FeedbackSource.SELF else 0
        guided, self.distilled = await self._retry(parsed.pivot, parsed, written)
        unguided, _ = await self._retry(parsed.pivot, None, written)
        from_start, _ = await self._retry(0, parsed, written)
        return OwnReflection(None, right, text, agreement(critique, parsed), guided, unguided, from_start)

    async def play_critic_reflection(self, critique: Critique | None) -> CriticReflection | None:
        """Play two retries from the turn that the environment's critique names, one of them with a hint.

        The hint comes from a reflection that is written from the critique. Returns the critique's cause and
        the outcomes of both retries; None without a critique, if it names no turn, or if that reflection is
        invalid.
        """
        if critique is None or critique.turn is None:
            return None
        honest = {"feedback": FeedbackSource.ENVIRONMENT, "feedback_corruption": 0.0}
        by_critic = self.settings.model_copy(update=honest)
        parsed = (await reflect(self.ctx, self.base, by_critic, CRITIC)).parsed
        if not isinstance(parsed, ParsedReflection):
            return None
        cause = None if critique.cause == NO_CAUSE else critique.cause
        guided, _ = await self._retry(critique.turn, parsed, 0)
        unguided, _ = await self._retry(critique.turn, None, 0)
        return CriticReflection(cause, guided, unguided)

    async def _retry(
        self, pivot: int, reflection: ParsedReflection | None, written: int
    ) -> tuple[RetryOutcome, Trajectory]:
        """Retry from ``pivot``; returns the outcome, and the retry with its hint taken out of the prompt.

        ``written``: tokens of the reflection, which count as tokens of the retry.
        """
        dialogue = self.ctx.dialogue
        guidance = None
        if reflection is not None:
            guidance = guidance_text(reflection, self.settings, dialogue.release)
        if (pivot, guidance) in self._retries:  # as when the pivot is the first turn
            outcome, distilled = self._retries[pivot, guidance]
            return replace(outcome, tokens=outcome.tokens + written), distilled

        # The first action that the suggestion names, if it is possible at the pivot.
        hinted = None
        if isinstance(dialogue, TaggedDialogue) and reflection and reflection.suggestion is not None:
            now = await self.base.env.rewind(pivot)
            action = first_action(reflection.suggestion)
            hinted = action if dialogue.possible(action, now) else None

        # The retry, and whether it took that action.
        base = self.base.trajectory
        restart = restart_at(pivot, guidance, base, self.settings)
        result = await retry(self.ctx, self.base, restart, self.settings)
        guided = result.guided
        turns = guided.turns[pivot:]
        followed = None
        if hinted is not None and turns:
            assert isinstance(dialogue, TaggedDialogue)
            followed = dialogue.read(turns[0].response) == hinted
        improved = guided.reward > base.reward
        invalid = guided.stop_reason in INVALID_RESPONSES
        outcome = RetryOutcome(guided.success, improved, _tokens(turns), followed, invalid)
        self._retries[pivot, guidance] = outcome, result.distilled
        return replace(outcome, tokens=outcome.tokens + written), result.distilled


def _copied(dialogue: TaggedDialogue, episode: Episode) -> Iterator[bool]:
    """Yield for each turn with a readable action whether it names only things that were shown before."""
    shown = ""
    for turn, messages in zip(episode.trajectory.turns, episode.prompts, strict=False):
        shown += "\n".join(message.content.lower() for message in messages) + "\n"
        action = dialogue.read(turn.response)
        if action is not None:
            yield all(contains_words(shown, name) for name in dialogue.names(action))


def contains_words(text: str, name: str) -> bool:
    """True if ``text`` contains ``name`` as complete words; only ``text`` must be in lower case already."""
    return re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", text) is not None


def _tokens(turns: Sequence[Turn]) -> int:
    """Number of generated tokens; the server's count if it does not return them."""
    return sum(turn.usage.response if turn.usage else len(turn.response_ids) for turn in turns)
