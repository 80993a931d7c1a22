"""The judge of a run: a served model that writes feedback on episodes; nothing of it is trained."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from r3l.config import Run, feedback_source
from r3l.core.errors import ConfigError
from r3l.core.policy import Completion, FinishReason, JudgePrompts, Sampling, Usage
from r3l.core.rollout import RolloutContext
from r3l.core.seeds import Address
from r3l.core.text import Message, after_thought
from r3l.endpoint.options import EndpointOptions, Settable, UnfinishedError
from r3l.endpoint.policy import MessagePolicy
from r3l.feedback.feedback import FeedbackSource
from r3l.files.redact import KEY

if TYPE_CHECKING:  # a run without a judge needs no client
    from r3l.endpoint.client import Endpoint

ADDRESS = "R3L_JUDGE"  # environment variable: where a server is does not belong to a run's configuration


class EndpointJudge:
    """A judge (r3l.core.policy.Judge). No more requests are under way at once than the endpoint's ``concurrency``."""

    def __init__(self, endpoint: Endpoint, sampling: Sampling, prompts: JudgePrompts) -> None:
        self.prompts = prompts
        self._policy, self._sampling = MessagePolicy(endpoint), sampling
        self._slots = asyncio.Semaphore(endpoint.options.concurrency)

    async def write(self, messages: Sequence[Message], address: Address) -> Completion:
        """Its response, without the thoughts before it. Raises ServerError.

        Feedback that its filter keeps back is empty, counted as ``missing/REASON``, and so invalid: it is no score.
        """
        dialog = self._policy.open()
        for message in messages:
            if message.role == "assistant":
                dialog.append_text(message.content)
            else:
                dialog.add(message)
        async with self._slots:
            try:
                completion = await dialog.respond(self._sampling, address)
            except UnfinishedError as error:
                if error.lasting is None:
                    raise
                self._policy.endpoint.counts[f"missing/{error.lasting}"] += 1
                return Completion("", (), (), (), FinishReason.END, Usage(0, 0))
        return replace(completion, text=after_thought(completion.text).strip())

    def counts(self) -> dict[str, float]:
        """The endpoint's counts under ``judge/`` (r3l.runs.metrics)."""
        return {f"judge/{name}": number for name, number in self._policy.endpoint.counts.items()}


def judge_options(run: Run) -> EndpointOptions | None:
    """How the judge of ``run`` is asked; None where it has none. Raises ConfigError where one is not named."""
    if feedback_source(run.method_settings) is not FeedbackSource.JUDGE:
        return None
    url, judge = os.environ.get(ADDRESS, ""), run.judge
    missing = [
        *([] if url else [f"the address of its server is not in {ADDRESS} (http://host:8000)"]),
        *([] if judge.model else ["its model is not named (--set judge.model=NAME, as the server calls it)"]),
    ]
    if missing:
        raise ConfigError(
            f"{run.cell}: feedback is 'judge', but {' and '.join(missing)}; give it, with the server's key in {KEY} if "
            "it asks for one (docs/methods.md), or let another write: --method METHOD@feedback=self or environment"
        )
    settable = Settable(ADDRESS, "judge.model", "judge.deadline", "judge.concurrency")
    return EndpointOptions(url, judge.model, judge.concurrency, judge.deadline, settable=settable)


@asynccontextmanager
async def judging(run: Run, ctx: RolloutContext) -> AsyncIterator[None]:
    """Give ``ctx`` the judge of ``run``, if it has one, for the length of the block; then add its counts."""
    options = judge_options(run)
    if options is None:
        yield
        return
    from r3l.endpoint.client import Endpoint

    async with Endpoint(options) as endpoint:
        sampling = Sampling(run.judge.temperature, run.sampling.feedback_max_tokens)
        ctx.judge = judge = EndpointJudge(endpoint, sampling, run.judge.prompts)
        yield
        for name, number in judge.counts().items():
            ctx.counters[name] += number
