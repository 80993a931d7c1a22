"""A process that is killed before each of its writes in turn, to see what it leaves."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}


def deaths(work: Callable[[], object], folder: Path, fresh: Callable[[], object]) -> Iterator[int]:
    """Call ``work`` in a child process that dies before its N-th write below ``folder``, for each N.

    ``fresh`` is called before each N. Yields N, with what the child left; ends when a child finishes. The
    caller has started no threads, since the children are forks.
    """
    number = 0
    while True:
        number += 1
        fresh()
        child = os.fork()
        if child == 0:
            sys.addaudithook(_killing(number, str(folder)))
            status = 1
            try:
                work()
                status = 0
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        if not os.WIFSIGNALED(ended):
            assert os.WEXITSTATUS(ended) == 0
            return
        yield number


def _killing(number: int, folder: str) -> Callable[[str, tuple], None]:
    left = number

    def hook(event: str, arguments: tuple) -> None:
        nonlocal left
        if event == "open":
            writes = isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            counted = writes and str(arguments[0]).startswith(folder)
        elif event in CHANGES:  # a relative path is one of a folder that is being deleted
            path = os.fsdecode(arguments[0])
            counted = path.startswith(folder) or not os.path.isabs(path)
        else:
            counted = event == "ctypes.dlsym" and arguments[1] == "renameat2"
        if counted:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook
