"""Demonstrations of an SFT phase, played in worker processes, as untokenised dialogs."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from multiprocessing import get_context

from r3l.config import environment_of
from r3l.config.sft_recipe import ExampleKind, ScriptedPhase, SFTConfig
from r3l.processes.progress import tracked
from r3l.sft.examples import Document, documents_of

TASKS_PER_JOB = 16  # our choice


def play(config: SFTConfig, phase: ScriptedPhase, workers: int) -> list[Document]:
    """Play a phase's demonstrations by scripted experts, and make dialogs of them: (kind, turns) each.

    They are in the order of the tasks, the same for any number of ``workers`` (processes that play); with 0
    this process plays. Shows progress.
    """
    end = phase.first_task + phase.tasks
    jobs = [
        (config, phase, range(start, min(start + TASKS_PER_JOB, end)))
        for start in range(phase.first_task, end, TASKS_PER_JOB)
    ]
    # Workers ignore Ctrl-C, which a terminal sends to every process: this one ends them.
    ignore = (signal.signal, (signal.SIGINT, signal.SIG_IGN))
    with get_context("spawn").Pool(workers, *ignore) if workers else nullcontext() as pool:
        played = pool.imap(_documents, jobs) if pool else map(_documents, jobs)
        return [document for of_job in tracked(played, "demonstrations", len(jobs)) for document in of_job]


def texts(documents: Iterable[Document]) -> Iterator[str]:
    """The text of every message and response of ``documents``, in order."""
    for _, exchanges in documents:
        for exchange in exchanges:
            yield from (message.content for message in exchange.messages)
            yield exchange.response


def _documents(job: tuple[SFTConfig, ScriptedPhase, range]) -> list[Document]:
    """Play the tasks of one job, in a worker process."""
    config, phase, tasks = job
    demonstrations = environment_of(config.env).demonstrations(
        tasks, phase.variants, config.max_turns, phase.error_rates, config.task_sets
    )
    dialogue = config.dialogue()
    hinted = config.shares_of(phase)[ExampleKind.HINTED] > 0
    documents: list[Document] = []
    for demonstration in demonstrations:
        documents += documents_of(dialogue, demonstration, config.guidance, hinted, config.plan_thoughts)
    return documents
