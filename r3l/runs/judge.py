"""The judge of a run: where it is, how it is asked, and its connection while a step is explored."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from r3l.config import Run, feedback_source
from r3l.core.errors import ConfigError
from r3l.core.feedback import FeedbackSource
from r3l.core.masking import KEY
from r3l.core.policy import Sampling
from r3l.core.rollout import RolloutContext

if TYPE_CHECKING:  # a run without a judge asks no server
    from r3l.endpoint.client import EndpointOptions

ADDRESS = "R3L_JUDGE"  # environment variable: an address is of a place, not of a run


def judge_options(run: Run) -> EndpointOptions | None:
    """How the judge of ``run`` is asked; None where it has none. Raises ConfigError where one is not named."""
    if feedback_source(run.method_settings) is not FeedbackSource.JUDGE:
        return None
    from r3l.endpoint.client import EndpointOptions, Settable

    url, judge = os.environ.get(ADDRESS, ""), run.judge
    missing = [
        *([] if url else [f"the address of its server is not in {ADDRESS} (http://host:8000)"]),
        *([] if judge.model else ["its model is not named (--set judge.model=NAME, as the server calls it)"]),
    ]
    if missing:
        raise ConfigError(
            f"{run.cell}: feedback is 'judge', but {' and '.join(missing)}; give it, with the server's key in {KEY} if "
            "it asks for one (docs/feedback.md), or let another write: --method METHOD@feedback=self or environment"
        )
    settable = Settable(ADDRESS, "judge.model", "judge.deadline", "judge.concurrency")
    return EndpointOptions(url, judge.model, judge.concurrency, judge.deadline, settable=settable)


@asynccontextmanager
async def judging(run: Run, ctx: RolloutContext) -> AsyncIterator[None]:
    """``ctx`` has the judge of ``run``, if it has one, until the end of the block; what was asked is then counted."""
    options = judge_options(run)
    if options is None:
        yield
        return
    from r3l.endpoint.client import Endpoint
    from r3l.endpoint.judge import EndpointJudge

    async with Endpoint(options) as endpoint:
        sampling = Sampling(run.judge.temperature, run.sampling.feedback_max_tokens)
        ctx.judge = judge = EndpointJudge(endpoint, sampling, run.judge.prompts)
        yield
        for name, number in judge.counts().items():
            ctx.counters[name] += number
