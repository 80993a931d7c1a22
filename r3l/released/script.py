"""A policy that says what it is told to, so that our episodes and the released ones get the same responses."""

from __future__ import annotations

from collections.abc import Sequence

from r3l.core.policy import Completion, FinishReason, Sampling
from r3l.core.seeds import Address
from r3l.core.text import Message


class Script:
    """A ``Policy``. Its dialogs take the next of ``responses``, a token each; a prompt has no tokens."""

    def __init__(self, responses: Sequence[str]) -> None:
        self.say(responses)

    def say(self, responses: Sequence[str]) -> None:
        """Go on with other responses."""
        self.responses = iter(responses)

    def open(self) -> ScriptedDialog:
        """A dialog."""
        return ScriptedDialog(self)


class ScriptedDialog:
    """A ``Conversation`` that remembers nothing."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def add(self, message: Message) -> None:
        """Nobody reads it."""

    async def respond(self, sampling: Sampling, address: Address) -> Completion:
        """The next response."""
        return self.append_text(next(self._script.responses))

    def append_completion(self, completion: Completion) -> tuple[int, ...]:
        """No prompt ids."""
        return ()

    def append_text(self, text: str) -> Completion:
        """Any text as a response."""
        return Completion(text, (), (0,), (0.0,), FinishReason.END)

    def fork(self, turns: int) -> ScriptedDialog:
        """Another dialog of the same script."""
        return ScriptedDialog(self._script)

    def close(self) -> None:
        """Nothing is held."""
