"""Rendering of a model's chat template, a program by a third party, and its check before any work starts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from r3l.chat import bounded_template
from r3l.chat.bounded_template import CHARACTERS, CPU_SECONDS, DAY, MEMORY
from r3l.core.errors import ConfigError
from r3l.core.text import END_OF_THOUGHT, THOUGHT

RESPONSE = "\ud800"  # placeholder of an earlier response: no well-formed text holds a lone surrogate
SECONDS = 10.0  # processor time of one rendering during a run; our choice
# A long dialog for the check: words of one message, and number of messages; our choice.
LONG = "word " * 1000
MESSAGES = 21
PATIENCE = 120.0  # wall-clock seconds in which a busy machine gives the check CPU_SECONDS; our choice
# A macro that shadows transformers' function ``strftime_now``, which no argument can replace: DAY in any
# format.
_TODAY = "{%- macro strftime_now(form) -%}{{ form" + "".join(
    f"|replace('%{c}', '{DAY:%{c}}')" for c in "AaBbdHIjMmpSyY"
)
_TODAY += " }}{%- endmacro %}"
# A short dialog for the check: question, answer, second question.
_QUESTION = "What does r3l ask first?"
_ANSWER = "It answers so."
_QUESTION_2 = "What does r3l ask then?"
_THOUGHT = "Nothing has been asked before."
_THOUGHT_FIELDS = ("reasoning_content", "reasoning", "thinking")  # of a message, by template

Chat = Sequence[Mapping[str, str]]


class AroundResponse(NamedTuple):
    """The text that a template writes around a response.

    ``before``: between a user's message and the response (the generation prompt). ``last``: after the last
    response of a dialog; ``followed``: between a response and the next user's message.
    """

    before: str
    last: str
    followed: str


def render(tokenizer: Any, chat: Chat, prompt: bool = True) -> str:
    """Render a dialog as text with the tokenizer's chat template.

    ``chat``: its messages, each with ``role`` and ``content``. ``prompt``: append the generation prompt, the
    start of the model's next message. Raises ConfigError if the template fails on the dialog or, in the main
    thread, takes more than 10 seconds of processor time (SECONDS).
    """
    try:
        with _time_limit():
            template = tokenizer.get_chat_template()
            dated = _TODAY + template if "strftime_now" in template else None
            return str(
                tokenizer.apply_chat_template(
                    list(chat), chat_template=dated, tokenize=False, add_generation_prompt=prompt
                )
            )
    except Exception as error:
        roles = ", ".join(message["role"] for message in chat)
        system = any(message["role"] == "system" for message in chat)
        advice = " or choose prompts without a system message (prompts=compact)," if system else ""
        raise ConfigError(
            f"the chat template of {name_of(tokenizer)} cannot render a dialog of the roles {roles}: "
            f"{type(error).__name__}: {' '.join(str(error).split())[:300]}. Correct its "
            f"chat_template,{advice} or use another model"
        ) from error


@contextmanager
def _time_limit() -> Iterator[None]:
    """Raise TimeoutError after SECONDS of processor time; in other threads than the main one do nothing."""
    # Against templates that pass the check at the start and hang at a later dialog. It costs no process but
    # stops only loops. Memory is limited only in the check, which renders every role and long messages: a
    # limit here would count the model's memory too. A template that exhausts memory later ends the run, which
    # then resumes without loss.

    def stop(*_: Any) -> None:
        raise TimeoutError(f"it takes more than {SECONDS:g} s")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def try_template(tokenizer: Any) -> AroundResponse:
    """Check a tokenizer's chat template; returns the text that it writes around a response.

    It renders dialogs first in a separate process under limits of time, memory and length, then here. Raises
    ConfigError if there is no template, or if it fails, exceeds a limit, drops a message, or changes a
    response.
    """
    if tokenizer.chat_template is None:
        raise ConfigError(
            f"the tokenizer of {tokenizer.name_or_path!r} has no chat template; use an instruct model "
            "or set `chat_template` in its tokenizer_config.json"
        )
    chat = _chat(_QUESTION, _ANSWER, _QUESTION_2)
    _check_limits(tokenizer, chat)

    # Every message must appear in the text.
    text = render(tokenizer, chat)
    missing = [message for message in chat if message["content"] not in text]
    if missing:
        raise ConfigError(
            f"the chat template of {name_of(tokenizer)} drops messages: its text of a dialog of three "
            f"messages contains {3 - len(missing)} (missing: {missing[0]['role']}'s "
            f"{missing[0]['content']!r}). Correct its chat_template: it must write {{{{ message.content }}}} "
            "of every message"
        )

    # The text around a response, which is found by a placeholder. Later messages are appended to that text
    # (ChatRenderer.following).
    marked = _chat(_QUESTION, RESPONSE, _QUESTION_2)
    ends = [render(tokenizer, marked[:2], prompt=False), render(tokenizer, marked)]
    if any(end.count(RESPONSE) != 1 for end in ends):
        raise ConfigError(
            f"the chat template of {name_of(tokenizer)} does not write an assistant's message once and "
            "unchanged, so a dialog cannot continue after it; correct its chat_template"
        )
    last, followed = (end.split(RESPONSE)[1] for end in ends)
    return AroundResponse(text.split(_QUESTION_2)[-1], last, followed.split(_QUESTION_2)[0])


def drops_thoughts(tokenizer: Any) -> bool:
    """True if the chat template drops the thought of earlier responses, as thinking models' templates do.

    Tried by rendering a dialog with the thought in <think> tags, and one with it in a message field of its
    own (which counts only if the template writes that field after a last response, as gpt-oss's does).
    """
    in_text = _chat(_QUESTION, f"{THOUGHT}{_THOUGHT}{END_OF_THOUGHT}{_ANSWER}", _QUESTION_2)
    if _THOUGHT not in render(tokenizer, in_text):
        return True
    in_field = _chat(_QUESTION, _ANSWER, _QUESTION_2)
    in_field[1] |= dict.fromkeys(_THOUGHT_FIELDS, _THOUGHT)
    shown_last = _THOUGHT in render(tokenizer, in_field[:2], prompt=False)
    return shown_last and _THOUGHT not in render(tokenizer, in_field)


def _chat(*contents: str) -> list[dict[str, str]]:
    roles = ("user", "assistant", "user")
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]


def _check_limits(tokenizer: Any, chat: list[dict[str, str]]) -> None:
    """Raise ConfigError if rendering exceeds a limit of time, memory or text, in all roles."""
    try:
        template = tokenizer.get_chat_template()
    except Exception:  # noqa: BLE001 - rendering reports the error
        return
    # Short dialogs, a long one, and ones with a system message at the start and within.
    user, assistant, _ = _chat(LONG, LONG, LONG)
    system = {"role": "system", "content": _QUESTION}
    tried = [
        (chat, True),
        (chat[:2], False),
        (chat[:1], True),
        ([*[user, assistant] * (MESSAGES // 2), user], True),
        ([system, *chat], True),
        ([*chat[:2], system, *chat[2:]], True),
    ]
    common = dict(tokenizer.special_tokens_map) | {"tools": None, "documents": None}
    dialogs = []
    for messages, prompt in tried:
        dialogs.append(common | {"messages": messages, "add_generation_prompt": prompt})
    try:
        content = json.dumps({"template": template, "dialogs": dialogs}, default=str)
    except (TypeError, ValueError):
        return
    beyond = _limit_exceeded(content)
    if beyond:
        raise ConfigError(
            f"the chat template of {name_of(tokenizer)} does not come to an end: a dialog of three messages, "
            f"or of {MESSAGES} with {len(LONG):,} characters each, takes more than {beyond}. Correct its "
            "chat_template, or use another model"
        )


@cache
def _limit_exceeded(content: str) -> str | None:
    """The limit that rendering in a separate process exceeds, as text, else None; cached by ``content``."""
    command = [sys.executable, "-P", bounded_template.__file__]
    try:
        done = subprocess.run(command, input=content.encode(), capture_output=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"{PATIENCE:g} s"
    if done.returncode == bounded_template.TOO_LONG:
        return f"{CHARACTERS:,} characters"
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"{CPU_SECONDS} s"
    if done.returncode in (bounded_template.TOO_LARGE, -signal.SIGSEGV, -signal.SIGABRT):
        return f"{MEMORY >> 20} MiB of memory"
    return None


def name_of(tokenizer: Any) -> str:
    """Name or folder of the model to which a tokenizer belongs, for messages; "the tokenizer" if unknown."""
    return str(tokenizer.name_or_path or "the tokenizer")
