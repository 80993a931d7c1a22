"""Allocation of this machine's GPUs to its runs by file locks, since Snakemake counts GPUs but gives no ids.

A run locks its GPUs when it begins and sets CUDA_VISIBLE_DEVICES; the locks end with its process. It locks
as many as configs/resources.yaml requests (at tier nano none); a probe of a local model, `r3l sft`,
`r3l doctor step` and `r3l bench` lock one, unless their device is cpu.

R3L_RUNS_PER_GPU is the number of runs that may share a GPU (default 1); the user must know that they fit
its memory. Inside a Slurm job the scheduler has chosen already, and nothing is locked.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from r3l.core.errors import ConfigError

log = logging.getLogger(__name__)
VISIBLE = "CUDA_VISIBLE_DEVICES"
SHARED = "R3L_RUNS_PER_GPU"
FOLDER = Path(tempfile.gettempdir()) / f"r3l-gpus-{os.getuid()}"  # unlike a home directory, of one machine
PAUSE = 1.0  # seconds between two tries to lock a GPU


def visible_gpus() -> list[str]:
    """Ids of the GPUs that this process may use, from CUDA_VISIBLE_DEVICES; [] without a GPU.

    If the variable is not set, they are the numbers of all GPUs ("0", "1", ...). The id -1 is no GPU.
    """
    ids = os.environ.get(VISIBLE)
    if ids is not None:
        return [part.strip() for part in ids.split(",") if part.strip() not in ("", "-1")]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def reserved_gpu(device: str) -> AbstractContextManager[list[str]]:
    """Lock one GPU as :func:`reserved_gpus` does, or none if the setting ``device`` is ``cpu``.

    The setting decides, not what torch finds: asking it starts the driver, which reads CUDA_VISIBLE_DEVICES
    then.
    """
    return reserved_gpus(0 if device == "cpu" else 1)


@contextmanager
def reserved_gpus(count: int, folder: Path = FOLDER) -> Iterator[list[str]]:
    """Lock ``count`` GPUs, waiting without limit until they are free; yields their ids.

    Sets CUDA_VISIBLE_DEVICES to them for the block; must precede the first use of CUDA. Nothing is locked
    or set without a GPU, in a Slurm job, or for a ``count`` of 0: all visible ids are yielded. ``folder``: of
    the lock files, made if missing. Raises ConfigError if fewer than ``count`` GPUs are visible, or if
    R3L_RUNS_PER_GPU is not a whole number above 0.
    """
    visible = visible_gpus()
    if count == 0 or not visible or "SLURM_JOB_ID" in os.environ:
        yield visible
        return
    if count > len(visible):
        raise ConfigError(
            f"configs/resources.yaml (or the model's `cluster` in configs/models) requests {count} GPUs, "
            f"but {len(visible)} are visible here ({VISIBLE}={','.join(visible)}); request fewer, or run "
            "on a machine that has more"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as locks:
        # Processes queue: two that each hold some GPUs would otherwise wait for each other's.
        with FileLock(folder / "queue.lock"):
            gpus = _lock_free_gpus(count, visible, folder, locks)
        # torch and the libraries below it take the GPUs from this variable, at their first use of CUDA.
        before = os.environ.get(VISIBLE)
        os.environ[VISIBLE] = ",".join(gpus)
        try:
            yield gpus
        finally:
            if before is None:
                os.environ.pop(VISIBLE, None)
            else:
                os.environ[VISIBLE] = before


def _lock_free_gpus(count: int, visible: Sequence[str], folder: Path, locks: ExitStack) -> list[str]:
    """Lock ``count`` of the GPUs ``visible`` as they become free; returns their ids.

    ``locks`` holds the locks. A GPU has one lock file for each run that may share it.
    """
    shared = os.environ.get(SHARED, "1")
    if not shared.isdecimal() or int(shared) < 1:
        raise ConfigError(f"{SHARED} is {shared!r}; give the number of runs that may share a GPU, 1 or more")

    # A GPU that is locked stays so while this process waits for the next one: it is first in the queue.
    gpus: list[str] = []
    warned = False
    while True:
        for gpu in visible:
            if gpu in gpus or len(gpus) == count:
                continue
            for place in range(int(shared)):
                try:
                    locks.enter_context(FileLock(folder / f"{gpu}.{place}.lock", timeout=0))
                except Timeout:
                    continue
                gpus.append(gpu)
                break
        if len(gpus) == count:
            return gpus
        if not warned:
            log.warning("waiting for %d of the GPUs %s", count - len(gpus), ",".join(visible))
            warned = True
        time.sleep(PAUSE)
