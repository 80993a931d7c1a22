"""Policies that sample at an endpoint: by messages, which every server takes, or by tokens, as our own engines do."""

from __future__ import annotations

import logging
import re
from collections.abc import Set
from itertools import groupby
from typing import TYPE_CHECKING, Self

from r3l.chat.renderer import ChatRenderer
from r3l.chat.token_dialog import TokenDialog
from r3l.core.policy import Completion, FinishReason, Samples, Sampling, Usage
from r3l.core.seeds import Address
from r3l.core.text import Message
from r3l.endpoint.options import DialogTooLongError

if TYPE_CHECKING:
    from r3l.endpoint.client import Endpoint
    from r3l.endpoint.responses import ChatAnswer

log = logging.getLogger(__name__)
_LINES = re.compile(r"[^\n]*\n+|[^\n]+\Z")


class MessagePolicy:
    """Opens dialogs that the server renders with its chat template, whole, at every turn.

    ``max_context``: tokens of a dialog, as far as the server counts them. ``lines``: of a response at most, where a
    turn is a line: the response is then sampled whole, and its lines are read one by one. ``renderer``, where the
    model's tokenizer is known: ``same_template`` then says whether the server reads opening prompts as it does.
    """

    def __init__(
        self, endpoint: Endpoint, max_context: int | None = None, lines: int = 1, renderer: ChatRenderer | None = None
    ) -> None:
        self.endpoint, self.max_context, self.lines = endpoint, max_context, lines
        self.same_template: bool | None = None
        self._renderer = renderer

    def open(self) -> MessageConversation:
        return MessageConversation(self)

    def check_template(self, messages: list[Message], read: int) -> None:
        """Compare the tokens that the server has ``read`` for the opening ``messages`` with our rendering of them."""
        if self._renderer is None or self.same_template is False:
            return
        own = len(self._renderer.opening(messages))
        self.same_template = own == read
        if not self.same_template:
            log.warning(
                "the server reads the first prompt as %d tokens, the model's own tokenizer and chat template as %d: "
                "the scores are not those of the model as it was trained (docs/endpoints.md says how to serve it)",
                *(read, own),
            )


class MessageConversation:
    """A dialog of messages (see r3l.core.policy.Conversation)."""

    def __init__(self, policy: MessagePolicy) -> None:
        self._policy = policy
        self._messages: list[Message] = []
        self._messages_at = [0]  # messages after each response
        self._left: list[Completion] = []  # lines of the response that nobody has asked for yet

    def add(self, message: Message) -> None:
        self._messages.append(message)
        self._left.clear()

    async def respond(self, sampling: Sampling, address: Address) -> Completion:
        """The next response, or the next line of this one."""
        if not self._left:
            self._left = await self._sample(sampling, address)
        return self._accept(self._left.pop(0))

    def append_completion(self, completion: Completion) -> tuple[int, ...]:
        """Append a response of another dialog; nobody knows its prompt ids here."""
        self._accept(completion)
        return ()

    def append_text(self, text: str) -> Completion:
        return self._accept(Completion(text, (), (), (), FinishReason.END))

    def fork(self, turns: int) -> Self:
        twin = type(self)(self._policy)
        twin._messages, twin._messages_at = self._messages[: self._messages_at[turns]], self._messages_at[: turns + 1]
        return twin

    def afresh(self) -> Self:
        return type(self)(self._policy)

    def close(self) -> None:
        """The server keeps no dialog."""

    async def _sample(self, sampling: Sampling, address: Address) -> list[Completion]:
        messages = self._joined()
        of_line = sampling.stop == "line"
        whole = Sampling(sampling.temperature, sampling.max_tokens * (self._policy.lines if of_line else 1))
        try:
            answer = await self._policy.endpoint.chat(messages, whole, address)
        except DialogTooLongError:
            return [_NO_ROOM]
        usage, read, room = answer.counted, answer.read_tokens, self._policy.max_context
        if read is not None and len(self._messages_at) == 1:
            self._policy.check_template(messages, read)
        if read is not None and room and read + sampling.max_tokens > room:
            return [_NO_ROOM]
        return _lines(answer) if of_line else [_completion(answer.text, answer.finish_reason, usage)]

    def _joined(self) -> list[Message]:
        """The messages; lines of one response together."""
        groups = groupby(
            enumerate(self._messages), lambda pair: "assistant" if pair[1].role == "assistant" else pair[0]
        )
        return [
            Message(first[1].role, "".join(message.content for _, message in (first, *rest)))
            for _, (first, *rest) in groups
        ]

    def _accept(self, completion: Completion) -> Completion:
        self._messages.append(Message("assistant", completion.text))
        self._messages_at.append(len(self._messages))
        return completion


def _completion(text: str, reason: FinishReason, usage: Usage | None) -> Completion:
    return Completion(text, (), (), (), reason, usage)


_NOTHING = Usage(0, 0)
_NO_ROOM = _completion("", FinishReason.CONTEXT, _NOTHING)


def _lines(answer: ChatAnswer) -> list[Completion]:
    """A response by lines, as a model is asked for them one by one: a last one after a line break is empty."""
    texts = _LINES.findall(answer.text)
    ended = [text for text in texts if text.endswith("\n")]
    last = texts[len(ended)] if len(texts) > len(ended) else ""
    lines = [_completion(text, FinishReason.LINE, _NOTHING) for text in ended]
    lines.append(_completion(last, answer.finish_reason, _NOTHING))
    first = lines[0]
    return [_completion(first.text, first.finish_reason, answer.counted), *lines[1:]]


class TokenPolicy:
    """Opens dialogs whose tokens are kept as they were sampled, never rendered again; needs the model's tokenizer.

    The server must take prompts as token ids and return them (vLLM). ``max_context`` counts tokens of a dialog.
    """

    def __init__(self, endpoint: Endpoint, renderer: ChatRenderer, max_context: int, samples: Samples) -> None:
        self.endpoint, self.renderer = endpoint, renderer
        self.max_context, self.samples = max_context, samples

    def open(self) -> TokenConversation:
        return TokenConversation(self)


class TokenConversation(TokenDialog):
    """A dialog of tokens (see r3l.core.policy.Conversation). Log-probs are not asked for and stand as 0."""

    _policy: TokenPolicy

    async def respond(self, sampling: Sampling, address: Address) -> Completion:
        prompt, nothing = self._advance(), Completion("", (), (), (), FinishReason.CONTEXT)
        if not self._fits(sampling):
            return nothing
        stops: Set[int] = self._policy.renderer.stops(sampling.stop)
        try:
            answer = await self._policy.endpoint.complete(self._ids, sorted(stops), sampling, address)
        except DialogTooLongError:
            return nothing
        return self._accept(prompt, answer.ids, [0.0] * len(answer.ids), stops)
