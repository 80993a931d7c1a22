"""Command lines that no command may accept, made of options and values that they cannot have."""

from __future__ import annotations

from collections.abc import Iterator

from start_models import START_MODEL

from r3l.files.paths import STORED

LONG = "x" * 300
NO_NAME = ("", " ", "../x", "..", "a\nb", LONG, "é", "a,,b")
NO_SEEDS = ("-1", "0,0", "one", "0,,1", "1.5", "٣")
NO_COUNT = ("-1", "x", "1.5", "9" * 26)
NO_SETTING = (
    *("=", "=1", "train", "train.lr", "train.lr=", "train[lr]=1", "a b=1", "..=1", "x.y=1", "train.lr=${oc.env:HOME}"),
    *(f"train.lr={value}" for value in ("nan", "inf", "1e30", "-1", "0", "[1]", "{a: 1}", "null", "fast")),
    *("train.steps=1.5", "train.steps=-1", f"train.steps={10**20}", "train.betas=[0.9]", "train.betas=[2,3]"),
    *("train.betas=[-1,0]", "train.save_every=0", "train.weight_decay=1e30", "train=1", "train=null"),
    *(f"train.tasks_per_step={value}" for value in (0, 10**9)),
    *(f"method_settings.group_size={value}" for value in (0, -8, 10**9)),
    *("method_settings.alpha=nan", "method_settings.alpha=[]", "method_settings.alpa=2", "method_settings=3"),
    *(f"{key}={value}" for key in ("workers", "threads") for value in (-1, 10**6, "many")),
    *("threads=0", "device=tpu", "compute_dtype=int8", "prompts=loud", "samples=word", "engine=cloud"),
    *("sampling.max_tokens=0", f"sampling.max_tokens={10**13}", "sampling.max_context=1"),
    *("sampling.temperature=0", "sampling.temperature=1e300", "sampling.temperature=1e-300"),
    *("evaluation.batch=0", f"evaluation.batch={10**10}", "evaluation.temperature=-1"),
    *("method_code=os:system", "method=../../x", "tier=../x", "env=webshop", "env=../x", "seed=-1", "seed=5"),
    *("label=x", "method_label=x", "profile=nonsense", "model=/etc/passwd", "model=no/such/folder"),
    *("env_settings.max_turns=0", f"env_settings.max_turns={10**11}", "env_settings=null", "env_settings.options=1"),
    *("env_settings.options.x=1", "env_settings.sft=../x", "env_settings.sft="),
    *(f"env_settings.{split}_task_set={name}" for split in ("train", "test") for name in ("nano", "../../x", "/etc")),
)
NO_VARIANT = ("r3l@", "r3l@alpha", "r3l@alpha=", "r3l@=5", "r3l@alpha=5,alpha=6", "r3l@alpha=5,", "@", "@alpha=5")
NO_VARIANT += ("r3l@engine=x", "r3l@profile=x", "r3l@method=x", "r3l@seed=3", "r3l@method_code=os:system", "r3l@alpa=2")
STORED_RUNS = ("--results", str(STORED))


def bad_commands() -> Iterator[tuple[str, ...]]:
    """Some 500, those of `train` first; none of them needs a network or a model to be refused."""
    for value in NO_SETTING:
        yield "train", "--set", value
    for value in NO_VARIANT:
        yield "train", "--method", value
    for value in NO_NAME:
        for option in ("--tier", "--env", "--method", "--engine", "--logger"):
            yield "train", option, value
    for value in ("", " ", "a\nb", LONG, "/etc/passwd", "no/such/folder"):
        yield "train", "--model", value
        yield "evaluate", "alfworld", "--model", value
    yield from (("train", "--seed", value) for value in NO_COUNT)
    yield from (("train", "--minutes", value) for value in ("-1", "nan", "x"))
    yield from (("train", "--run-dir", value) for value in ("", " "))
    yield from _grids()
    yield from _results()
    yield from _evaluations()
    yield from _unused()
    yield from _others()


