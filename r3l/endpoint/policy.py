"""Policies that sample at an endpoint: by messages, which every server takes, or by tokens."""

from __future__ import annotations

import logging
import re
from collections.abc import Set
from typing import TYPE_CHECKING, Self

from r3l.chat.renderer import ChatRenderer
from r3l.chat.token_dialog import TokenDialog
from r3l.core.policy import Completion, FinishReason, Samples, Sampling, Usage
from r3l.core.seeds import Address
from r3l.core.text import END_OF_THOUGHT, Message, without_thoughts
from r3l.endpoint.options import DialogTooLongError, RefusedRequestError

if TYPE_CHECKING:
    from r3l.endpoint.client import Endpoint
    from r3l.endpoint.responses import ChatAnswer

log = logging.getLogger(__name__)
EMPTY = "(empty)"  # sent for an empty message to servers that refuse those
_LINES = re.compile(r"[^\n]*\n+|[^\n]+\Z")


class MessagePolicy:
    """Policy that sends all messages of a dialog at every turn; the server applies the chat template.

    ``max_context``: most tokens of a dialog, as far as the server counts them; None: the server's limit.
    ``lines``: most lines of a response if a turn is one line: the complete response is sampled, and its lines
    become turns. ``renderer``: the model's own tokenizer and template, if known. ``same_template``: whether
    the server counts as many tokens in opening prompts as ``renderer`` does; None: unknown.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        max_context: int | None = None,
        lines: int = 1,
        renderer: ChatRenderer | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.max_context = max_context
        self.lines = lines
        self.same_template: bool | None = None
        self.drops_thoughts = False  # earlier thoughts are not sent back
        self.fills_empty = False  # empty messages are sent as EMPTY
        self.end_texts = renderer.end_texts if renderer else []
        self._renderer = renderer

    def open(self) -> MessageConversation:
        """A new, empty dialog."""
        return MessageConversation(self)

    def check_template(self, messages: list[Message], read: int) -> None:
        """Compare the server's count of the opening prompt (``read``, tokens) with our rendering of it.

        Sets ``same_template``; at the first difference it logs a warning, after which it does nothing more.
        Nothing without a renderer.
        """
        if self._renderer is None or self.same_template is False:
            return
        own = len(self._renderer.opening(messages))
        self.same_template = own == read
        if not self.same_template:
            log.warning(
                "the server reads the first prompt as %d tokens, the model's own tokenizer and chat "
                "template as %d: the scores do not show the model as it was trained "
                "(docs/endpoints.md says how to serve it)",
                *(read, own),
            )


class MessageConversation:
    """A dialog kept as messages, for servers that take no token ids; MessagePolicy.open makes one.

    Every request sends all messages so far. If a turn is one line, the lines of one sampled response are
    returned turn by turn. Token ids and log-probs are unknown, so such a dialog cannot be trained on.
    """

    def __init__(self, policy: MessagePolicy) -> None:
        self._policy = policy
        self._messages: list[Message] = []
        self._messages_at = [0]  # messages after each response
        self._left: list[Completion] = []  # lines of the last response that are not read yet
        self._grown = (0, 0)  # words of the last prompt, and the tokens that it has at least
        self._grown_at = [self._grown]  # the same before each response

    def add(self, message: Message) -> None:
        """Append a message of the user or system; unread lines of the last response are dropped."""
        self._messages.append(message)
        self._left.clear()

    async def respond(self, sampling: Sampling, address: Address) -> Completion:
        """Append and return the next response; if a turn is one line, lines of the last response come first.

        ``address`` seeds a request. The response is empty, with ``FinishReason.CONTEXT``, if the context is
        full. Raises ServerError if the request fails otherwise.
        """
        if not self._left:
            self._left = await self._sample(sampling, address)
        return self._accept(self._left.pop(0))

    def append_completion(self, completion: Completion) -> tuple[int, ...]:
        """Append a response of another dialog. Returns (): its prompt ids in this dialog are unknown."""
        self._accept(completion)
        return ()

    def append_text(self, text: str) -> Completion:
        """Append ``text`` as the model's response, without a request: no token ids, no log-probs."""
        return self._accept(Completion(text, (), (), (), FinishReason.END))

    def fork(self, turns: int) -> Self:
        """A new dialog with the messages up to response ``turns`` of this one; IndexError if it has fewer."""
        twin = type(self)(self._policy)
        twin._messages = self._messages[: self._messages_at[turns]]
        twin._messages_at = self._messages_at[: turns + 1]
        twin._grown_at = self._grown_at[: turns + 1]
        twin._grown = twin._grown_at[-1]
        return twin

    def restarted(self) -> Self:
        """A new, empty dialog of the same policy."""
        return type(self)(self._policy)

    def close(self) -> None:
        """Release nothing: the server keeps no dialog."""

    async def _sample(self, sampling: Sampling, address: Address) -> list[Completion]:
        """The next response, as one completion, or one for each line."""
        messages = self._joined()
        by_line = sampling.stop == "line"
        tokens = sampling.max_tokens * (self._policy.lines if by_line else 1)
        try:
            request = Sampling(sampling.temperature, tokens)
            answer = await self._ask(messages, request, address)
        except DialogTooLongError:
            return [_CONTEXT_FULL]
        read = answer.read_tokens
        limit = self._policy.max_context
        if read is not None and len(self._messages_at) == 1:
            self._policy.check_template(messages, read)
        if answer.is_respelled:
            self._policy.drops_thoughts = True

        # A dialog only grows, and each of its words is a token at least, so a prompt of fewer tokens has been
        # cut. Thoughts do not count, since templates drop them. (A prompt that ends with a part of a response
        # may shrink: its thought is dropped later.)
        if read and messages[-1].role != "assistant":
            words_before, least = self._grown
            words = sum(len(m.content.rpartition(END_OF_THOUGHT)[2].split()) for m in messages)
            least += words - words_before
            if read < least:
                self._policy.endpoint.note_cut_prompt(read, least)
            self._grown = (words, max(read, least))

        # The dialog ends where a local one would: whether it fits is known only now that the server has
        # counted it.
        if read is not None and limit and read + sampling.max_tokens > limit:
            return [_CONTEXT_FULL]
        return _lines(answer) if by_line else [_completion(answer.text, answer.finish_reason, answer.counted)]

    async def _ask(self, messages: list[Message], request: Sampling, address: Address) -> ChatAnswer:
        """The answer to ``messages``; if the server refuses empty ones, with EMPTY in their place.

        Most templates render an empty message, which a thought without an answer leaves; Anthropic and
        others refuse it. Raises what Endpoint.chat raises.
        """
        policy = self._policy
        filled = [Message(m.role, m.content if m.content.strip() else EMPTY) for m in messages]
        if not policy.fills_empty:
            try:
                return await policy.endpoint.chat(messages, request, address, policy.end_texts)
            except RefusedRequestError:
                if filled == messages:
                    raise
        answer = await policy.endpoint.chat(filled, request, address, policy.end_texts)
        if not policy.fills_empty:
            policy.fills_empty = True
            log.warning("the server refuses empty messages: they are sent as %s", EMPTY)
        policy.endpoint.counts["filled"] += filled != messages
        return answer

    def _joined(self) -> list[Message]:
        """The messages to send: lines of one response joined, and without thoughts if the server drops them.

        A server with a reasoning parser gives the thought in a separate field; others have it in the marks
        of the model, [THINK] or channels. Templates drop such a thought, or refuse it; sent back in <think>
        tags it would be ordinary text to them, and stay in the prompt.
        """
        # Neighbouring messages of the assistant are lines of one response.
        joined: list[Message] = []
        for message in self._messages:
            if message.role == "assistant" and joined and joined[-1].role == "assistant":
                joined[-1] = Message("assistant", joined[-1].content + message.content)
            else:
                joined.append(message)
        if not self._policy.drops_thoughts:
            return joined
        return [Message(m.role, without_thoughts(m.content)) if m.role == "assistant" else m for m in joined]

    def _accept(self, completion: Completion) -> Completion:
        self._messages.append(Message("assistant", completion.text))
        self._messages_at.append(len(self._messages))
        self._grown_at.append(self._grown)
        return completion


