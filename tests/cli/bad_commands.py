"""Command lines that no command may accept, made of options and values that they cannot have."""

from __future__ import annotations

from collections.abc import Iterator

from start_models import START_MODEL

from r3l.files.paths import STORED

LONG = "x" * 300
NO_NAME = ("", " ", "../x", "..", "a\nb", LONG, "é", "a,,b")
NO_MODEL = ("", " ", "../x", "a\nb", LONG)  # loading refuses the others of NO_NAME
NO_SEEDS = ("-1", "0,0", "one", "0,,1", "1.5", "٣")
NO_COUNT = ("-1", "x", "1.5", "9" * 26)
NO_SETTING = (
    *(
        "=",
        "=1",
        "train",
        "train.lr",
        "train.lr=",
        "train[lr]=1",
        "a b=1",
        "..=1",
        "x.y=1",
        "train.lr=${oc.env:HOME}",
    ),
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
    *(
        "env_settings.max_turns=0",
        f"env_settings.max_turns={10**11}",
        "env_settings=null",
        "env_settings.options=1",
    ),
    *("env_settings.options.x=1", "env_settings.sft=../x", "env_settings.sft="),
    *(
        f"env_settings.{split}_task_set={name}"
        for split in ("train", "test")
        for name in ("nano", "../../x", "/etc")
    ),
)
NO_VARIANT = (
    "r3l@",
    "r3l@alpha",
    "r3l@alpha=",
    "r3l@=5",
    "r3l@alpha=5,alpha=6",
    "r3l@alpha=5,",
    "@",
    "@alpha=5",
)
NO_VARIANT += (
    "r3l@engine=x",
    "r3l@profile=x",
    "r3l@method=x",
    "r3l@seed=3",
    "r3l@method_code=os:system",
    "r3l@alpa=2",
)

OF_NAMES = (  # each refuses every name of NO_NAME that follows
    *(f"train {option}" for option in ("--tier", "--env", "--method", "--engine", "--logger")),
    *(
        f"run table1 {option}"
        for option in ("--tier", "--env", "--method", "--grid", "--logger", "--cores", "--profile")
    ),
    *(f"run status table1 {option}" for option in ("--tier", "--env", "--method", "--grid")),
    *("run", "run --method r3l --env", "compare", "compare power", "compare grpo --cores"),
    *(
        f"{form} {option}"
        for form in ("compare grpo --offline", "compare power grpo")
        for option in ("--env", "--tier")
    ),
    *("compare grpo --offline --against", "compare power grpo --against"),
    *(
        "tune --env alfworld",
        *(f"tune grpo --env alfworld {option}" for option in ("--tier", "--cores")),
        "tune grpo --env",
    ),
    *(
        "table",
        f"table --results {STORED}",
        f"figure --results {STORED}",
        f"figure table1 --results {STORED} --method",
    ),
    *(f"table table1 --results {STORED} {option}" for option in ("--method", "--tier")),
    *(
        "report --results",
        "stored add --results",
        "verify",
        "sft",
        "model fetch",
        "data check --tier",
        "data build",
    ),
    *("bench step --env", "doctor --tier", "doctor step --env", "list", "list options --env"),
    *("evaluate", f"evaluate --model {START_MODEL}", f"evaluate alfworld --model {START_MODEL} --task-set"),
    "evaluate alfworld --model m --server",
)
OF_SEEDS = ("compare grpo --seed", "run --seed", "run status --seed", "run --dry-run --seed")
OF_SHARES = ("compare power r3l --difference", "compare power r3l --power")
OF_PLACES = ("bench step --out", "compare grpo --offline --out", "probe math --out")
SINGLE = (
    *(f"{command} /" for command in ("sft math-1.5m --out", "train --run-dir", "stored add --out")),
    *("tune", "tune grpo", "tune zero_shot --env math", "compare power r3l --comparisons 0"),
    *(f"train --minutes {value}" for value in ("-1", "nan", "x")),
    *(
        f"{command} --seeds-planned {value}"
        for command in ("table table1", "report")
        for value in ("-1", "0", "x")
    ),
    *(
        f"evaluate alfworld --model m --server {value}"
        for value in ("localhost:8000", "ftp://localhost", "http://")
    ),
    *(
        f"evaluate {target} --model {START_MODEL} --set evaluation.temperature={value}"
        for target in ("math", "gsm8k")
        for value in ("-1", "x", "null")
    ),
    *(
        f"{command} --results no/such/folder"
        for command in ("compare grpo --offline", "table table1", "report")
    ),
    *(f"{command} --stored no/such/folder" for command in ("compare power r3l", "compare registered")),
    # options of another command, or that cannot be combined
    *(f"evaluate alfworld --model {START_MODEL} --deadline 9", "evaluate ./run --set train.lr=1"),
    *(
        "compare registered --env alfworld",
        "compare registered r3l",
        "compare r3l --difference 0.1",
        "compare --registered",
    ),
    *(
        "compare power r3l --seed 0",
        "run status --cores 2",
        "run --status",
        "train --write-tasks",
        "tune --show",
    ),
    *(
        "export trinity x.yaml --logger wandb",
        "export trinity",
        "list tables --tier nano",
        "table budget --empty",
        f"table cost --results {STORED} --full",
    ),
    *(
        "table published --env alfworld",
        "doctor --step",
        "doctor memory",
        "doctor --gib 24",
        "tune show --offline",
    ),
)


def bad_commands() -> Iterator[tuple[str, ...]]:
    """Some 500; none of them needs a network or a model to be refused."""
    for options, values in (
        (("train --set",), NO_SETTING),
        (("train --method",), NO_VARIANT),
        (("train --seed",), NO_COUNT),
        (("train --model",), NO_MODEL),
        (OF_NAMES, NO_NAME),
        (OF_SEEDS, NO_SEEDS),
        (OF_SHARES, ("0", "-1", "nan", "2", "x")),
        (OF_PLACES, ("/proc/none/x.json", "/etc/hostname/x.json")),
    ):
        yield from ((*option.split(), value) for option in options for value in values)
    yield from (tuple(command.split()) for command in SINGLE)
