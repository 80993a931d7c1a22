"""File locks share out the GPUs of this machine among the runs on it: each has its own, or a place on a shared one.

R3L_RUNS_PER_GPU says how many runs may share a GPU (1); whether they fit its memory is for whoever sets it to know.
Snakemake counts GPUs but gives no ids. A run takes its GPUs when it begins, CUDA_VISIBLE_DEVICES names them, and the
locks die with its process. Inside a Slurm job the scheduler has done so already.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from r3l.core.errors import ConfigError

log = logging.getLogger(__name__)
VISIBLE = "CUDA_VISIBLE_DEVICES"
SHARED = "R3L_RUNS_PER_GPU"
FOLDER = Path(tempfile.gettempdir()) / f"r3l-gpus-{os.getuid()}"  # of this machine, unlike a home directory
PAUSE = 1.0  # seconds between looks at GPUs that are taken


def visible_gpus() -> list[str]:
    """The ids of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES has them."""
    ids = os.environ.get(VISIBLE)
    if ids is not None:
        return [part.strip() for part in ids.split(",") if part.strip()]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


@contextmanager
def reserved_gpus(count: int, folder: Path = FOLDER) -> Iterator[list[str]]:
    """Own ``count`` GPUs, waiting until so many are free; their ids. Must come before the first use of CUDA.

    Raises ConfigError where this machine never has so many, or R3L_RUNS_PER_GPU is no number above 0. Without any GPU,
    in a Slurm job, or for a ``count`` of 0 nothing is changed: a CPU will do, or the scheduler has chosen.
    """
    visible = visible_gpus()
    if count == 0 or not visible or "SLURM_JOB_ID" in os.environ:
        yield visible
        return
    if count > len(visible):
        raise ConfigError(
            f"{count} GPUs are asked for in configs/resources.yaml (or the model's `cluster` in configs/models), but "
            f"{len(visible)} are visible here ({VISIBLE}={','.join(visible)}); lower it there, or run where there are "
            "more"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as locks:
        with FileLock(folder / "queue.lock"):  # one looks at a time: no two wait for each other's
            gpus = _lock(count, visible, folder, locks)
        before = os.environ.get(VISIBLE)
        os.environ[VISIBLE] = ",".join(gpus)
        locks.callback(_restore, before)
        yield gpus


def _lock(count: int, visible: Sequence[str], folder: Path, locks: ExitStack) -> list[str]:
    """Lock the first ``count`` GPUs that are free, as they become free; their ids."""
    gpus: list[str] = []
    waiting, sharing = False, _runs_per_gpu()
    while True:
        for gpu in visible:
            places = (folder / f"{gpu}.{place}.lock" for place in range(sharing))
            if gpu not in gpus and len(gpus) < count and any(_locked(place, locks) for place in places):
                gpus.append(gpu)
        if len(gpus) == count:
            return gpus
        if not waiting:
            log.warning("waiting for %d of the GPUs %s", count - len(gpus), ",".join(visible))
            waiting = True
        time.sleep(PAUSE)


def _runs_per_gpu() -> int:
    stated = os.environ.get(SHARED, "1")
    if not stated.isdecimal() or int(stated) < 1:
        raise ConfigError(f"{SHARED} is {stated!r}; give the number of runs that may share a GPU, 1 or more")
    return int(stated)


def _locked(path: Path, locks: ExitStack) -> bool:
    try:
        locks.enter_context(FileLock(path, timeout=0))
    except Timeout:
        return False
    return True


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(VISIBLE, None)
    else:
        os.environ[VISIBLE] = before
