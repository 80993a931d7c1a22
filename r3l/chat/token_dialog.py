"""TokenDialog: a dialog as the tokens that a model reads and writes, for every sampler."""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol, Self

from r3l.chat.renderer import ChatRenderer
from r3l.core.policy import Completion, FinishReason, Samples
from r3l.core.text import Message, after_thought, with_think_tags


class DialogPolicy(Protocol):
    """The part of a policy that its dialogs read.

    ``max_context``: the most tokens of a dialog. ``samples``: whether a training sample is a trajectory or
    one turn, which decides whether earlier turns are rendered again.
    """

    renderer: ChatRenderer
    max_context: int
    samples: Samples


class TokenDialog:
    """A dialog as token ids (r3l.core.policy.Conversation), to which messages are appended.

    Subclasses add ``respond``. Under ``samples: trajectory`` tokens are only appended too, and never rendered
    again; under ``samples: turn`` the chat template renders all messages again at every turn, instead of the
    tokens so far.
    """

    def __init__(self, policy: DialogPolicy) -> None:
        self._policy = policy
        self._ids: list[int] = []  # all tokens so far; never changed in place
        self._ids_before: list[int] = []  # the same without the last prompt, to take that back
        self._tokens_at: list[int] = [0]  # their number after each response, for fork
        self._messages: list[Message] = []  # all messages so far, responses included
        self._messages_at: list[int] = [0]  # their number after each response
        self._ended = True  # the last token is the end token that the template writes after a response

    def add(self, message: Message) -> None:
        """Append a message; it is encoded with the next response."""
        self._messages.append(message)

    def append_completion(self, completion: Completion) -> tuple[int, ...]:
        """Append a response that another dialog sampled.

        Its token ids and log-probs are kept as they are. Returns the token ids that stand between the
        previous response and this one in this dialog. Raises IndexError for a response without tokens.
        """
        prompt = self._advance()
        self._accept(prompt, list(completion.response_ids), list(completion.logprobs))
        return tuple(prompt)

    def append_text(self, text: str) -> Completion:
        """Append a given text (a critic's or a judge's) as a response, and return it with its token ids.

        Its log-probs are 0.
        """
        prompt = self._advance()
        ids = self._policy.renderer.response(text)
        return self._accept(prompt, ids, [0.0] * len(ids))

    def fork(self, turns: int) -> Self:
        """A copy of the dialog after its first ``turns`` responses; IndexError if it has fewer."""
        fork = type(self)(self._policy)
        fork._messages = self._messages[: self._messages_at[turns]]
        fork._messages_at = self._messages_at[: turns + 1]
        fork._tokens_at = self._tokens_at[: turns + 1]
        # Under ``samples: turn`` the next rendering replaces all tokens; sharing them lets its beginning be
        # reused.
        length = self._tokens_at[turns] if self._policy.samples == "trajectory" else len(self._ids)
        fork._ids = self._ids[:length]
        fork._ended = not turns or self._ids[length - 1] == self._policy.renderer.end_id
        return fork

    def restarted(self) -> Self:
        """An empty dialog that replaces this one; a common beginning of their tokens is not encoded again."""
        fresh = type(self)(self._policy)
        fresh._ids = self._ids  # its first rendering replaces them, and a KV cache keeps what is equal
        return fresh

    def close(self) -> None:
        """Release nothing; subclasses with a KV cache override this."""

    @property
    def _rendered(self) -> bool:
        """True if the next prompt renders all messages; else its tokens are appended to those so far."""
        return self._policy.samples == "turn" or len(self._tokens_at) == 1

    def _fits(self, tokens: int) -> bool:
        """True if a response of so many ``tokens`` to the last prompt fits the context.

        If not, the prompt is taken back.
        """
        if len(self._ids) + tokens <= self._policy.max_context:
            return True
        self._take_back()
        return False

    def _take_back(self) -> None:
        """Undo :meth:`_advance`: the messages of that prompt are encoded again with the next response."""
        self._ids = self._ids_before

    def _advance(self) -> list[int]:
        """Encode the messages since the last response; returns the prompt ids of the next turn."""
        self._ids_before = self._ids
        if self._rendered:
            prompt = self._policy.renderer.opening(self._messages)
            self._before_rendering(prompt)
            self._ids = list(prompt)
            return prompt
        prompt = self._policy.renderer.following(self._messages[self._messages_at[-1] :], self._ended)
        self._ids = self._ids + prompt
        return prompt

    def _before_rendering(self, ids: list[int]) -> None:
        """Hook: ``ids`` are about to replace the tokens of this dialog, or of the one that it replaces."""

    def _accept(
        self, prompt: list[int], ids: list[int], logprobs: list[float], stops: Set[int] = frozenset()
    ) -> Completion:
        """Append a response and return it. ``stops``: the tokens that end a line (``stop: line``)."""
        self._ids = self._ids + ids
        self._tokens_at.append(len(self._ids))
        self._ended = ids[-1] == self._policy.renderer.end_id
        sampled = self._policy.renderer.text(ids)
        text = with_think_tags(sampled)
        # A template that has other marks for thoughts drops earlier ones, or would take the tags for text.
        self._messages.append(Message("assistant", text if text == sampled else after_thought(text)))
        self._messages_at.append(len(self._messages))
        reason = FinishReason.LINE if ids[-1] in stops else FinishReason.LENGTH
        if ids[-1] in self._policy.renderer.end_ids:
            reason = FinishReason.END
        return Completion(text, tuple(prompt), tuple(ids), tuple(logprobs), reason)
