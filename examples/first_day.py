"""The first day on a cluster: short runs of tier paper show whether this machine can train, and how fast.

    python examples/first_day.py                         # in a job with the GPUs of one run
    python examples/first_day.py --tier nano --steps 3   # the same on a CPU

1. doctor: GPUs, memory plan, versions, weights, data.
2. Two steps of R3L with 8 tasks, stopped after the first and resumed. Checked are the log-prob mismatch, the
   peak memory, the resumed run and the exported weights.
3. 20 steps of GRPO and 3 of R3L at full size. Both end with a forecast, from which `r3l run --profile slurm`
   takes the time limits of these cells.

Prints the commands that follow: one run, then the table. Exit code 1 at the first step that fails. Started
again, runs go on where they stopped.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from r3l.config import resolve, variant
from r3l.files.json_files import read_json
from r3l.files.paths import RESULTS
from r3l.runs.forecast import FILE, Forecast, sentences
from r3l.runs.preemption import EXIT_CODE

# Nats by which log-probs of training and sampling may differ on average: our choice, 40 times what weights
# in bfloat16 cost on CPUs (5e-4, results/notebook/2026-11-28-verl-on-cpus.md).
MISMATCH = 0.02
GPU_SHARE = 0.95  # of a GPU's memory; above it the next longer episode may end the run; our choice


class FirstDay:
    """The steps of the day for one cell: ``cell`` are its options, ``out`` the folder of its runs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.tier = options.tier
        self.env = options.env
        self.model = options.model
        self.engine = options.engine
        self.cell = ["--tier", options.tier, "--env", options.env]
        self.cell += ["--model", options.model] if options.model else []
        self.cell += ["--engine", options.engine] if options.engine else []
        self.settings = options.set or []
        self.out = options.out

    def doctor(self) -> str:
        done = subprocess.run(
            command(["doctor", "--tier", self.tier, "--json"]), stdout=subprocess.PIPE, text=True, check=False
        )
        check(bool(done.stdout), f"`r3l doctor --tier {self.tier}` ended with an error, printed above")
        failed = [found for found in json.loads(done.stdout)["checks"] if not found["ok"]]
        lines = [f"- {found['name']}: {found['detail']}; fix: {found['fix']}" for found in failed]
        check(
            not failed, "\n".join([f"`r3l doctor --tier {self.tier}`: {len(failed)} checks failed", *lines])
        )
        return "every check is ok"

    def two_steps(self) -> str:
        """Stop a run after its first step, resume it, and check what it left."""
        run_dir = self.out / "two_steps"
        settings = ("train.steps=2", "train.tasks_per_step=8", "train.save_every=1")
        words = ["train", *self.cell, "--method", "r3l", "--run-dir", str(run_dir)]
        words += [word for setting in (*settings, *self.settings) for word in ("--set", setting)]
        metrics = run_dir / "metrics.jsonl"
        code = 0
        if not metrics.is_file():  # else an earlier start was stopped there
            stopped = subprocess.Popen(command(words))
            while stopped.poll() is None and not metrics.is_file():
                time.sleep(0.1)
            stopped.send_signal(signal.SIGTERM)
            code = stopped.wait()
            check(code in (0, EXIT_CODE), f"the first step ended with exit code {code}")
        self.r3l(*words)

        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        check([row["step"] for row in rows] == [1, 2], f"{metrics} has steps {[row['step'] for row in rows]}")
        check(
            any(row["grad_norm"] > 0 for row in rows), "no step had a gradient; give another --env or --model"
        )
        mismatch = max(row.get("logprob_mismatch/mean", 0.0) for row in rows)
        check(mismatch < MISMATCH, f"log-probs of training and sampling differ by {mismatch:.2g} nats")
        behind = max(row.get("weights/behind", 0.0) for row in rows)
        check(behind == 0, f"sampling used weights that are {behind:.0f} steps old")
        peak = max(row.get("memory/trainer", 0.0) for row in rows)
        card = memory_of_a_gpu()
        check(not card or peak < GPU_SHARE * card, f"training took {peak:.1f} of {card:.1f} GiB")
        self.load(run_dir)
        exited = "stopped" if code == EXIT_CODE else "not stopped in this start"
        return (
            f"{exited}, resumed; log-prob mismatch {mismatch:.2g} nats, peak {peak:.1f} GiB a training GPU; "
            "the exported weights load and are new"
        )

    def load(self, run_dir: Path) -> None:
        """Load the exported model as a user would, and compare it with its base checkpoint."""
        import torch

        from r3l.local.checkpoint import load_model
        from r3l.runs.manifest import run_of

        (exported,) = (run_dir / "checkpoints").glob("step-*2")
        if (exported / "adapter_config.json").is_file():
            return  # an adapter is checked by every run at its first save
        cpu = torch.device("cpu")
        trained = load_model(str(exported), cpu, "transformers")[0].state_dict()
        base = load_model(run_of(run_dir).model, cpu, "transformers")[0].state_dict()
        moved = max(float((trained[name].float() - base[name].float()).abs().max()) for name in base)
        check(moved > 0, f"the weights in {exported} are those of the base checkpoint")

    def at_full_size(self, method: str, steps: int) -> str:
        """Train ``steps`` and return the forecast, which stays in the folder of the method's runs."""
        row = variant(method).changed(engine=self.engine).name if self.engine else method
        run = resolve(self.tier, self.env, row, 0, self.model, self.settings)
        run_dir = (RESULTS / run.directory).with_name("first_day")
        words = ["train", *self.cell, "--method", method, "--run-dir", str(run_dir)]
        settings = (f"train.steps={steps}", *self.settings)
        self.r3l(*words, *(word for setting in settings for word in ("--set", setting)))
        check((run_dir / FILE).is_file(), f"{run_dir / FILE} is missing; delete {run_dir} and begin again")
        return sentences(read_json(run_dir / FILE, Forecast), run.train.steps)

    def r3l(self, *words: str) -> str:
        """What `r3l WORDS` prints; its progress goes to the terminal. Raises RuntimeError if it fails."""
        done = subprocess.run(command(list(words)), stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise RuntimeError(
                f"`r3l {shlex.join(words)}` ended with exit code {done.returncode}:\n{done.stdout[-2000:]}"
            )
        return done.stdout


def command(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "r3l.cli", *words]


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RuntimeError(otherwise)


def memory_of_a_gpu() -> float:
    """GiB of this machine's smallest GPU, by nvidia-smi; 0 without one."""
    if shutil.which("nvidia-smi") is None:
        return 0.0
    asked = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    sizes = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    return min((float(size) / 1024 for size in sizes), default=0.0)


def main() -> int:
    """Run the steps in order; the exit code."""
    layout = argparse.RawDescriptionHelpFormatter  # keeps the lines of the docstring
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--tier", default="paper")
    parser.add_argument("--env", default="alfworld")
    parser.add_argument("--model", help="default: the tier's")
    parser.add_argument("--engine", help="default: the tier's")
    parser.add_argument("--steps", type=int, default=20, help="steps of GRPO")
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="for every run; repeatable")
    parser.add_argument("--out", type=Path, default=RESULTS / "first_day")
    options = parser.parse_args()
    day = FirstDay(options)
    steps: dict[str, Callable[[], str]] = {
        "doctor": day.doctor,
        "two steps": day.two_steps,
        f"{options.steps} steps of GRPO": lambda: day.at_full_size("grpo", options.steps),
        "3 steps of R3L": lambda: day.at_full_size("r3l", 3),
    }
    for name, step in steps.items():
        began = time.monotonic()
        try:
            seen = step()
        except RuntimeError as error:
            print(f"{name}: FAILED: {error}")
            return 1
        print(f"{name}: ok in {time.monotonic() - began:.0f} s: {seen}", flush=True)
    chosen = shlex.join(day.cell)
    print(f"next, one cell:\n  r3l run {chosen} --method r3l --seed 0 --profile slurm")
    print(f"then the table:\n  r3l run table1 --tier {options.tier} --profile slurm --dry-run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
