"""Demonstrations of a phase, played in worker processes, as untokenised dialogs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from multiprocessing import get_context

from r3l.config import environment_of
from r3l.processes.progress import tracked
from r3l.sft.examples import Document, documents_of
from r3l.sft.recipe import SFTConfig, SFTPhase

TASKS_PER_JOB = 16  # our choice


def play(config: SFTConfig, phase: SFTPhase, workers: int) -> list[Document]:
    """The documents of a phase, in the same order whatever the number of workers; with 0 this process plays them."""
    end = phase.first_task + phase.tasks
    jobs = [
        (config, phase, range(start, min(start + TASKS_PER_JOB, end)))
        for start in range(phase.first_task, end, TASKS_PER_JOB)
    ]
    if not workers:
        return _joined(map(_documents, jobs), len(jobs))
    with get_context("spawn").Pool(workers) as pool:
        return _joined(pool.imap(_documents, jobs), len(jobs))


def texts(documents: Iterable[Document]) -> Iterator[str]:
    """Every message and response."""
    for _, exchanges in documents:
        for exchange in exchanges:
            yield from (message.content for message in exchange.messages)
            yield exchange.response


def _joined(played: Iterable[list[Document]], jobs: int) -> list[Document]:
    return [document for documents in tracked(played, "demonstrations", jobs) for document in documents]


def _documents(job: tuple[SFTConfig, SFTPhase, range]) -> list[Document]:
    config, phase, tasks = job
    environment = environment_of(config.env)
    demonstrations = environment.demonstrations(
        tasks, phase.variants, config.max_turns, phase.error_rates, config.task_sets
    )
    dialogue, options = config.dialogue(), (config.guidance, config.hinted_share > 0, config.plan_thoughts)
    return [document for d in demonstrations for document in documents_of(dialogue, d, *options)]
