"""A model's chat template, which is a program of somebody else's: rendered, and tried before any work."""

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

RESPONSE = "\ud800"  # in the place of an earlier response: no well-formed text holds a lone surrogate
SECONDS = 10.0  # of processor time, for one rendering later on; our choice
LONG = "word " * 1000  # an observation, and how many messages an episode may have; our choice
MESSAGES = 21
PATIENCE = 120.0  # seconds for CPU_SECONDS of a busy machine; our choice
# In the place of transformers' function of this name, which no argument can replace: the date of DAY in any form.
_TODAY = "{%- macro strftime_now(form) -%}{{ form" + "".join(
    f"|replace('%{c}', '{DAY:%{c}}')" for c in "AaBbdHIjMmpSyY"
)
_TODAY += " }}{%- endmacro %}"
_ASKED, _ANSWERED, _FOLLOWED = "What does r3l ask first?", "It answers so.", "What does r3l ask then?"

Chat = Sequence[Mapping[str, str]]


class AfterResponse(NamedTuple):
    """What a template writes after the last response of a dialog, and between one and the next user's message."""

    last: str
    followed: str


def render(tokenizer: Any, chat: Chat, prompt: bool = True) -> str:
    """The dialog as text; ``prompt``: up to where the model's next message begins. Raises ConfigError where the
    template does not take it."""
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
            f"{type(error).__name__}: {' '.join(str(error).split())[:300]}. Correct its chat_template,{advice} or use "
            "another model"
        ) from error


@contextmanager
def _time_limit() -> Iterator[None]:
    """Raises TimeoutError after SECONDS of processor time. For what is quick at first: it asks for no process of its
    own, but sees loops alone, and in the main thread alone.

    Memory is bounded at the start alone, in every role and with long messages: what a template
    multiplies it multiplies there. A limit inside this process would count the model's memory too, and one that a
    template exceeds at some word only ends the run as any lack of memory does; it resumes without loss.
    """

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


def try_template(tokenizer: Any) -> AfterResponse:
    """Render a dialog of three messages, under limits. Raises ConfigError where there is no template, where it fails,
    does not come to an end, or leaves out what was said."""
    if tokenizer.chat_template is None:
        raise ConfigError(
            f"the tokenizer of {tokenizer.name_or_path!r} has no chat template; use an instruct model "
            "or set `chat_template` in its tokenizer_config.json"
        )
    chat = _chat(_ASKED, _ANSWERED, _FOLLOWED)
    _bounded(tokenizer, chat)
    text = render(tokenizer, chat)
    if missing := [message for message in chat if message["content"] not in text]:
        raise ConfigError(
            f"the chat template of {name_of(tokenizer)} leaves out what was said: of a dialog of three messages its "
            f"rendering holds {3 - len(missing)} (missing: {missing[0]['role']}'s {missing[0]['content']!r}). Correct "
            "its chat_template: it must write {{ message.content }} of every message"
        )
    marked = _chat(_ASKED, RESPONSE, _FOLLOWED)
    ends = [render(tokenizer, marked[:2], prompt=False), render(tokenizer, marked)]
    if any(end.count(RESPONSE) != 1 for end in ends):
        raise ConfigError(
            f"the chat template of {name_of(tokenizer)} does not write an assistant's message once and as it is, so a "
            "dialog cannot go on from it; correct its chat_template"
        )
    last, followed = (end.split(RESPONSE)[1] for end in ends)
    return AfterResponse(last, followed.split(_FOLLOWED)[0])


def _chat(*contents: str) -> list[dict[str, str]]:
    roles = ("user", "assistant", "user")
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]


def _bounded(tokenizer: Any, chat: list[dict[str, str]]) -> None:
    try:
        template = tokenizer.get_chat_template()
    except Exception:  # noqa: BLE001 - rendering says what is wrong
        return
    common = dict(tokenizer.special_tokens_map) | {"tools": None, "documents": None}
    long = [*_chat(LONG, LONG, LONG)[:2] * (MESSAGES // 2), *_chat(LONG, LONG, LONG)[2:]]
    system = {"role": "system", "content": _ASKED}
    parts = ((chat, True), (chat[:2], False), (chat[:1], True), (long, True))
    dialogs = [
        common | {"messages": part, "add_generation_prompt": prompt}
        for part, prompt in (*parts, ([system, *chat], True), ([*chat[:2], system, *chat[2:]], True))
    ]
    try:
        content = json.dumps({"template": template, "dialogs": dialogs}, default=str)
    except (TypeError, ValueError):
        return
    if beyond := _limit_exceeded(content):
        raise ConfigError(
            f"the chat template of {name_of(tokenizer)} does not come to an end: a dialog of three messages, or of "
            f"{MESSAGES} with {len(LONG):,} characters each, takes more than {beyond}. Correct its chat_template, or "
            "use another model"
        )


@cache
def _limit_exceeded(content: str) -> str | None:
    """The limit that rendering exceeds, which is found out in a process of its own, once for a template."""
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
    """The model that a tokenizer was loaded with."""
    return str(tokenizer.name_or_path or "the tokenizer")
