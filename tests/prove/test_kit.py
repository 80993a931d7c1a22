"""The kit: each part in a process of its own, in slices, to a report; its dry form is the real parts."""

import json
import re
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from program import ready, run
from prove import small_parts as parts

from r3l.core.errors import ConfigError
from r3l.files.json_files import read_json, read_jsonl
from r3l.local.engine import train
from r3l.prove.forms import DRY
from r3l.prove.kit import PAGE, REPORT, Kit
from r3l.runs.run_dir import METRICS

TIMES = ("seconds", "tokens_per_second", "rate")


@pytest.fixture(autouse=True)
def forks():
    ready()  # the kit's own process would be one without what other tests want of it


@pytest.fixture
def form(tmp_path):
    return replace(DRY, report=tmp_path / "report", work=tmp_path / "work", minutes=25)


def test_every_end_of_a_part_is_told_and_the_next_one_runs(form):
    kit = Kit(form, (parts.WRONG, parts.DEFECT, parts.CRASH, parts.LATE, parts.ABSENT, parts.WELL))
    assert kit.run(None)
    told = {name: (outcome.status, outcome.seen) for name, outcome in kit.outcomes.items()}
    assert told["wrong"] == ("failed", "sampling and training disagree")
    assert told["defect"] == ("failed", "ZeroDivisionError: a defect")
    assert told["crash"][0] == "failed" and told["crash"][1].startswith("its process ended with 9")
    assert told["late"][0] == "failed" and told["late"][1].startswith("it took longer than 3 s")
    assert told["absent"] == ("skipped", "it is not installed") and told["well"] == ("passed", "as it should be")
    assert "Traceback" in (form.work / "parts" / "defect.log").read_text()
    written = read_json(form.report / REPORT)
    assert written["parts"]["well"]["figures"] == {"seconds given": 60.0} and written["seconds"] == kit.seconds > 3
    assert re.search(
        r"\| wrong: x \| failed \| \d+ \| sampling and training disagree \|", (form.report / PAGE).read_text()
    )


def test_a_later_call_goes_on_and_runs_nothing_twice_unless_asked(form):
    """A slice of 30 s holds the first part alone: the second one's limit, a minute, does not fit."""
    both = (parts.WELL, parts.ABSENT)
    first = Kit(form, both)
    assert not first.run(0.5)
    assert [outcome.status for outcome in first.outcomes.values()] == ["passed", "not reached"]
    assert "| absent: a | not reached | 0 |  |" in (form.report / PAGE).read_text()
    assert Kit(form, both).run(0.5)
    assert json.loads((form.work / "calls.json").read_text()) == {"well": 1}
    assert Kit(form, both, again=["well"]).run(None)
    assert json.loads((form.work / "calls.json").read_text()) == {"well": 2}
    with pytest.raises(ConfigError, match="there is no part 'wel'; known: absent, well"):
        Kit(form, both, again=["wel"])


def test_a_part_that_can_goes_on_in_the_next_slice_until_it_has_finished(form):
    seen = []
    for _ in range(3):
        kit = Kit(form, (parts.COUNTING,))
        over = kit.run(1)
        seen.append((over, kit.outcomes["counting"].status, kit.outcomes["counting"].seen))
    assert seen == [(False, "unfinished", "1 of 3"), (False, "unfinished", "2 of 3"), (True, "passed", "3 of 3")]


def test_what_finishes_nothing_in_its_time_has_failed_and_the_kit_ends_with_its_time(form):
    kit = Kit(form, (parts.NOTHING, parts.WELL))
    assert kit.run(None) and kit.outcomes["nothing"].seen == "nothing was finished in its time"
    kit.outcomes["nothing"].seconds = 60 * 25
    kit.outcomes["well"].status = "not reached"
    assert kit.run(None) and kit.outcomes["well"].status == "not reached"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    code, _, error = run(monkeypatch, capsys, "prove", "gpu")
    assert code == 2 and "needs a GPU, and torch" in error and error.rstrip().endswith("with --dry")


def test_the_dry_form_in_slices(monkeypatch, capsys, tmp_path):
    """The real parts; what learns in it, stopped by slices or not, is the run that `r3l train` makes."""
    monkeypatch.chdir(tmp_path)
    for _ in range(20):
        code, out, error = run(monkeypatch, capsys, "prove", "gpu", "--dry", "--minutes", "10", "--json")
        if code != 75:
            break
    report = read_json(DRY.report / REPORT)
    assert code == 0, (error, {name: part["seen"] for name, part in report["parts"].items()})
    status = {name: part["status"] for name, part in report["parts"].items()}
    assert json.loads(out)["parts"] == status and set(status.values()) == {"passed", "skipped"}
    skipped = {name for name in status if status[name] == "skipped"}
    without_vllm = set() if find_spec("vllm") else {"agreement_vllm", "vllm"}
    assert skipped == {"model", "agreement_bfloat16", "memory", "compiled"} | without_vllm
    figures = {name: part["figures"] for name, part in report["parts"].items()}
    assert figures["agreement_float32"]["tokens"] > 20
    assert figures["resume"]["state_restored"] and figures["resume"]["same_end"] and any(figures["resume"]["grad_norm"])
    assert figures["stage"]["phases"] == figures["stage"]["of"] == 2
    assert figures["step"]["limit"]["flop"]["train"]["linear"] > 0 and figures["train"]["plain"]["seconds_ratio"] > 0
    form = replace(DRY, work=DRY.work.absolute())
    again = form.run("grpo", *form.learning)
    train(again, tmp_path / "again")
    assert untimed(figures["grpo"]["metrics"]) == untimed(read_jsonl(tmp_path / "again" / METRICS))


def untimed(rows):
    return [{key: value for key, value in row.items() if not key.startswith(TIMES)} for row in rows]
