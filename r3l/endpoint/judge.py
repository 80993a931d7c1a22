"""Judge of a run: a served model that writes feedback on episodes and is not trained."""

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
from r3l.endpoint.options import EndpointOptions, Settable, UnfinishedError, models_in
from r3l.endpoint.policy import MessagePolicy
from r3l.feedback.feedback import FeedbackSource
from r3l.files.redact import KEY

if TYPE_CHECKING:  # imported only for a run with a judge
    from r3l.endpoint.client import Endpoint

ADDRESS = "R3L_JUDGE"  # environment variable: a server's address is not part of a run's configuration
ANSWERED_BY_JUDGE = "judge/answered_by/"  # metrics: requests by the model that their answers name


class EndpointJudge:
    """Judge (a served model that writes feedback) at ``endpoint``; see r3l.core.policy.Judge.

    It sends at most ``endpoint.options.concurrency`` requests at once. ``prompts``: the prompts it gets.
    """

    def __init__(self, endpoint: Endpoint, sampling: Sampling, prompts: JudgePrompts) -> None:
        self.prompts = prompts
        self._policy = MessagePolicy(endpoint)
        self._sampling = sampling
        self._slots = asyncio.Semaphore(endpoint.options.concurrency)

    async def write(self, messages: Sequence[Message], address: Address) -> Completion:
        """The judge's response to ``messages``, without its thoughts; ``address`` seeds the request.

        If responses stay incomplete for a reason that would come again (content filter, tool call), the text
        is empty, which is invalid feedback, and ``missing/REASON`` is counted. It is also
        empty, with ``FinishReason.CONTEXT``, if the context is full. Raises ServerError for other failures.
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
        """The endpoint's counts (r3l.endpoint.client:Endpoint), each named ``judge/NAME``.

        If other models than the first one answered, ``judge/other_models`` counts their answers.
        """
        endpoint = self._policy.endpoint
        found = dict(endpoint.counts)
        other = sum(n for name, n in models_in(found).items() if name != endpoint.answering[0])
        if other:
            found["other_models"] = other
        return {f"judge/{name}": number for name, number in found.items()}


def judge_options(run: Run) -> EndpointOptions | None:
    """Address and options of the served model that writes feedback in ``run``; None if none is needed.

    The address is read from the environment variable R3L_JUDGE. Raises ConfigError if a judge is needed and
    its address or its model's name is missing. Connects to nothing.
    """
    if feedback_source(run.method_settings) is not FeedbackSource.JUDGE:
        return None
    url = os.environ.get(ADDRESS, "")
    judge = run.judge
    missing = []
    if not url:
        missing.append(f"the address of its server is not in {ADDRESS} (http://host:8000)")
    if not judge.model:
        missing.append("its model is not named (--set judge.model=NAME, as the server calls it)")
    if missing:
        raise ConfigError(
            f"{run.cell}: feedback is 'judge', but {' and '.join(missing)}; give it, with the server's key "
            f"in {KEY} if it asks for one (docs/methods.md), or let another write: --method "
            "METHOD@feedback=self or environment"
        )
    settable = Settable(ADDRESS, "judge.model", "judge.deadline", "judge.concurrency", "the feedback")
    return EndpointOptions(url, judge.model, judge.concurrency, judge.deadline, settable=settable)


@asynccontextmanager
async def judging(run: Run, ctx: RolloutContext) -> AsyncIterator[None]:
    """Open a connection to the judge of ``run`` for the block, as ``ctx.judge``; nothing if none is needed.

    After the block, unless it raises, its counts are added to ``ctx.counters``. ``ctx.history`` (metrics of
    earlier steps, also after a restart) has the models that answered so far, so a change of model is always
    noticed. Raises ConfigError if the judge's address or its model's name is missing.
    """
    options = judge_options(run)
    if options is None:
        yield
        return
    from r3l.endpoint.client import Endpoint

    # The names of models in the metrics of earlier steps, in the order in which they answered first.
    names = [name for metrics in ctx.history for name in metrics if name.startswith(ANSWERED_BY_JUDGE)]
    before = dict.fromkeys(name.removeprefix(ANSWERED_BY_JUDGE) for name in names)
    async with Endpoint(options, before=before) as endpoint:
        sampling = Sampling(run.judge.temperature, run.sampling.feedback_max_tokens)
        ctx.judge = judge = EndpointJudge(endpoint, sampling, run.judge.prompts)
        yield
        for name, number in judge.counts().items():
            ctx.counters[name] += number
