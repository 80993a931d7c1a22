"""Summary of an evaluation in words: score, interval, task set, turn limit, how episodes ended.

A warning follows if the score says more about the setting (token limits, response format) than about the
model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from r3l.config import Run, environment_of
from r3l.core.environment import StopReason
from r3l.stats.intervals import Interval, wilson_bounds

ENDINGS = {  # names of the stop reasons, here and in figures
    StopReason.SUCCESS: "success",
    StopReason.DONE: "ended without success",
    StopReason.MAX_TURNS: "turn limit",
    StopReason.REPETITION: "repetition",
    StopReason.INADMISSIBLE: "inadmissible action",
    StopReason.FORMAT: "invalid response",
    StopReason.TRUNCATED: "response too long",
    StopReason.CONTEXT: "dialog too long",
    StopReason.ENV_FAILED: "error in the environment",
}
DRAWS = {  # of evaluation.draw
    "first": "the first by id",
    "drawn": "drawn by the seed",
    "by_group": "drawn by the seed from each group",
}
IRREGULAR = {  # counts of a server's responses, by their keys in evaluation.json
    "overlong": "have more tokens than requested, since the server does not stop at max_tokens",
    "cut_prompts": "answer a prompt whose beginning the server cut (raise its context length)",
    "filled": "answer a dialog whose empty messages were sent as (empty), since the server refuses those",
    "cut_short": "were cut off by the server before max_tokens",
    "shortened": "may have been cut off, since the server allowed less than max_tokens",
    "uncounted": "came without the number of their tokens, so cuts by the server cannot be seen",
}
MOST_MODELS = 5  # named in a warning
# Above these shares there is a warning; our choice.
MAX_SUSPECT = 0.1  # episodes that ended by what the setting can have caused
MAX_IMPOSSIBLE = 0.5  # turns with an action that the environment did not carry out
STRICT = {"strict", "released"}  # readers of responses that reject some of what "flexible" reads
SHOWN = 150  # characters shown of each end of a long response; our choice


def summary(evaluation: Mapping[str, Any], run: Run, over_tasks: Interval | None = None) -> str:
    """The lines that are printed after an evaluation of ``run``, as one text: score, settings, warnings.

    ``evaluation``: content of evaluation.json, with ``examples`` of unusable responses if there are any.
    ``over_tasks``: interval of the success over tasks, if each task was played several times; None: Wilson's
    over episodes.
    """
    max_turns = run.env_settings.max_turns
    groups = evaluation["groups"]
    counts = evaluation["stops"]
    tasks = evaluation["task_set"]
    episodes = evaluation["episodes"]
    rate = groups["all"]["success"]
    low, high = (over_tasks.low, over_tasks.high) if over_tasks else wilson_bounds(rate, episodes)
    interval = "no interval" if low is None else f"95 % interval {low:.3f} to {high:.3f}"
    parts = ", ".join(f"{name} {values['success']:.3f}" for name, values in groups.items() if name != "all")
    turns = f"at most {max_turns} turn{'s' if max_turns > 1 else ''}"
    settings = run.evaluation
    part = f"{settings.tasks}, {DRAWS[settings.draw]}, of " if settings.tasks else ""
    # A server may ignore the limits that a request names: then max_tokens is not what cut its responses off.
    requests = evaluation.get("requests", {})
    suspect = fixes(run)
    failed = counts.get(StopReason.ENV_FAILED, 0)
    if failed:
        others = f"{rate * episodes / (episodes - failed):.3f}" if failed < episodes else "none is left"
        suspect[StopReason.ENV_FAILED] = f"they count as not solved (success of the others: {others})"
    by_server = "the server cuts responses off before sampling.max_tokens: raise the server's own limit"
    if requests.get("cut_short", 0) >= counts.get(StopReason.TRUNCATED, 0) > 0:
        suspect[StopReason.TRUNCATED] = by_server
    elif requests.get("cut_short") or requests.get("uncounted"):
        suspect[StopReason.TRUNCATED] += f"; or {by_server}"
    score = f"success {rate:.3f} ({interval})"
    if parts:
        score += f"; {parts}"
    lines = [
        f"{evaluation['cell']} seed {evaluation['seed']}: {score}",
        f"{episodes} episodes on task set {tasks['name']} ({part}{tasks['tasks']} tasks), {turns}, "
        f"temperature {evaluation['temperature']:g}",
        played_how(evaluation, run),
        f"how they ended: {endings(counts)}",
        *caveats(evaluation),
        *played_by(evaluation.get("protocol")),
        *warnings(counts, episodes, evaluation.get("examples", {}), suspect),
    ]

    # With mostly impossible actions a score measures what the model takes for an action.
    played = evaluation.get("turns", {"all": 0, "impossible": 0})
    if played["impossible"] > MAX_IMPOSSIBLE * played["all"]:
        lines.append(
            f"warning: {played['impossible']} of {played['all']} turns had an action that the environment "
            "does not know: read them in the transcripts"
        )

    for key, meaning in IRREGULAR.items():
        if requests.get(key):
            lines.append(f"warning: {requests[key]} of {requests['requests']} responses {meaning}")
    mixed = several_models(evaluation.get("agent"))
    if mixed:
        lines.append(f"warning: {mixed}")
    if run.evaluation.temperature == 0 and run.evaluation.episodes_per_task > 1:
        lines.append("warning: at temperature 0 all attempts at a task are alike, apart from rounding")
    return "\n".join(lines)


def played_how(evaluation: Mapping[str, Any], run: Run) -> str:
    """A line: how often each task was played, by which weights, and how much of a dialog a prompt holds.

    `r3l verify` raises an error for an evaluation whose tasks were not played equally often.
    """
    times = run.evaluation.episodes_per_task
    often = "once" if times == 1 else f"{times} times"
    digest = evaluation["checkpoint"]["sha256"]
    step = evaluation["checkpoint"]["step"]
    checkpoint = f"checkpoint of step {step}" if step else "base checkpoint"
    weights = f"{checkpoint} (sha256 {digest[:12]})" if digest else "a server's model"
    window = run.env_settings.options.get("history")
    if run.env_settings.max_turns == 1:
        prompt = ""
    elif window is None:
        prompt = ", prompts hold the dialog from its beginning"
    else:
        prompt = f", prompts hold the last {window} turns"
    return f"each task {often} by {weights}{prompt}"


def caveats(evaluation: Mapping[str, Any]) -> list[str]:
    """The warning about the evaluation's task set as a list of one line; [] if there is none.

    Such a warning says, for example, that some test tasks were trained on.
    """
    task_set = evaluation["task_set"]
    if not task_set.get("warning"):
        return []
    return [f"warning: task set {task_set['name']}: {task_set['warning']}"]


def several_models(agent: Mapping[str, Any] | None) -> str | None:
    """A warning if the server's responses name several models or versions, else None.

    ``agent``: the record of the served model in evaluation.json; its ``answered_by`` has the number of
    responses that name each model. None if the local policy played.
    """
    models = (agent or {}).get("answered_by", {})
    if len(models) < 2:
        return None
    ordered = sorted(models.items(), key=lambda pair: -pair[1])
    named = "; ".join(f"{name} ({number:,})" for name, number in ordered[:MOST_MODELS])
    if len(ordered) > MOST_MODELS:  # a proxy may give each response a fingerprint of its own
        named += f"; and {len(ordered) - MOST_MODELS:,} others"
    return (
        f"the server's responses are of several models or versions, so the score is of no single one: {named}"
    )


def played_by(protocol: Mapping[str, Any] | None) -> list[str]:
    """Lines about an evaluation's protocol: its rule of success, deviations from it, and from the original.

    ``protocol``: its part of evaluation.json; [] for None.
    """
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
    """The endings of episodes with their counts, most frequent first: ``success 112, turn limit 48``."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{ENDINGS[StopReason(reason)]} {count}" for reason, count in ordered)


