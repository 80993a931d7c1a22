"""What a score is worth: episodes, interval, task set, turn limit, how the episodes ended, and a warning where it says
more about the setting than about the model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from r3l.config import Run, environment_of
from r3l.core.environment import StopReason
from r3l.stats.intervals import Interval, wilson_bounds

ENDINGS = {  # names of the reasons, here and in figures
    StopReason.SUCCESS: "success",
    StopReason.DONE: "ended without success",
    StopReason.MAX_TURNS: "turn limit",
    StopReason.REPETITION: "repetition",
    StopReason.INADMISSIBLE: "inadmissible action",
    StopReason.FORMAT: "invalid response",
    StopReason.TRUNCATED: "response too long",
    StopReason.CONTEXT: "dialog too long",
}
SHARE = 0.1  # of the episodes may end by what the setting may have caused, before one is warned; our choice
IDLE = 0.5  # of the turns with an action that did nothing, the same
STRICT = {"strict", "released"}  # readers of responses that leave out what "flexible" reads
SHOWN = 150  # characters of each end of a response; our choice


def summary(evaluation: Mapping[str, Any], run: Run, over_tasks: Interval | None = None) -> str:
    """Lines for a person about the content of an evaluation.json; the last ones are warnings, where there are any.
    ``over_tasks``: of the success, where a task was attempted several times."""
    max_turns = run.env_settings.max_turns
    groups, counts, tasks = evaluation["groups"], evaluation["stops"], evaluation["task_set"]
    episodes, rate = evaluation["episodes"], groups["all"]["success"]
    low, high = (over_tasks.low, over_tasks.high) if over_tasks else wilson_bounds(rate, episodes)
    interval = "no interval" if low is None else f"95 % interval {low:.3f} to {high:.3f}"
    parts = ", ".join(f"{name} {values['success']:.3f}" for name, values in groups.items() if name != "all")
    turns = f"at most {max_turns} turn{'s' if max_turns > 1 else ''}"
    lines = [
        f"{evaluation['cell']} seed {evaluation['seed']}: success {rate:.3f} ({interval})"
        + (f"; {parts}" if parts else ""),
        f"{episodes} episodes on task set {tasks['name']} ({tasks['tasks']} tasks), {turns}, temperature "
        f"{evaluation['temperature']:g}",
        f"how they ended: {endings(counts)}",
        *played_by(evaluation.get("protocol")),
        *warnings(counts, episodes, evaluation.get("examples", {}), fixes(run)),
        *_idle(evaluation),
        *_of_server(evaluation),
        *(["warning: at temperature 0 all attempts at a task are alike, but for rounding"] if _alike(run) else []),
    ]
    return "\n".join(lines)


def played_by(protocol: Mapping[str, Any] | None) -> list[str]:
    """Lines about the protocol of an evaluation, where there is one."""
    if protocol is None:
        return []
    found = "; ".join(protocol["deviations"])
    return [
        f"protocol {protocol['name']} ({protocol['label']}; sha256 {protocol['sha256'][:12]}), success: "
        f"{protocol['success']}",
        f"deviations from it: {found}" if found else "no deviations from it",
        *(f"differs from the original: {difference}" for difference in protocol["differs"]),
    ]


def endings(counts: Mapping[str, int]) -> str:
    """``success 112, turn limit 48``, most frequent first."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{ENDINGS[StopReason(reason)]} {count}" for reason, count in ordered)


def fixes(run: Run) -> dict[StopReason, str]:
    """Endings that the setting may have caused, and what to change in that of ``run``."""
    sampling, readers = run.sampling, ("response_format", "extraction")
    strict = [key for key in readers if _reads_strictly(run, key)]
    if run.prompts == "compact":
        reader = "; a language model needs --set prompts=full"
    else:
        reader = "".join(f"; --set env_settings.options.{key}=flexible reads more of them" for key in strict)
    return {
        StopReason.CONTEXT: f"the dialog outgrew sampling.max_context, or the server's room: raise it (--set "
        f"sampling.max_context={max(8192, 2 * sampling.max_context)})",
        StopReason.TRUNCATED: f"responses are cut off at sampling.max_tokens: raise it (--set sampling.max_tokens="
        f"{max(512, 2 * sampling.max_tokens)})",
        StopReason.FORMAT: f"responses do not have the form that the prompt asks for{reader}",
    }


def _reads_strictly(run: Run, key: str) -> bool:
    options = environment_of(run.env).options
    return key in options.model_fields and run.env_settings.options.get(key, "strict") in STRICT


def warnings(
    counts: Mapping[str, int], episodes: int, examples: Mapping[str, Sequence[str]], suspect: Mapping[StopReason, str]
) -> list[str]:
    """A line for each ``suspect`` ending that more than a tenth of the episodes have, with an example."""
    return [
        f"warning: {counts[reason]} of {episodes} episodes ended by '{ENDINGS[reason]}': {fix}"
        + (f". For example, task {examples[reason][0]}: {_quoted(examples[reason][1])}" if reason in examples else "")
        for reason, fix in suspect.items()
        if counts.get(reason, 0) > SHARE * episodes
    ]


def _idle(evaluation: Mapping[str, Any]) -> list[str]:
    """A warning where most actions were impossible: such a score is of what the model takes for an action."""
    turns = evaluation.get("turns", {"all": 0, "impossible": 0})
    if turns["impossible"] <= IDLE * turns["all"]:
        return []
    return [
        f"warning: {turns['impossible']} of {turns['all']} turns had an action that the environment does not know: "
        "read them in the transcripts"
    ]


def _alike(run: Run) -> bool:
    return run.evaluation.temperature == 0 and run.evaluation.episodes_per_task > 1


def _of_server(evaluation: Mapping[str, Any]) -> list[str]:
    """A warning of what a server did otherwise than asked."""
    counts = evaluation.get("requests", {})
    meanings = {
        "overlong": "have more tokens than were asked for, since the server does not stop at max_tokens",
        "shortened": "may have been cut off, since the server had less room than was asked for",
        "uncounted": "came without the number of their tokens",
    }
    return [
        f"warning: {counts[key]} of {counts['requests']} responses {what}"
        for key, what in meanings.items()
        if counts.get(key)
    ]


def _quoted(response: str) -> str:
    """On one line, without control characters, and the middle of a long one left out."""
    whole = len(response) <= 2 * SHOWN
    return json.dumps(response if whole else f"{response[:SHOWN]} ... {response[-SHOWN:]}", ensure_ascii=False)
