"""Drafts for speculative decoding, without a draft model: what followed the same tokens before.

Agents repeat themselves: the format of a response, names of things, an action after the thought that names
it, what another attempt at the task wrote. A decoder encodes drafted tokens together with the last sampled
one, so that the weights are read once for all of them, and keeps those that it draws itself.

Prompt lookup decoding: Saxena, 2023, github.com/apoorvumang/prompt-lookup-decoding.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

# Our choices, by acceptance in stored transcripts of WebShop (results/notebook):
LENGTHS = (8, 4, 2, 1)  # numbers of last tokens that are looked up, in this order
KNOWN = 200_000  # most ends of texts that are kept, about 80 MB
MOST = 7  # most tokens of a draft
# Encoding one token takes as long as so many more tokens in the same pass: 95 ms at 16 rows and 242 at 64
# (Qwen2.5-Coder-0.5B on two CPU cores, results/notebook).
PASS_COST = 16.0


class PromptLookup:
    """What was said since a step began, by its last tokens; and how often its drafts were right.

    The share of right tokens decides how long drafts are, so they depend on nothing but the tokens.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all texts, and how often drafts were right: a step depends on no earlier one."""
        self._after: OrderedDict[tuple[int, ...], tuple[Sequence[int], int]] = OrderedDict()
        self._right = 1  # a first draft is thought to be right in half of the cases
        self._tried = 2

    def learn(self, tokens: Sequence[int], start: int) -> None:
        """Note what precedes each token of ``tokens`` from index ``start`` on.

        Beyond KNOWN ends the one that was noted first is forgotten, even if it was noted again since.
        ``tokens`` is not copied: tokens appended later may be drafted too.
        """
        for index in range(max(start, 1), len(tokens)):
            for length in LENGTHS:
                if length <= index:
                    self._after[tuple(tokens[index - length : index])] = (tokens, index)
        while len(self._after) > KNOWN:
            self._after.popitem(last=False)

    def draft(self, tokens: Sequence[int], most: int) -> list[int]:
        """At most ``most`` tokens that followed the last of ``tokens`` when most of them last occurred."""
        for length in LENGTHS:
            if length <= len(tokens) and (found := self._after.get(tuple(tokens[-length:]))):
                text, index = found
                return list(text[index : index + most])
        return []

    def best_length(self, rows: int) -> int:
        """Drafted tokens for each of ``rows`` responses with which sampling is expected to be fastest.

        With a share p of right tokens, a draft of n gives (1 - p^(n+1)) / (1 - p) tokens (Leviathan et al.
        2023, 2211.17192, equation 1).
        """
        share = self._right / self._tried
        speeds = []
        for length in range(MOST + 1):
            tokens = sum(share**k for k in range(length + 1))
            speeds.append(tokens / (PASS_COST + rows * (length + 1)))
        return speeds.index(max(speeds))

    def note(self, right: bool) -> None:
        """Count a drafted token, which was the one that was then sampled or not."""
        self._right += right
        self._tried += 1
