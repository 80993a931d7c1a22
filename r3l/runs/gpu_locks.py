"""One cell, one GPU: file locks share out the GPUs of this machine among the runs on it.

Snakemake counts GPUs but gives no ids. A run takes its GPUs when it begins, CUDA_VISIBLE_DEVICES names them, and the
locks die with its process. Inside a Slurm job the scheduler has done so already.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from r3l.core.errors import ConfigError

log = logging.getLogger(__name__)
VISIBLE = "CUDA_VISIBLE_DEVICES"
FOLDER = Path(tempfile.gettempdir()) / f"r3l-gpus-{os.getuid()}"  # of this machine, unlike a home directory
PAUSE = 1.0  # seconds between looks at GPUs that are taken


def visible() -> list[str]:
    """The ids of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES has them."""
    stated = os.environ.get(VISIBLE)
    if stated is not None:
        return [part.strip() for part in stated.split(",") if part.strip()]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


@contextmanager
def reserved(count: int, folder: Path = FOLDER) -> Iterator[list[str]]:
    """Own ``count`` GPUs, waiting until so many are free; their ids. Must come before the first use of CUDA.

    Raises ConfigError where this machine never has so many. Without any GPU, in a Slurm job, or for a ``count`` of 0
    nothing is changed: a CPU will do, or the choice has been made.
    """
    found = visible()
    if count == 0 or not found or "SLURM_JOB_ID" in os.environ:
        yield found
        return
    if count > len(found):
        raise ConfigError(
            f"{count} GPUs are asked for in configs/resources.yaml (or the model's `cluster` in configs/models), but "
            f"{len(found)} are visible here ({VISIBLE}={','.join(found)}); lower it there, or run where there are more"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        with FileLock(folder / "queue.lock"):  # one looks at a time: no two wait for each other's
            chosen = _take(count, found, folder, held)
        before = os.environ.get(VISIBLE)
        os.environ[VISIBLE] = ",".join(chosen)
        held.callback(_restore, before)
        yield chosen


def _take(count: int, found: list[str], folder: Path, held: ExitStack) -> list[str]:
    chosen: list[str] = []
    told = False
    while len(chosen) < count:
        for gpu in found:
            if gpu not in chosen and len(chosen) < count:
                lock = FileLock(folder / f"{gpu}.lock", timeout=0)
                try:
                    held.enter_context(lock)
                except Timeout:
                    continue
                chosen.append(gpu)
        if len(chosen) < count:
            if not told:
                log.warning("waiting for %d of the GPUs %s", count - len(chosen), ",".join(found))
                told = True
            time.sleep(PAUSE)
    return chosen


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(VISIBLE, None)
    else:
        os.environ[VISIBLE] = before
