"""What is stored is what was measured: every number follows from raw lines, and one changed line is found."""

import json
import lzma
import shutil
import subprocess
from contextlib import nullcontext

import pytest
from program import run

from r3l.config import Run
from r3l.core.errors import DataError, RunDirectoryError
from r3l.evaluation import stored_runs, storing, verification
from r3l.evaluation.episodes import scores
from r3l.evaluation.verification import check_signed, sign, verify, verify_all
from r3l.files import requirements
from r3l.files.digests import SUMS
from r3l.files.json_files import columns_path, read_jsonl, rewrite_jsonl
from r3l.files.locks import locked
from r3l.files.paths import STORED
from r3l.report.reading import read_runs
from r3l.runs import trajectory_log
from r3l.runs.run_paths import FURTHER, find_runs

PATHS = [
    path for part in ("", "hint_gap", "curves", "smol/cpu", "smol/gpu") for path in find_runs(STORED / part)
]


@pytest.fixture
def copy(tmp_path):
    """A copy of a stored run with plain lines, as training leaves it."""
    source = next(path.parent for path in PATHS if path.parent.match("r3l/seed0"))
    target = tmp_path / "results" / source.relative_to(STORED)
    shutil.copytree(source, target)
    for name in ("metrics.jsonl", "episodes.jsonl", trajectory_log.FILE):
        rows = read_jsonl(target / name)
        columns_path(target / name).unlink()
        rewrite_jsonl(target / name, rows)
    sign(target)
    return target


