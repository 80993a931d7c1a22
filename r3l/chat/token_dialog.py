"""TokenDialog: a dialog as the tokens that a model reads and writes, whoever samples them."""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol, Self

from r3l.chat.renderer import ChatRenderer
from r3l.core.policy import Completion, FinishReason, Samples, Sampling
from r3l.core.text import Message


class DialogPolicy(Protocol):
    """What a dialog needs of its policy. ``max_context`` counts tokens of a dialog."""

    renderer: ChatRenderer
    max_context: int
    samples: Samples


class TokenDialog:
    """An append-only dialog (see r3l.core.policy.Conversation); subclasses add ``respond``.

    With ``samples: turn`` the chat template renders the whole dialog again at every turn.
    """

    def __init__(self, policy: DialogPolicy) -> None:
        self._policy = policy
        self._ids: list[int] = []  # every token so far
        self._tokens_at: list[int] = [0]  # tokens after each response
        self._messages: list[Message] = []  # every message so far, responses included
        self._messages_at: list[int] = [0]  # messages after each response
        self._ended = True  # the last token is what the template writes after a response

    def add(self, message: Message) -> None:
        """Append a message; it is encoded with the next response."""
        self._messages.append(message)

    def append_completion(self, completion: Completion) -> tuple[int, ...]:
        """Append a response of another dialog; its prompt ids here."""
        prompt = self._advance()
        self._accept(prompt, list(completion.response_ids), list(completion.logprobs))
        return tuple(prompt)

    def append_text(self, text: str) -> Completion:
        prompt = self._advance()
        ids = self._policy.renderer.response(text)
        return self._accept(prompt, ids, [0.0] * len(ids))

    def fork(self, turns: int) -> Self:
        twin = type(self)(self._policy)
        twin._messages, twin._messages_at = self._messages[: self._messages_at[turns]], self._messages_at[: turns + 1]
        twin._tokens_at = self._tokens_at[: turns + 1]
        length = self._tokens_at[turns] if self._policy.samples == "trajectory" else len(self._ids)
        twin._ids = self._ids[:length]
        twin._ended = not turns or self._ids[length - 1] == self._policy.renderer.end_id
        return twin

    def afresh(self) -> Self:
        twin = type(self)(self._policy)
        twin._ids = self._ids
        return twin

    def close(self) -> None:
        """Nothing is kept for a dialog but its tokens."""

    @property
    def _rendered(self) -> bool:
        """Whether the next prompt is all messages, rendered; else its tokens are appended to those so far."""
        return self._policy.samples == "turn" or len(self._tokens_at) == 1

    def _fits(self, sampling: Sampling) -> bool:
        return len(self._ids) + sampling.max_tokens <= self._policy.max_context

    def _advance(self) -> list[int]:
        """Encode the messages since the last response as tokens; those that a sample of this turn starts with."""
        if self._rendered:
            prompt = self._policy.renderer.opening(self._messages)
            self._before_rendering(prompt)
            self._ids = list(prompt)
            return prompt
        prompt = self._policy.renderer.following(self._messages[self._messages_at[-1] :], self._ended)
        self._ids += prompt
        return prompt

    def _before_rendering(self, ids: list[int]) -> None:
        """Called before ``ids`` take the place of the dialog's tokens, or of those of the one before it."""

    def _accept(
        self, prompt: list[int], ids: list[int], logprobs: list[float], stops: Set[int] = frozenset()
    ) -> Completion:
        self._ids += ids
        self._tokens_at.append(len(self._ids))
        self._ended = ids[-1] == self._policy.renderer.end_id
        text = self._policy.renderer.text(ids)
        self._messages.append(Message("assistant", text))
        self._messages_at.append(len(self._messages))
        reason = FinishReason.LINE if ids[-1] in stops else FinishReason.LENGTH
        if ids[-1] in self._policy.renderer.end_ids:
            reason = FinishReason.END
        return Completion(text, tuple(prompt), tuple(ids), tuple(logprobs), reason)