def _grids() -> Iterator[tuple[str, ...]]:
    for value in ("0", "-1", "nan", "2", "x"):
        yield "compare", "r3l", "--power", "0.8", "--difference", value
        yield "compare", "r3l", "--power", value
    yield "compare", "r3l", "--power", "0.8", "--comparisons", "0"
    yield from (("tune", *arguments) for arguments in ((), ("grpo",), ("zero_shot", "--env", "math")))
    for value in NO_SEEDS:
        for command in (("compare", "grpo"), ("run",), ("run", "--status"), ("run", "--dry-run")):
            yield *command, "--seed", value
    for value in NO_NAME:
        yield "compare", value
        yield "compare", value, "--power", "0.8"
        for option in ("--against", "--env", "--tier"):
            yield "compare", "grpo", "--offline", option, value
            yield "compare", "grpo", "--against", "r3l", "--power", "0.8", option, value
        yield "tune", value, "--env", "alfworld"
        for option in ("--env", "--tier", "--cores"):
            yield "tune", "grpo", "--env", "alfworld", option, value
        for option in ("--tier", "--env", "--method", "--grid"):
            yield "run", "table1", "--status", option, value
            yield "run", "table1", "--dry-run", option, value
        yield "run", value
        for option in ("--tier", "--env", "--method", "--grid", "--logger", "--cores", "--profile"):
            yield "run", "table1", option, value
        yield "run", "--method", "r3l", "--env", value
        yield "compare", "grpo", "--cores", value


def _results() -> Iterator[tuple[str, ...]]:
    for value in NO_NAME:
        yield "table", value, *STORED_RUNS
        yield "figure", value, *STORED_RUNS
        for option in ("--method", "--tier"):
            yield "table", "table1", *STORED_RUNS, option, value
        yield "figure", "table1", *STORED_RUNS, "--method", value
        yield "report", "--results", value
        yield "stored", "add", "--results", value
        yield "verify", value
        yield "model", "export", value, "./model"
    for value in ("-1", "0", "x"):
        yield "table", "table1", *STORED_RUNS, "--seeds-planned", value
        yield "report", *STORED_RUNS, "--seeds-planned", value


def _evaluations() -> Iterator[tuple[str, ...]]:
    for value in NO_NAME:
        yield "evaluate", value
        yield "evaluate", value, "--model", START_MODEL
        yield "evaluate", "alfworld", "--model", START_MODEL, "--task-set", value
        yield "evaluate", "alfworld", "--model", "m", "--server", value
    for value in ("localhost:8000", "ftp://localhost", "http://", "http:// x"):
        yield "evaluate", "alfworld", "--model", "m", "--server", value
    for value in ("-1", "x", "null"):
        for target in ("math", "gsm8k"):
            yield "evaluate", target, "--model", START_MODEL, "--set", f"evaluation.temperature={value}"


def _unused() -> Iterator[tuple[str, ...]]:
    """Options that the form of the command does not use."""
    yield "evaluate", "alfworld", "--model", START_MODEL, "--deadline", "9"
    yield "evaluate", "./run", "--set", "train.lr=1"
    yield "compare", "--registered", "--env", "alfworld"
    yield "compare", "r3l", "--registered"
    yield "compare", "r3l", "--power", "0.8", "--seed", "0"
    yield "compare", "r3l", "--difference", "0.1"
    yield "run", "--status", "--cores", "2"
    yield "doctor", "--env", "math"
    yield "train", "--write-tasks"
    yield "train", "--trinity-config", "x.yaml", "--logger", "wandb"
    yield "list", "tables", "--tier", "nano"
    yield "table", "published", "--env", "alfworld"
    yield "table", "budget", "--empty"


def _others() -> Iterator[tuple[str, ...]]:
    for value in NO_NAME:
        yield "sft", value
        yield "model", "fetch", value
        yield "data", "check", "--tier", value
        yield "data", "build", value
        yield "bench", "env", value
        yield "bench", "step", "--arms", value
        yield "doctor", "--step", "--env", value
        yield "doctor", "--tier", value
        yield "list", value
        yield "list", "options", "--env", value
    for command in ("bench step", "compare grpo --offline", "tune grpo --env math", "probe math"):
        for place in ("/proc/none/x.json", "/etc/hostname/x.json"):
            yield *command.split(), "--out", place
    for command in ("compare grpo --offline", "table table1", "report"):
        yield *command.split(), "--results", "no/such/folder"
    for command in ("compare r3l --power 0.8", "compare --registered"):
        yield *command.split(), "--stored", "no/such/folder"