def edit(path, **changes):
    """Other values in a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 20))])
def test_every_stored_number_follows_from_its_raw_lines(part):
    """As `r3l verify` checks it of all runs, in a minute."""
    for path in PATHS[part::20]:
        check_signed(path.parent)
        verify(path.parent)


@pytest.mark.parametrize("command", ["evaluate", "evaluate --task-set nano/validation", "train --run-dir"])
def test_a_stored_run_is_refused_and_stays_as_it_is(monkeypatch, capsys, tmp_path, command):
    """It has no checkpoint. A lock and failed.json were left in it, with the advice to train into it."""
    source = next(path.parent for path in PATHS if path.parent.match("alfworld-1.5m-plain/r3l/seed1"))
    stored = shutil.copytree(source, tmp_path / "stored")
    before = {path: path.read_bytes() for path in sorted(stored.rglob("*"))}
    code, _, err = run(monkeypatch, capsys, *command.split(), stored)
    assert code == 2 and err.count("\n") == 1
    assert {path: path.read_bytes() for path in sorted(stored.rglob("*"))} == before
    if command.startswith("evaluate"):
        again = "r3l train --tier nano --env alfworld --method r3l --seed 1 --run-dir DIRECTORY"
        assert f"{stored} has no checkpoint: stored runs are kept without. " in err and again in err
    else:
        assert "choose another directory (--run-dir, --out)" in err


def test_one_changed_episode_is_found(copy):
    lines = (copy / "episodes.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    first["success"] = not first["success"]
    (copy / "episodes.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    for reader in (verify, check_signed, lambda folder: read_runs([folder / "evaluation.json"])):
        with pytest.raises(DataError, match=r"episodes\.jsonl changed after the run was evaluated"):
            reader(copy)
    (copy / SUMS).unlink()
    with pytest.raises(DataError, match=r"evaluation\.json: 'groups' is .* but the run's raw lines give"):
        verify(copy)


def test_a_mean_that_another_python_has_summed_is_the_same_number(copy):
    """sum() of 3.12 rounds otherwise than that of 3.11; a change in the sixth digit is none of rounding."""
    groups = json.loads((copy / "evaluation.json").read_text())["groups"]
    for change, passes in ((1 + 1e-14, True), (1 + 1e-6, False)):
        changed = {name: scores | {"reward": scores["reward"] * change} for name, scores in groups.items()}
        edit(copy / "evaluation.json", groups=changed)
        (copy / SUMS).unlink()
        with nullcontext() if passes else pytest.raises(DataError, match="'groups' is"):
            verify(copy)


@pytest.fixture
def fresh_tasks():
    """Nothing that other tests have found out about task sets, and nothing for them."""
    for cached in (verification._is_here, verification._tasks):
        cached.cache_clear()
    yield
    for cached in (verification._is_here, verification._tasks):
        cached.cache_clear()


def test_a_run_is_verified_without_the_packages_of_its_environment(copy, monkeypatch, caplog, fresh_tasks):
    """As after `pip install r3l` without extras: what needs no package is still checked."""
    monkeypatch.setattr(requirements, "missing", lambda extra: ["textworld"])
    verify(copy)
    assert "are not checked" in caplog.text and "textworld is not installed" in caplog.text
    edit(copy / "evaluation.json", episodes=7)
    (copy / SUMS).unlink()
    with pytest.raises(DataError, match="'episodes' is 7"):
        verify(copy)


def test_a_run_without_digests_is_signed_by_verify(copy):
    (copy / SUMS).unlink()
    with pytest.raises(DataError, match=rf"has no {SUMS}, .*: r3l verify .* makes it"):
        read_runs([copy / "evaluation.json"])
    verify(copy)
    assert len(read_runs([copy / "evaluation.json"]).path.unique()) == 1


def test_a_run_without_episodes_has_no_score(copy):
    with pytest.raises(ValueError, match="no episodes"):
        scores([])
    (copy / "episodes.jsonl").write_text("")
    none = {"all": {"episodes": 0, "success": 0, "reward": 0}}
    edit(copy / "evaluation.json", episodes=0, groups=none, stops={})
    (copy / SUMS).unlink()
    with pytest.raises(DataError, match=r"episodes\.jsonl has no episodes, .*: evaluate the run again"):
        verify(copy)


def rename(copy):
    for name in ("evaluation.json", "result.json"):
        edit(copy / name, method="grpo", cell="/".join((*copy.parts[-5:-2], "grpo")), method_label="GRPO")
    run = json.loads((copy / "manifest.json").read_text())["run"]
    edit(copy / "manifest.json", run=run | {"method": "grpo", "method_label": "GRPO"})


def other_task(copy):
    text = (copy / "episodes.jsonl").read_text()
    (copy / "episodes.jsonl").write_text(
        text.replace(json.loads(text.splitlines()[7])["task"], "house-of-cards")
    )


def other_task_set(copy):
    named = json.loads((copy / "evaluation.json").read_text())["task_set"]["name"]
    edit(copy / "evaluation.json", task_set={"name": named, "sha256": "0", "tasks": 1})


def other_constant_answer(copy):
    task_set = json.loads((copy / "evaluation.json").read_text())["task_set"]
    edit(
        copy / "evaluation.json",
        task_set=task_set | {"constant_answer_baseline": {"answer": "0", "success": {}}},
    )


def other_trajectories(copy):
    path = copy / trajectory_log.FILE
    rewrite_jsonl(path, [row | {"method": "ours"} for row in read_jsonl(path)])


def unknown_trajectory(copy):
    path = copy / trajectory_log.FILE
    rewrite_jsonl(path, [row | {"task": "house-of-cards"} for row in read_jsonl(path)])


FORGERIES = {
    "evaluation.json: 'seed' is 3, but manifest.json has 0": lambda copy: edit(
        copy / "evaluation.json", seed=3
    ),
    "result.json: 'model' is 'large', but": lambda copy: edit(copy / "result.json", model="large"),
    "manifest.json: 'fingerprint' is .* its configuration gives": rename,
    "evaluation.json: 'checkpoint' is ": lambda copy: edit(copy / "result.json", checkpoint_sha256="0"),
    "evaluation.json: 'task_set [a-z]+/test' is '0'": other_task_set,
    "'task_set.constant_answer_baseline.success' is {} .the group 'all' is missing": other_constant_answer,
    "episodes.jsonl: 'task, member, group' is .'house-of-cards'": other_task,
    "trajectories.jsonl.gz: 'method' is 'ours', but manifest.json has": other_trajectories,
    "trajectories.jsonl.gz: task 'house-of-cards' .* is not in this run": unknown_trajectory,
}


@pytest.mark.parametrize("words", FORGERIES)
def test_what_belongs_to_another_run_is_found(copy, words):
    (copy / SUMS).unlink()
    FORGERIES[words](copy)
    with pytest.raises(DataError, match=words):
        verify(copy)


@pytest.mark.parametrize(
    ("key", "value"),
    [("cell", "nano/math/other/grpo"), ("method", "ours"), ("seed", 7), ("fingerprint", "0")],
)
def test_a_further_evaluation_of_another_run_is_found(copy, key, value):
    further = copy / FURTHER / "again"
    further.mkdir(parents=True)
    for name in ("evaluation.json", "episodes.jsonl"):
        shutil.copy(copy / name, further / name)
    verify(copy)
    (further / SUMS).unlink()  # it was signed
    edit(further / "evaluation.json", **{key: value})
    with pytest.raises(
        DataError, match=rf"again/evaluation\.json: '{key}' is .*{value}'?, but manifest.json"
    ):
        verify(copy)
    assert not (further / SUMS).exists()


@pytest.mark.parametrize("place", ["{method}/seed3", "grpo/seed0", "../other-model/{method}/seed0"])
def test_a_copy_under_another_name_is_found(copy, tmp_path, place):
    other = (copy.parents[1] / place.format(method=copy.parent.name)).resolve()
    shutil.copytree(copy, other)
    for reader in READERS:
        with pytest.raises(DataError, match="holds the run .*/seed0, as its files say"):
            reader([other], tmp_path)


def test_so_is_one_whose_files_have_the_other_name_too(copy, tmp_path):
    other = copy.with_name("seed3")
    shutil.copytree(copy, other)
    manifest = json.loads((copy / "manifest.json").read_text())
    run = Run.model_validate(manifest["run"] | {"seed": 3})
    fingerprint = run.fingerprint(manifest["inputs"])
    edit(other / "manifest.json", run=run.model_dump(mode="json"), fingerprint=fingerprint)
    for name in ("evaluation.json", "result.json"):
        edit(other / name, seed=3, fingerprint=fingerprint)
    sign(other)
    verify(other)  # nothing is wrong with it alone
    for reader in READERS:
        with pytest.raises(DataError, match="seed0 and .*seed3 have identical metrics and timings"):
            reader([copy, other], tmp_path)
    assert not (tmp_path / "stored").exists()


READERS = [
    lambda run_dirs, tmp_path: verify_all(run_dirs),
    lambda run_dirs, tmp_path: storing.store(run_dirs, tmp_path / "stored"),
    lambda run_dirs, tmp_path: read_runs([run_dir / "evaluation.json" for run_dir in run_dirs]),
]


def test_every_run_that_does_not_pass_is_named(copy, tmp_path):
    others = [copy.with_name("seed3"), copy.with_name("seed4"), copy.with_name("seed5")]
    for other in others:
        shutil.copytree(copy, other)
    (others[1] / "manifest.json").write_text("[]")
    (others[2] / "evaluation.json").unlink()
    with pytest.raises(DataError) as refused:
        verify_all([others[0], copy, *others[1:]])
    first, *lines = str(refused.value).splitlines()
    assert first == "3 of 4 runs do not pass:" and all(
        str(other) in line for other, line in zip(others, lines, strict=True)
    )


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b'{"tier": "nano"}'])
def test_no_tuning_is_stored_that_is_none(tmp_path, content):
    path = tmp_path / "results/tuning/nano/math/r3l.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"r3l\.json"):
        storing.store_tunings(tmp_path / "results", tmp_path / "stored")
    assert not (tmp_path / "stored").exists()


def test_a_probe_is_stored_with_its_attempts(tmp_path):
    results, out = tmp_path / "results", tmp_path / "stored"
    probe = results / "probe" / "webshop_webshop-1.5m.json"
    probe.parent.mkdir(parents=True)
    probe.write_text('{"commit": "abc-dirty"}')
    with pytest.raises(DataError, match=r"has no webshop_webshop-1\.5m\.attempts\.jsonl next to it"):
        storing.store_probes(results, out)
    assert not out.exists()

    attempts = probe.with_name("webshop_webshop-1.5m.attempts.jsonl")
    attempts.write_text('{"batch": 0}\n')
    assert storing.store_probes(results, out) == [out / "probe" / probe.name]
    kept = out / "probe" / f"{attempts.name}.xz"
    assert lzma.decompress(kept.read_bytes()) == attempts.read_bytes()
    assert storing.store_probes(results, out) == []  # it is there already
    with pytest.raises(DataError, match="uncommitted changes"):
        storing.store_probes(results, STORED)


def test_attempts_that_unpack_to_any_size_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_runs, "LINES", 1 << 20)
    probe = tmp_path / "a.json"
    probe.write_text('{"commit": "abc", "attempts_sha256": "0"}')
    (tmp_path / "a.attempts.jsonl.xz").write_bytes(lzma.compress(bytes(30 << 20)))  # 4,400 bytes
    with pytest.raises(DataError, match="unpacks to more than 2 MiB"):
        stored_runs.verify_probes([probe])


@pytest.mark.parametrize("what", ["tuning/nano/math", "probe"])
def test_what_a_killed_command_was_storing_is_removed(tmp_path, what):
    results, out = tmp_path / "results", tmp_path / "stored"
    (results / "probe").mkdir(parents=True)
    (results / "probe/a.json").write_text('{"commit": "abc"}')
    (results / "probe/a.attempts.jsonl").write_text('{"batch": 0}\n')
    (results / "tuning/nano/math").mkdir(parents=True)
    tuning = next((STORED / "tuning").glob("*/*/*.json"))
    shutil.copy(tuning, results / "tuning/nano/math" / tuning.name)
    child = subprocess.Popen(["true"])
    child.wait()
    left = out / what / f".a.json.{child.pid}.7.tmp"
    left.parent.mkdir(parents=True)
    left.touch()
    storing.store_tunings(results, out)
    storing.store_probes(results, out)
    assert not left.exists() and len(list((out / what).iterdir())) == (2 if what == "probe" else 1)
    with locked(out), pytest.raises(RunDirectoryError, match="in use by another process"):
        (storing.store_probes if what == "probe" else storing.store_tunings)(results, out)


def test_storing_packs_keeps_and_refuses_another_outcome(copy, tmp_path):
    out = tmp_path / "stored"
    (written,) = storing.store([copy], out)
    assert {p.name for p in written.iterdir()} >= {
        "manifest.json",
        "result.json",
        "evaluation.json",
        "episodes.json.xz",
    }
    for name in ("metrics.jsonl", "episodes.jsonl", trajectory_log.FILE):
        assert read_jsonl(written / name) == read_jsonl(copy / name) != []
    before = (written / "episodes.json.xz").read_bytes()
    assert storing.store([copy], out) == []
    shutil.rmtree(out)
    storing.store([copy], out)
    assert (written / "episodes.json.xz").read_bytes() == before  # equal runs are equal bytes
    rows = read_jsonl(copy / "episodes.jsonl")
    rows[0]["reward"] = 1.0 - rows[0]["reward"]
    (copy / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluation = json.loads((copy / "evaluation.json").read_text())
    evaluation["groups"] = scores(rows)
    (copy / "evaluation.json").write_text(json.dumps(evaluation))
    sign(copy)
    with pytest.raises(DataError, match="same fingerprint"):
        storing.store([copy], out)


def test_a_stored_run_of_other_settings_is_replaced_only_on_request(copy, tmp_path):
    """Nothing is written before it is refused, and the place below the store is the run's own."""
    out = tmp_path / "stored"
    (written,) = storing.store([copy], out)
    assert written == out.joinpath(*copy.parts[-5:])
    ours = (written / "evaluation.json").read_bytes()
    edit(written / "evaluation.json", fingerprint="0" * 16)  # as of another learning rate
    theirs = (written / "evaluation.json").read_bytes()
    with pytest.raises(DataError, match=r"1 stored runs have the same names .* --replace deletes them"):
        storing.store([copy], out)
    assert (written / "evaluation.json").read_bytes() == theirs
    assert storing.store([copy], out, replace=True) == [written]
    assert (written / "evaluation.json").read_bytes() == ours


