"""A probe of ALFWorld's base checkpoint by the command; stored probes; bad input."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from chat_server import completion, serving
from program import run
from start_models import START_FOLDER

from r3l.cli.probe import default_tier
from r3l.core.task import Task
from r3l.files.json_files import read_json, read_jsonl
from r3l.files.locks import locked
from r3l.files.paths import STORED, STORED_MODELS
from r3l.probe.measures import SECTIONS
from r3l.probe.result import Target, attempts_file, chosen, table_of
from r3l.report.figures import probes as figure_of_probes
from r3l.report.figures import style
from r3l.report.probes import name_of, read

STORED_PROBES = STORED / "probe"
SMALL = ("--tasks", 2, "--attempts", 2, "--batch", 2, "--set", "env_settings.max_turns=4")


class Captured:
    """In place of pytest's capsys, which a fixture of a module cannot have."""

    out = err = ""

    def readouterr(self):
        return self


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("probe") / "alfworld.json"


@pytest.fixture(scope="module")
def content(out):
    """Two tasks, one of each half, two attempts each, in two batches."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        code, _, _ = run(monkeypatch, Captured(), "probe", "alfworld", *SMALL, "--out", out)
    assert code == 0
    return json.loads(out.read_text())


def test_it_says_what_was_measured(content):
    weights = json.loads((START_FOLDER / "sft.json").read_text())["weights_sha256"]
    assert content["model"]["weights_sha256"] == weights
    assert (content["env"], content["tasks"], content["attempts"]) == ("alfworld", 2, 4)
    assert content["halves"] == ["easy", "hard"]
    assert content["task_set"]["name"] == "small/validation" and len(content["task_set"]["sha256"]) == 64


def test_what_a_killed_probe_has_played_is_not_played_again(content, out, monkeypatch, capsys):
    rows = attempts_file(out)
    whole = rows.read_bytes()
    first, second = whole.splitlines(keepends=True)
    rows.write_bytes(first + second[:100])
    assert run(monkeypatch, capsys, "probe", "alfworld", *SMALL, "--out", out)[0] == 0
    assert rows.read_bytes() == whole
    again = json.loads(out.read_text())
    assert again["seconds"]["attempts_played"] == 2 and again["measures"] == content["measures"]
    for changed in (("--seed", 1), ("--attempts", 3), ("--batch", 4)):
        code, _, err = run(monkeypatch, capsys, "probe", "alfworld", *SMALL, *changed, "--out", out)
        assert code == 2 and rows.name in err and rows.read_bytes() == whole, changed


def test_what_a_killed_probe_was_writing_is_removed(content, out, monkeypatch, capsys):
    child = subprocess.Popen(["true"])
    child.wait()
    left = out.with_name(f".{out.name}.{child.pid}.7.tmp")
    another = out.with_name(f".another.json.{child.pid}.7.tmp")  # of a probe that another machine may run
    left.touch()
    another.touch()
    assert run(monkeypatch, capsys, "probe", "alfworld", *SMALL, "--out", out)[0] == 0
    assert not left.exists() and another.exists()


def test_a_judge_is_refused_before_any_work(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("R3L_JUDGE", "http://127.0.0.1:9/v1")
    out = tmp_path / "judged.json"
    options = ("--set", "feedback=judge", "--set", "judge.model=tiny")
    code, _, err = run(monkeypatch, capsys, "probe", "alfworld", *SMALL, *options, "--out", out)
    assert code == 2 and "feedback is 'judge'" in err and not list(tmp_path.iterdir())


def test_attempts_that_were_changed_are_named_by_their_line(content, out, monkeypatch, capsys):
    rows = attempts_file(out)
    whole = rows.read_bytes()
    assert json.loads(out.read_text())["attempts_sha256"] == hashlib.sha256(whole).hexdigest()
    first, second = (json.loads(line) for line in whole.splitlines())
    changed = json.loads(json.dumps(second))
    changed["attempts"][0]["success"] ^= True
    wrong = {
        "line 2: these are not the attempts that were written": [first, changed],
        "line 1: key 'probed' is missing": [{"attempts": first["attempts"]}, second],
        "line 2: key 'attempts' is missing": [first, {"probed": first["probed"]}],
        "line 1: these are not the attempts": [{"probed": first["probed"], "attempts": [{"task": "a"}]}],
    }
    for words, lines in wrong.items():
        rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
        before = rows.read_bytes()
        code, _, err = run(monkeypatch, capsys, "probe", "alfworld", *SMALL, "--out", out)
        assert code == 2 and words in err and rows.read_bytes() == before, words
    rows.write_bytes(whole)


def test_verify_checks_the_attempts_of_probes(content, out, tmp_path, monkeypatch, capsys):
    """In a folder of results, as a file, and archived; a probe of r3l 0.1.0 has no digest."""
    folder = tmp_path / "results" / "probe"
    folder.mkdir(parents=True)
    probe, attempts = folder / out.name, attempts_file(folder / out.name)
    shutil.copy(out, probe)
    shutil.copy(attempts_file(out), attempts)
    old = {key: value for key, value in content.items() if key != "attempts_sha256"}
    (folder / "old.json").write_text(json.dumps(old))

    def verify(*named):
        code, text, err = run(monkeypatch, capsys, "verify", *named)
        assert code in (0, 2) and err.count("error: ") == (code == 2), err
        return text if code == 0 else err

    assert "1 probes: no attempts have changed" in verify(folder.parent)
    assert "1 probes: no attempts have changed" in verify(probe)
    of_probes = verify(folder)  # the folder of the probes itself
    assert "1 probes: no attempts have changed" in of_probes and "1 probes cannot be checked" in of_probes
    assert "runs:" not in of_probes
    assert "cannot be checked: r3l 0.1.0" in verify(folder / "old.json")
    (folder / "old.json").unlink()
    archive = tmp_path / "kept"
    assert run(monkeypatch, capsys, "stored", "add", "--results", folder.parent, "--out", archive)[0] == 0
    kept = archive / "probe" / f"{attempts.name}.xz"
    assert "1 probes" in verify(archive) and kept.is_file()

    # Every changed byte is found: of the result, of the attempts, of the archive, and a file that is missing.
    whole, packed = attempts.read_bytes(), kept.read_bytes()
    for changed in (b"", whole[:-1], whole + b"\n", whole.replace(b"true", b"false", 1)):
        attempts.write_bytes(changed)
        assert f"{probe}: 'attempts_sha256' is not the digest of {attempts.name}" in verify(folder.parent)
    code, _, err = run(
        monkeypatch, capsys, "stored", "add", "--results", folder.parent, "--out", tmp_path / "b"
    )
    assert code == 2 and "attempts_sha256" in err and not (tmp_path / "b").exists()
    attempts.unlink()
    assert f"{attempts.name}.xz, cannot be read" in verify(probe)
    for changed in (packed[:-20], b"not xz", packed[:40] + b"\0" * 8 + packed[48:]):
        kept.write_bytes(changed)
        assert f"its attempts, {kept.name}, cannot be read" in verify(archive)


def test_verify_says_what_it_takes(out, tmp_path, monkeypatch, capsys):
    """A file that is no probe's result, no JSON, or damaged; a folder without either."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("notes.txt", "a"), ("evaluation.json", "{}"), ("list.json", "[]"), ("cut.json", "{")):
        Path(name).write_text(text)
    Path("empty", "probe").mkdir(parents=True)
    words = {
        "notes.txt": "notes.txt is neither a run directory nor the result of a probe",
        "evaluation.json": "evaluation.json is neither a run directory nor the result of a probe",
        "list.json": "list.json: its content is []",
        "cut.json": "cut.json is not valid JSON",
        "empty": "no evaluation.json under empty",
        "empty/probe": "no evaluation.json under empty/probe",
        str(attempts_file(out)): "is neither a run directory nor the result of a probe",
        "notes.txt/seed0": "notes.txt/seed0 does not exist",
    }
    for named, wanted in words.items():
        code, _, err = run(monkeypatch, capsys, "verify", named)
        assert code == 2 and wanted in err and err.count("\n") == 1, err