def fixes(run: Run) -> dict[StopReason, str]:
    """The advice what to change, for each ending of an episode that a setting of ``run`` can have caused.

    The endings are: the context is full, a response is cut off, a response is invalid.
    """
    sampling = run.sampling
    env_settings = run.env_settings
    if run.prompts == "compact":
        reader = "; a language model needs --set prompts=full"
    else:
        # Options of the environment that select how strictly responses are read.
        known = environment_of(run.env).options.model_fields
        strict = [
            key
            for key in ("response_format", "extraction")
            if key in known and env_settings.options.get(key, "strict") in STRICT
        ]
        reader = "".join(f"; --set env_settings.options.{key}=flexible reads more of them" for key in strict)
    return {
        StopReason.CONTEXT: "the dialog outgrew sampling.max_context, or the server's context: raise it "
        f"(--set sampling.max_context={max(8192, 2 * sampling.max_context)})",
        StopReason.TRUNCATED: "responses are cut off at sampling.max_tokens: raise it "
        f"(--set sampling.max_tokens={max(512, 2 * sampling.max_tokens)})",
        StopReason.FORMAT: f"responses do not have the form that the prompt asks for{reader}",
    }


def warnings(
    counts: Mapping[str, int],
    episodes: int,
    examples: Mapping[str, Sequence[str]],
    suspect: Mapping[StopReason, str],
) -> list[str]:
    """A warning for each ending in ``suspect`` that more than a tenth of the episodes have.

    ``counts``: episodes by ending. ``examples``: ending -> a task and its response, quoted if there is one.
    ``suspect``: ending -> how to avoid it. Errors of the environment are reported even for a single episode.
    """
    lines = []
    for reason, fix in suspect.items():
        tolerated = 0 if reason is StopReason.ENV_FAILED else MAX_SUSPECT * episodes
        if counts.get(reason, 0) <= tolerated:
            continue
        line = f"warning: {counts[reason]} of {episodes} episodes ended by '{ENDINGS[reason]}': {fix}"
        if reason in examples:
            # On one line, without control characters, the middle of a long response left out.
            task, response = examples[reason]
            shown = response if len(response) <= 2 * SHOWN else f"{response[:SHOWN]} ... {response[-SHOWN:]}"
            line += f". For example, task {task}: {json.dumps(shown, ensure_ascii=False)}"
        lines.append(line)
    return lines