def test_a_stored_run_is_stored_again_in_the_same_bytes(copy, tmp_path):
    """Its lines are columns already."""
    (first,) = storing.store([copy], tmp_path / "one")
    (second,) = storing.store([first], tmp_path / "other")
    verify(second)
    assert {path.name: path.read_bytes() for path in second.iterdir()} == {
        path.name: path.read_bytes() for path in first.iterdir()
    }


def test_what_a_killed_command_left_in_the_store_is_removed_or_put_back(copy, tmp_path):
    """A folder half-written; and, on a disk that cannot exchange names, an old one that waits to be replaced."""
    out = tmp_path / "stored"
    (written,) = storing.store([copy], out)
    dead = subprocess.Popen(["true"])
    dead.wait()
    (written.parent / f".seed0.{dead.pid}.7.tmp").mkdir()
    written.rename(written.with_name(".seed0.before"))
    assert storing.store([copy], out) == []  # stored already
    assert [path.name for path in written.parent.iterdir()] == ["seed0"]
    check_signed(written)


def test_two_commands_do_not_write_one_store_at_once(copy, tmp_path):
    refused = pytest.raises(RunDirectoryError, match="stored is in use by another process")
    with locked(tmp_path / "stored"), refused:
        storing.store([copy], tmp_path / "stored")
    assert not (tmp_path / "stored").exists()


def test_a_torn_archive_is_found(copy, tmp_path):
    (written,) = storing.store([copy], tmp_path / "stored")
    packed = written / "episodes.json.xz"
    packed.write_bytes(packed.read_bytes()[:50])
    with pytest.raises(DataError, match="episodes.json.xz changed"):
        verify(written)
    sign(written)
    with pytest.raises(DataError, match="episodes.json.xz is damaged"):
        verify(written)
