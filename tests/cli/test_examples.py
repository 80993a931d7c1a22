"""Every example of every `--help` works: it is run in a folder that has what it names, or at least parsed.

An example that is listed nowhere below fails, so whoever adds one says how it is tested.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil

import pytest
from program import run
from typer.main import get_command

from r3l import cli
from r3l.config import resolve
from r3l.files.paths import STORED, STORED_MODELS

APP = get_command(cli.app)
RUN = "results/nano/alfworld/alfworld-1.5m-plain/r3l/seed0"
TINY = ("--set", "train.tasks_per_step=2", "--set", "workers=0", "--set", "evaluation.tasks=1")

QUICK = {  # run as they are
    "r3l list methods",
    "r3l list methods r3l grpo",
    "r3l list envs",
    "r3l list envs alfworld",
    "r3l list models",
    "r3l list tiers",
    "r3l list tables",
    "r3l list figures",
    "r3l list options",
    "r3l list options alpha train",
    "r3l list options --tier nano --env alfworld --method r3l",
    "r3l list differences --tier paper",
    "r3l new method longest --folder ~/mine",
    "r3l new method better --from grpo",
    "r3l new env maze --folder ~/mine",
    "r3l doctor memory --model qwen2.5-coder-1.5b --env gsm8k --gib 24",
    "r3l run status table1 --seed 0,1,2",
    "r3l tune show --env alfworld,webshop",
    "r3l table published",
    "r3l table published --impossible",
    "r3l table probe results/probe/gsm8k_0.5b.json results/probe/gsm8k_1.5b.json",
    "r3l figure probe results/probe/gsm8k_0.5b.json --out results/figures",
    "r3l data check --env alfworld",
}
LONGER: dict[str, tuple[str, ...]] = {  # run with further words that make them short
    "r3l demo": (),
    "r3l train --method grpo --seed 1 --set train.lr=1e-4": ("--set", "train.steps=1", *TINY),
    f"r3l evaluate {RUN}": (),
    "r3l verify": (),
    "r3l verify results": (),
    "r3l verify results/stored/probe": (),
    f"r3l export model {RUN} hub:OWNER/NAME --dry-run": (),
    "r3l stored add --results results": ("--out", "kept"),
    "r3l probe alfworld": ("-n", "2", "--attempts", "2"),
    "r3l probe webshop --model results/models/candidate --attempts 4 --out candidate.json": ("-n", "2"),
    "r3l report --results results/stored --figures results/stored --out results/report.html": (),
    "r3l doctor": (),
    "r3l run": ("--dry-run",),
    "r3l run table2 figures/ablations --seed 0,1,2 --env alfworld": ("--dry-run",),
    "r3l run --env alfworld --method r3l@alpha=5 --seed 3": ("--dry-run",),
    "r3l run table1 --tier paper --profile slurm --dry-run": (),
    "r3l compare raft --env alfworld --seed 0,1,2": ("--offline",),
    "r3l compare raft --env math --html compared.html": ("--offline",),
    "r3l compare power r3l --against grpo --power 0.8 --difference 0.05": (),
    "r3l compare registered": (),
    "r3l table table1 --out results/table1.csv": ("--results", "results/stored"),
    "r3l table table1 --env alfworld --method grpo,r3l --full": ("--results", "results/stored"),
    "r3l table budget --results results/stored --env alfworld": (),
    "r3l table claims": (),
    "r3l table claims --env math --claim GRPO": (),
    "r3l figure learning_curves --method grpo,r3l --out results/figures": ("--results", "results/stored"),
    "r3l figure claims --out results/figures": (),
    "r3l table feedback_per_token --env webshop,math": (),
    "r3l figure feedback_per_token --out results/figures": (),
    "r3l figure held_out --out results/figures": (),
    "r3l table map": ("--results", "results/stored"),
    "r3l figure map --out results/figures": (),
    "r3l bench step --env webshop --method r3l --out step.json": ("--repeats", "1", *TINY[:4]),
}
PARSED = {  # and why they are not run here
    "until r3l train --tier smol --minutes 10; do [ $? = 75 ] || break; done": "a model of the hub",
    "r3l evaluate alfworld --server http://localhost:8000 --model Qwen/Qwen2.5-1.5B-Instruct": "tests/docs/test_served",
    "r3l evaluate alfworld --server http://localhost:8000 --protocol react -n 20": "tests/evaluation/test_protocols",
    "r3l evaluate gsm8k --model Qwen/Qwen2.5-1.5B-Instruct --protocol qwen -n 100": "a model of the hub",
    "r3l probe gsm8k --model qwen2.5-coder-0.5b -n 200 --set reflection_schema=lines": "a model that is fetched",
    "r3l table teachers": "runs with a teacher; tests/report/test_teachers",
    "r3l figure teachers --out results/figures": "runs with a teacher; tests/report/test_teachers",
    "r3l probe gsm8k --server http://localhost:8000 -n 200": "tests/probe",
    "r3l sft webshop-1.5m --out results/models/webshop-1.5m": "minutes; tests/sft",
    "r3l doctor --tier paper --env webshop --model qwen2.5-1.5b --method r3l": "imports Trinity; tests/trinity",
    "r3l doctor step --tier smol --env alfworld --set train.tasks_per_step=2": "a model of the hub; tests/local",
    "r3l verify episodes alfworld.jsonl --env alfworld --task-set valid_seen --column task=gamefile": (
        "downloaded games; tests/evaluation/test_episode_files"
    ),
    "r3l train --tier paper --set train.steps=3": "GPUs; tests/runs/test_forecast",
    "r3l tune grpo --env alfworld": "six trainings; tests/evaluation/test_tuning",
    "r3l stored fetch": "the network; tests/runs/test_stored_archive",
    "r3l stored fetch r3l-stored-0.1.0.zip": "tests/runs/test_stored_archive",
    "r3l export trinity r3l.yaml --tier paper --write-tasks && trinity run --config r3l.yaml": "downloaded games",
    "r3l model fetch qwen2.5-coder-0.5b": "the network; tests/sft/test_download",
    "r3l data build countdown_nano --env puzzles": "writes a committed file; tests/envs",
    "r3l data catalogue --items items_shuffle.json --attrs items_ins_v2.json --out shop": "tests/envs/webshop",
    "r3l bench train --tier smol --tasks 16 --length 128": "a model of the hub; tests/bench",
}


def leaves(command, path=()):
    """(words, command) of every command that does something, groups left out."""
    subcommands = getattr(command, "commands", {})
    if not subcommands or isinstance(command, cli.Verb):
        yield path, command
    for name, subcommand in subcommands.items():
        yield from leaves(subcommand, (*path, name))


EXAMPLES = {path: re.findall(r"Example: `([^`]+)`", command.help or "") for path, command in leaves(APP)}
ALL = [example for examples in EXAMPLES.values() for example in examples]


def words_of(example):
    """What follows `r3l ` in an example, up to the end of the command."""
    return shlex.split(re.split(r" &&|;", example.partition("r3l ")[2])[0])


def test_every_command_has_an_example_and_each_is_tested():
    assert {" ".join(path) for path, examples in EXAMPLES.items() if not examples} == set()
    assert sorted(ALL) == sorted([*QUICK, *LONGER, *PARSED])


@pytest.mark.parametrize("example", ALL)
def test_it_is_parsed_and_names_what_there_is(monkeypatch, tmp_path, example):
    monkeypatch.chdir(tmp_path)
    path, leaf = next((path, leaf) for path, leaf in leaves(APP) if example in EXAMPLES[path])
    given = []
    monkeypatch.setattr(leaf, "callback", lambda **values: given.append(values))
    words = words_of(example)
    assert tuple(words[: len(path)]) == path
    (tmp_path / "results/stored").mkdir(parents=True)
    APP.main(words, standalone_mode=False)
    (values,) = given
    if {"tier", "env", "method", "seed"} <= values.keys() and path[0] in ("train", "export", "bench"):
        resolve(*(values[key] for key in ("tier", "env", "method", "seed", "model", "overrides")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working directory with stored runs, a candidate model, and probes."""
    folder = tmp_path_factory.mktemp("examples")
    for name in ("models", "probe"):
        (folder / "results" / name).mkdir(parents=True)
    (folder / "results/stored").symlink_to(STORED)
    (folder / "results/models/candidate").symlink_to(STORED_MODELS / "webshop-1.5m")
    for size in ("0.5b", "1.5b"):
        stored = STORED / f"probe/gsm8k_qwen2.5-coder-{size}_lines.json"
        shutil.copy(stored, folder / f"results/probe/gsm8k_{size}.json")
    return folder


def ended(monkeypatch, capsys, folder, example, *further):
    """The exit code of an example in ``folder``, which is also the home of its user; its output, and its
    errors."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    words = [word.replace("~", str(folder)) for word in words_of(example)]
    return run(monkeypatch, capsys, *words, *further)


@pytest.mark.parametrize("example", sorted(QUICK))
def test_a_quick_one_runs(monkeypatch, capsys, folder, example):
    code, out, err = ended(monkeypatch, capsys, folder, example)
    assert (code, bool(out)) == (0, True), err


@pytest.fixture(scope="module")
def trained(folder):
    """A finished run of R3L where the examples expect one."""
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    words = ("train", "--set", "train.steps=1", *TINY, "--run-dir", RUN)
    with pytest.raises(SystemExit) as end:
        patch.setattr("sys.argv", ["r3l", *words])
        cli.main()
    patch.undo()
    assert not end.value.code and os.path.isdir(folder / RUN)


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize(
    "example", LONGER
)  # in this order: evaluated before it is verified, exported and stored
def test_a_longer_one_runs(monkeypatch, capsys, folder, example):
    code, out, err = ended(monkeypatch, capsys, folder, example, *LONGER[example])
    assert (code, bool(out)) == (0, True), err
