"""Running the kit: part after part, each in a process of its own, in slices of time; the report grows as they end."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil

from r3l.core.errors import ConfigError, R3LError, check_known
from r3l.files.json_files import read_json
from r3l.files.writing import write_json_atomic, write_text_atomic
from r3l.processes.parent import end_with_parent, kill
from r3l.prove.forms import GPU, Form
from r3l.prove.page import markdown
from r3l.runs.manifest import hardware, versions
from r3l.runs.provenance import commit

if TYPE_CHECKING:
    from r3l.prove.parts import Part  # imports torch

Status = Literal["passed", "failed", "skipped", "unfinished", "not reached"]
REPORT, PAGE = "proof.json", "proof.md"
ENDING = 45.0  # seconds that a part which stops by itself may need for it: a last update, a checkpoint
log = logging.getLogger(__name__)


@dataclass
class Outcome:
    """What has become of a part. ``seconds``: of all its slices. ``seen``: in words; why, where it did not pass."""

    status: Status = "not reached"
    seen: str = ""
    seconds: float = 0.0
    commit: str | None = None
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether a later call leaves it as it is."""
        return self.status in ("passed", "failed", "skipped")


class Kit:
    """The parts of ``form`` and what has become of them, in its report's folder.

    Raises ConfigError for a name in ``again`` (parts to be run anew) that there is not.
    """

    def __init__(self, form: Form, parts: Sequence[Part], again: Sequence[str] = ()) -> None:
        self.form = replace(form, report=form.report.absolute(), work=form.work.absolute())
        self.parts = parts
        names = [part.name for part in parts]
        for name in again:
            check_known("part", name, names)
        path = form.report / REPORT
        kept = read_json(path)["parts"] if path.is_file() else {}
        self.outcomes = {
            name: Outcome(**kept[name]) if name in kept and name not in again else Outcome() for name in names
        }

    @property
    def seconds(self) -> float:
        """What all parts have taken so far."""
        return sum(outcome.seconds for outcome in self.outcomes.values())

    def run(self, minutes: float | None) -> bool:
        """Run what is left, for at most ``minutes``; whether all parts are over, or their time in all is.

        A part is begun only where its limit fits, unless it is the first one of this call.
        """
        ends = time.monotonic() + 60 * (self.form.minutes if minutes is None else minutes)
        first = True
        for part in self.parts:
            outcome = self.outcomes[part.name]
            if outcome.over:
                continue
            total = 60 * self.form.minutes - self.seconds
            if total <= 0:
                break
            left, limit = ends - time.monotonic(), min(self._limit(part) - outcome.seconds, total)
            if not first and left < (limit if not part.resumable else 2 * ENDING):
                return False
            self._show(part, min(limit, left))
            self.write()
            first = False
            if outcome.status == "unfinished":
                return False
        self.write()
        return True

    def _show(self, part: Part, seconds: float) -> None:
        """Run ``part`` for at most ``seconds``, in a process that is killed where it takes longer."""
        outcome, began = self.outcomes[part.name], time.monotonic()
        log.info("%s: %s", part.name, part.what)
        folder = self.form.work / "parts"
        folder.mkdir(parents=True, exist_ok=True)
        answer = folder / f"{part.name}.json"
        answer.unlink(missing_ok=True)
        own = max(seconds - ENDING, seconds / 2) if part.resumable else seconds
        process = _forks().Process(target=_in_process, args=(part.show, self.form, own, answer, dict(os.environ)))
        process.start()
        process.join(max(seconds, 1.0))
        late = process.is_alive()
        if late:
            with suppress(psutil.NoSuchProcess):  # ended meanwhile
                kill([*psutil.Process(process.pid).children(recursive=True), process])
            process.join()
        outcome.seconds += time.monotonic() - began
        outcome.commit = os.environ.get("R3L_COMMIT") or commit()  # of a packed kit, which is no repository
        if answer.is_file():
            found = read_json(answer)
            outcome.status, outcome.seen, outcome.figures = found["status"], found["seen"], found["figures"]
        elif late:
            outcome.status, outcome.seen = "failed", f"it took longer than {seconds:.0f} s; {_log_of(answer)}"
        else:
            outcome.status, outcome.seen = "failed", f"its process ended with {process.exitcode}; {_log_of(answer)}"
        left = min(self._limit(part) - outcome.seconds, 60 * self.form.minutes - self.seconds)
        if part.resumable and (late or outcome.figures.get("finished") is False):
            if left > 2 * ENDING:
                outcome.status = "unfinished"
            elif not outcome.seen:
                outcome.status, outcome.seen = "failed", "nothing was finished in its time"

    def _limit(self, part: Part) -> float:
        """Its seconds in all: ``part.minutes`` are those of the 25 on a GPU."""
        return 60.0 * part.minutes * self.form.minutes / GPU.minutes

    def write(self) -> None:
        """The report: JSON, and a page."""
        content = {
            "form": self.form.name,
            "hardware": hardware(),
            "versions": versions(),
            "minutes": self.form.minutes,
            "seconds": self.seconds,
            "parts": {name: asdict(outcome) for name, outcome in self.outcomes.items()},
        }
        write_json_atomic(self.form.report / REPORT, content)
        write_text_atomic(self.form.report / PAGE, markdown(content, {part.name: part.what for part in self.parts}))


def _forks() -> ForkServerContext:
    """Imports are most of what a short part takes: they are done once, in a process that is forked for each part."""
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["r3l.prove.parts"])
    return forks


def _log_of(answer: Path) -> str:
    """Where its output lies, and the last line of it."""
    path = answer.with_suffix(".log")
    lines = path.read_text(errors="replace").split("\n") if path.is_file() else []
    last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
    return f"{path} ends with: {last[:300]}"


def _in_process(
    show: Callable[[Form, float], Any], form: Form, seconds: float, answer: Path, environment: dict[str, str]
) -> None:
    """What a part's process does: its output to a file, its answer to another."""
    end_with_parent()
    os.environ.update(environment)
    with answer.with_suffix(".log").open("ab") as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
    from r3l.prove.parts import Skipped

    try:
        proof = show(form, seconds)
        found = {"status": "passed", "seen": proof.seen, "figures": proof.figures}
    except Skipped as reason:
        found = {"status": "skipped", "seen": str(reason), "figures": {}}
    except R3LError as error:
        found = {"status": "failed", "seen": str(error), "figures": {}}
    except Exception as error:  # noqa: BLE001 - a defect of one part is told in the report; the others go on
        traceback.print_exc()
        found = {"status": "failed", "seen": f"{type(error).__name__}: {error}", "figures": {}}
    write_json_atomic(answer, found)


def check_gpu() -> None:
    """Raises ConfigError where torch finds no GPU."""
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(
            f"r3l prove gpu needs a GPU, and torch {torch.__version__} finds none: run it on a machine that has one "
            "(r3l prove pack makes what to carry there; check nvidia-smi and that torch is a build with CUDA), or try "
            "it here on the CPU with --dry"
        )
