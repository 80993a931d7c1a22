"""Our stored measurements: the committed tables are what the committed runs give."""

import re

import pytest

from r3l.files.paths import ROOT
from r3l.report import tables
from r3l.report.budget import budget_rows, budget_table
from r3l.report.feedback_per_token import feedback_rows, feedback_table
from r3l.report.feedback_per_token import flat as feedback_flat
from r3l.report.frame import all_tasks, with_further
from r3l.report.reading import read_runs
from r3l.report.registered import load_registered
from r3l.report.table import write
from r3l.report.updates import updates
from r3l.runs.run_paths import HINT_GAP, find_runs
from r3l.runs.step_metrics import base_success
from r3l.stats.power import StoppingRule
from r3l.workflow import plan

STORED = ROOT / "results" / "stored"
THREE_SEEDS = {"rltf_grpo", "rltf_sd", "rltf_fm", "rltf_sft"}  # of Table 1, with their own feedback
LOOP = re.compile(r"for t in ([\w ]+); do .*?--seeds-planned (\d+)(?: --env ([\w,]+))?", re.DOTALL)
MADE = [
    (name, int(seeds), envs.split(",") if envs else None)
    for names, seeds, envs in LOOP.findall((ROOT / "Makefile").read_text(encoding="utf-8"))
    for name in names.split()
]


def test_stored_tables_regenerate_from_the_stored_runs(stored, tmp_path):
    """`make stored` writes them. One test, since each process that runs one would read all the stored runs
    first."""
    assert len(MADE) >= 13
    for name, seeds, envs in [*MADE, ("budget", 5, None)]:
        _check_table(stored, name, seeds, tables.Selection(envs), tmp_path / name)


def test_table_1_from_earlier_base_checkpoints_regenerates(tmp_path):
    earlier = read_runs(find_runs(STORED / HINT_GAP))
    _check_table(earlier, "table1", 5, tables.Selection(["alfworld"]), tmp_path, STORED / HINT_GAP)


def _check_table(stored, name, seeds, asked, folder, kept=STORED):
    if name == "budget":
        rows = budget_rows(stored)
        write(rows.to_dict("records"), budget_table(rows), folder / "table.csv")
    else:
        table, config = plan.tables()[name], plan.load()
        shown, methods = tables.selected(stored, table, config, asked)
        built = tables.build(table, shown, methods, seeds, "nano")
        write(built.flat, built.printed, folder / "table.csv")
    for path in folder.iterdir():
        assert path.read_text() == (kept / f"{name}_nano{path.suffix}").read_text(), path.suffix


def test_the_stored_table_of_feedback_regenerates(stored, stored_curves, tmp_path):
    further = with_further(stored, read_runs(find_runs(STORED / HINT_GAP)))
    rows = feedback_rows(with_further(stored_curves, further))
    write(feedback_flat(rows), feedback_table(rows), tmp_path / "table.csv")
    for path in tmp_path.iterdir():
        kept = STORED / f"feedback_per_token_nano{path.suffix}"
        assert path.read_text() == kept.read_text(), path.suffix


def test_what_training_counted_agrees_with_itself(stored):
    """Step by step."""
    for path in all_tasks(stored).path:
        for line in updates(path):
            total = {
                part: sum(v for k, v in line.items() if k.startswith(f"{part}/"))
                for part in ("stop", "trained")
            }
            assert (total["stop"], total["trained"]) == (line["rollouts"], line["tokens/trained"]), path
            assert line["train/success"] == pytest.approx(base_success(line)), path


def test_stored_seeds_are_those_that_the_pre_registration_asks_for(stored):
    """Whole blocks, the same for both methods of a primary comparison; for other rows of Table 1 the first
    one, but for those of the entry of 2026-11-27 its three seeds."""
    of_plan, rule = load_registered(), StoppingRule()
    seeds = {}
    for run in all_tasks(stored).itertuples():
        seeds.setdefault((run.env, run.method), []).append(run.seed)
    for env in {env for env, _ in seeds} & set(of_plan.envs):
        primary = [sorted(seeds[env, method]) for method in (of_plan.method, of_plan.against)]
        count = len(primary[0])
        assert primary == [list(range(count))] * 2 and count in range(
            rule.block, rule.most + 1, rule.block
        ), env
        others = [name for name in plan.tables()["table1"].methods if (env, name) in seeds]
        block = list(range(rule.block))
        wanted = {name: [0, 1, 2] if name in THREE_SEEDS else block for name in others}
        assert {name for name in others if sorted(seeds[env, name])[: rule.block] != wanted[name]} == set(), (
            env
        )


def test_stored_runs_are_of_the_present_configuration(stored):
    """Their fingerprints are those that the configs give today: no one compares with numbers of another
    setting. So are the runs from ALFWorld's earlier base checkpoint, with the rates tuned from it."""
    earlier = read_runs(find_runs(STORED / HINT_GAP / "nano" / "alfworld" / "alfworld-1.5m-hints"))
    runs = [(run, None) for run in all_tasks(stored).itertuples()]
    runs += [(run, run.model) for run in all_tasks(earlier).itertuples()]
    for stored_run, base in runs:
        run = plan.resolve(stored_run.tier, stored_run.env, stored_run.method, stored_run.seed, base)
        made = stored_run.manifest
        if made["hardware"].get("gpu"):  # which reads no number of threads
            run = run.model_copy(update={"threads": made["run"]["threads"]})
        inputs = run.inputs()
        if "sft_model" in inputs:  # what SFT made there is not on this machine
            inputs["sft_model"] = made["inputs"]["sft_model"]
        assert run.fingerprint(inputs) == stored_run.fingerprint, stored_run.path