def test_two_probes_do_not_write_one_file(content, out, monkeypatch, capsys):
    with locked(out):
        code, _, err = run(monkeypatch, capsys, "probe", "alfworld", *SMALL, "--out", out)
    assert code == 2 and "alfworld.json is in use by another process; wait for it or choose another" in err


def test_each_seed_has_its_own_place(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = (*SMALL, "--model", "math-1.5m")
    for seed in (0, 1):
        assert run(monkeypatch, capsys, "probe", "math", *small, "--seed", seed)[0] == 0
    places = sorted(path.name for path in (tmp_path / "results" / "probe").iterdir())
    assert places == [f"math_math-1.5m_seed{k}.{end}" for k in (0, 1) for end in ("attempts.jsonl", "json")]


def test_guided_retries_have_log_probs_with_and_without_the_hint(content, out):
    owns = [attempt["own"] for line in read_jsonl(attempts_file(out)) for attempt in line["attempts"]]
    scored = [own["guided"]["logprobs"] for own in owns if own["guided"]]
    assert scored and all(len(found["under"]) == len(found["without"]) > 0 for found in scored)
    assert any(found["under"] != found["without"] for found in scored)


def test_where_an_environment_has_sft_the_checkpoint_that_it_made_is_probed(tmp_path, monkeypatch, capsys):
    """Of a run with LoRA too, whose fresh adapter is left out."""
    monkeypatch.setenv("R3L_CACHE", str(tmp_path))
    made = tmp_path / "models" / "alfworld-1.5m-math-1.5m"
    shutil.copytree(STORED_MODELS / "math-1.5m", made)
    settings = (
        "--set",
        "env_settings.sft=math-1.5m",
        "--set",
        "lora.rank=2",
        "--out",
        tmp_path / "math.json",
    )
    assert run(monkeypatch, capsys, "probe", "math", *SMALL, "--model", "alfworld-1.5m", *settings)[0] == 0
    model = json.loads((tmp_path / "math.json").read_text())["model"]
    taught = json.loads((made / "sft.json").read_text())
    assert model["name"] == made.name and model["weights_sha256"] == taught["weights_sha256"]
    assert model["parameters"] == taught["parameters"]


@pytest.mark.parametrize(
    ("env", "model", "served", "tier"),
    [
        ("webshop", None, False, "nano"),
        ("webshop", "webshop-1.5m", False, "nano"),
        ("webshop", "qwen2.5-coder-0.5b", False, "smol"),
        ("webshop", "someone/a-model", False, "smol"),
        ("webshop", None, True, "smol"),
        ("gsm8k", None, False, "smol"),
    ],
)
def test_a_published_model_is_not_probed_with_the_limits_of_nano(env, model, served, tier):
    assert default_tier(env, model, served) == tier


def test_a_server_is_probed_without_log_probs(tmp_path, monkeypatch, capsys):
    """It never answers and knows it."""

    report = "Outcome: failure\nCause: no answer\nSuggestion: count the knights"

    def answer(request, before):
        return completion(report if "Outcome: failure" in request["messages"][-1]["content"] else "I pass.")

    out = tmp_path / "served.json"
    options = ("-n", 2, "--attempts", 2, "--set", "method_settings.reflection_schema=lines")
    options += ("--set", "workers=0")
    with serving(answer) as (url, seen):
        code, _, err = run(
            monkeypatch, capsys, "probe", "knights_knaves", "--server", url, *options, "--out", out
        )
    assert code == 0, err
    assert {request["max_tokens"] for request in seen} == {512}  # tier smol, not nano's 24
    content = json.loads(out.read_text())
    found = content["measures"]
    # An attempt, a reflection, retries from the only pivot with its hint, without, and with the critic's.
    assert len(seen) == 4 * 5
    assert found["reflections_valid"]["value"] == found["outcome_right"]["value"] == 1
    assert found["retry_success"]["value"] == 0 and found["retry_success"]["n"] == 4
    assert found["tokens"]["value"] == 5 and found["hint_gap"]["value"] is None
    assert "log-probs of retries" in content["not_measured"] and content["gate"]["hint_gap"]["met"] is None
    assert content["gate"]["reflections_valid"]["met"] is True and content["model"]["name"] == "tiny"


def test_every_measure_has_a_row_and_stored_probes_are_read(content):
    assert set(content["measures"]) == {key for labels in SECTIONS.values() for key in labels}
    stored = [*STORED_PROBES.glob("*.json"), *STORED.glob("*/probe/*.json")]
    for probe in (content, *map(read_json, stored)):
        table = table_of(probe)
        assert table and len(list(table.cells())) > 25


def test_probes_stand_side_by_side_the_smallest_model_first(tmp_path, monkeypatch, capsys):
    stored = [STORED_PROBES / f"{env}.json" for env in ("webshop", "alfworld")]
    larger = read_json(stored[0])
    larger["model"] |= {"name": "larger", "parameters": 2 * 10**9}
    (tmp_path / "larger.json").write_text(json.dumps(larger))
    files = [tmp_path / "larger.json", *stored]
    assert [name_of(probe) for probe in read(files)] == ["alfworld-1.5m-plain", "webshop-1.5m", "larger"]
    code, out, _ = run(monkeypatch, capsys, "table", "probe", *files, "--json")
    guided = {
        row["model"]: row["value"] for row in json.loads(out)["rows"] if row["measure"] == "retry_success"
    }
    assert code == 0 and round(guided["alfworld-1.5m-plain"], 3) == 0.274
    assert run(monkeypatch, capsys, "figure", "probe", *files, "--out", tmp_path / "probe.png")[0] == 0
    assert (tmp_path / "probe.png").stat().st_size > 1000
    (tmp_path / "other.json").write_text("{}")
    assert run(monkeypatch, capsys, "table", "probe", tmp_path / "other.json")[0] == 2


def test_the_figure_has_a_row_per_model_and_tells_equal_names_apart(tmp_path, monkeypatch):
    """ALFWorld, its model, WebShop, its two probes of one model: the second of 64 tasks, without a critic."""
    alfworld, webshop = (read_json(STORED_PROBES / f"{env}.json") for env in ("alfworld", "webshop"))
    unknown = {"value": None, "low": None, "high": None, "n": 0, "tasks": 0}
    fewer = webshop | {"tasks": 64}
    fewer["measures"] = webshop["measures"] | {"critic_guided_minus_unguided": unknown}
    kept = []
    monkeypatch.setattr(style, "save", lambda figure, out, name: kept.append(figure) or [out])
    figure_of_probes.draw([alfworld, webshop, fewer], tmp_path)
    differences, hints, shares = kept[0].axes
    labels = [label.get_text() for label in differences.get_yticklabels()]
    tasks = f"webshop-1.5m, {webshop['tasks']} tasks"
    assert labels == ["ALFWorld", "alfworld-1.5m-plain", "WebShop", tasks, "webshop-1.5m, 64 tasks"]

    def points(ax):
        drawn = [line.get_xydata()[0] for line in ax.lines if len(line.get_xdata()) == 1]
        return [(round(float(x), 2), round(float(y), 2)) for x, y in drawn]

    assert points(differences) == [(0.12, 1), (0.28, 3), (0.28, 4)]
    own_and_critic = [(0.18, 0.88), (0.36, 1.12), (0.23, 2.88), (0.35, 3.12), (0.23, 3.88)]
    assert points(hints) == own_and_critic and len(points(shares)) == 3 * 4


@pytest.mark.parametrize(
    ("target", "value", "low", "met"),
    [
        (Target(at_least=0.1, at_most=0.35), 0.35, None, True),
        (Target(at_least=0.1, at_most=0.35), 0.36, None, False),
        (Target(at_least=1.5, interval_above=1), 1.6, 1.01, True),
        (Target(at_least=1.5, interval_above=1), 1.6, 1.0, False),
        (Target(at_least=1.5, interval_above=1), 1.4, 1.1, False),
        (Target(interval_above=0), 0.2, None, None),
        (Target(at_most=0.05), None, None, None),
    ],
)
def test_a_target_is_met_by_value_and_interval(target, value, low, met):
    assert target.met({"value": value, "low": low}) is met


def test_some_tasks_are_of_both_halves_and_the_same_every_time():
    tasks = [Task(f"t{k}", "toy", "validation", "easy" if k % 3 else "hard") for k in range(30)]
    some = chosen(tasks, 6)
    assert [task.group for task in some].count("hard") == 3 and chosen(tasks[::-1], 6) == some
    assert all(task in chosen(tasks, 10) for task in some) and chosen(tasks, None) == tasks