def _completion(text: str, reason: FinishReason, usage: Usage | None) -> Completion:
    return Completion(text, (), (), (), reason, usage)


_NOTHING = Usage(0, 0)
_CONTEXT_FULL = _completion("", FinishReason.CONTEXT, _NOTHING)


def _lines(answer: ChatAnswer) -> list[Completion]:
    """Split a response into one completion per line.

    After a final line break comes an empty one, as if the model had ended its turn there.
    """
    texts = _LINES.findall(answer.text)
    ended = [text for text in texts if text.endswith("\n")]
    last = texts[len(ended)] if len(texts) > len(ended) else ""
    lines = [_completion(text, FinishReason.LINE, _NOTHING) for text in ended]
    lines.append(_completion(last, answer.finish_reason, _NOTHING))
    first = lines[0]
    return [_completion(first.text, first.finish_reason, answer.counted), *lines[1:]]


class TokenPolicy:
    """Policy at a server that takes and returns token ids (vLLM); dialogs keep their tokens as sampled.

    ``renderer``: the model's own tokenizer and chat template. ``max_context``: most tokens of a dialog.
    ``samples``: ``turn``: the template renders the dialog again at every turn; ``trajectory``: it only grows.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        renderer: ChatRenderer,
        max_context: int,
        samples: Samples,
    ) -> None:
        self.endpoint = endpoint
        self.renderer = renderer
        self.max_context = max_context
        self.samples = samples

    def open(self) -> TokenConversation:
        """A new, empty dialog."""
        return TokenConversation(self)


class TokenConversation(TokenDialog):
    """A dialog kept as token ids, which are sent as the prompt; TokenPolicy.open makes one.

    Log-probs are not requested, and recorded as 0.
    """

    _policy: TokenPolicy

    async def respond(self, sampling: Sampling, address: Address) -> Completion:
        """Request the next response, seeded by ``address``, and append it.

        If the context is full, it returns an empty response with ``FinishReason.CONTEXT`` and appends
        nothing. Raises ServerError if the request fails otherwise.
        """
        prompt = self._advance()
        context_full = Completion("", (), (), (), FinishReason.CONTEXT)
        if not self._fits(sampling.max_tokens):
            return context_full
        stops: Set[int] = self._policy.renderer.stops(sampling.stop)
        try:
            answer = await self._policy.endpoint.complete(self._ids, sorted(stops), sampling, address)
        except DialogTooLongError:
            self._take_back()
            return context_full
        return self._accept(prompt, answer.ids, [0.0] * len(answer.ids), stops)
