"""A user's file in any state ends a command in one paragraph that names it, or not at all: never in a traceback.

Each kind of file is damaged in every way of ``damaged`` and read by the commands that read it.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
import sys

import pytest
from program import run as program
from report.runs import write_run
from start_models import cell

from r3l import cli
from r3l.config import files
from r3l.config.protocol import load_protocol
from r3l.evaluation import verification
from r3l.files import paths
from r3l.files.digests import SUMS, write_digests
from r3l.files.paths import STORED

NOT_TEXT = b"\xff\xfe\x00bad"
FOREIGN = [
    NOT_TEXT,
    b"",
    b"null",
    b"[]",
    b"{}",
    b"3",
    b'"x"',
    b"[" * 100_000,
    b"\x00" * 50,
    b'{"a": NaN}',
    b"a: b: c",
]
VALUES = [None, "x", [], {}, -1, True, [None], {"x": None}, 10**30]


def damaged(content, count, seed=0):
    """Foreign contents, the first half of ``content``, and ``count`` copies of a JSON object with one key
    (of the first two levels) removed or given another value."""
    draw = random.Random(seed)
    variants = [*FOREIGN, content[: len(content) // 2]]
    for _ in range(count):
        changed = json.loads(content)
        inside = changed
        key = draw.choice(list(inside))
        if isinstance(inside[key], dict) and inside[key] and draw.random() < 0.7:
            inside = inside[key]
            key = draw.choice(list(inside))
        value = draw.choice([*VALUES, "removed"])
        if value == "removed":
            del inside[key]
        else:
            inside[key] = value
        variants.append(json.dumps(changed).encode())
    return variants


@pytest.fixture
def wrong(monkeypatch, capsys, tmp_path):
    """What is wrong with how a command ends; None if it succeeds, or is refused in one paragraph."""
    monkeypatch.chdir(tmp_path)

    def of(*command):
        monkeypatch.setattr(sys, "argv", ["r3l", *map(str, command)])
        try:
            cli.main()
        except SystemExit as end:
            paragraphs = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
            return None if not end.code or (end.code == 2 and len(paragraphs) == 1) else f"exit {end.code}"
        except Exception as error:  # noqa: BLE001  # what must not happen, whatever it is
            return repr(error)[:200]
        return None

    return of


@pytest.fixture
def run_dir(tmp_path):
    """A copy of a stored run, with its trajectories."""
    return shutil.copytree(
        STORED / cell("alfworld", "r3l") / "seed0", tmp_path / cell("alfworld", "r3l") / "seed0"
    )


@pytest.mark.parametrize("name", ["manifest.json", "result.json", "evaluation.json"])
def test_a_runs_documents(wrong, run_dir, name):
    """Signed again, as whoever damages a file on purpose would: the digests alone would refuse all of it."""
    intact = (run_dir / name).read_bytes()
    files = [path.name for path in run_dir.iterdir() if path.name != SUMS]
    compare = (
        "compare",
        "r3l",
        "--offline",
        "--env",
        "alfworld",
        "--against",
        "grpo",
        "--results",
        run_dir.parents[4],
    )
    for content in damaged(intact, 4):
        (run_dir / name).write_bytes(content)
        write_digests(run_dir, files)
        for command in (("table", "table1", run_dir), ("verify", run_dir), compare):
            assert not wrong(*command), (command[0], content[:300])


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 99},
        {"run": {"method_settings": {"retries": None}}},
        {"run": {"method_settings": {"feedback": "x"}}},
    ],
)
def test_a_report_leaves_out_runs_that_this_version_cannot_read(wrong, run_dir, caplog, changes):
    """In a folder with an intact one: another version's schema, or settings that it had."""
    shutil.copytree(STORED / cell("alfworld", "r3l") / "seed1", run_dir.with_name("seed1"))
    manifest = json.loads((run_dir / "manifest.json").read_text())
    manifest["schema"] = changes.get("schema", manifest["schema"])
    manifest["run"]["method_settings"] |= changes.get("run", {}).get("method_settings", {})
    (run_dir / "manifest.json").write_text(json.dumps(manifest))
    write_digests(run_dir, [path.name for path in run_dir.iterdir() if path.name != SUMS])
    assert not wrong("report", "--results", run_dir.parents[4], "--out", "page.html")
    named = "no derivation of advantages" if "retries" in str(changes) else "a run is left out"
    assert named in caplog.text and "manifest.json" in caplog.text


def test_a_probes_result(wrong, tmp_path):
    for content in damaged((STORED / "probe/alfworld.json").read_bytes(), 40):
        (tmp_path / "probe.json").write_bytes(content)
        assert not wrong("table", "probe", "probe.json"), content[:300]


@pytest.mark.parametrize("kind", ["envs", "methods"])
def test_a_users_yaml_and_code(wrong, monkeypatch, tmp_path, kind):
    mine = tmp_path / "mine"
    mine.mkdir()
    name = {"envs": "guess", "methods": "shortest"}[kind]
    for suffix in (".py", ".yaml"):
        shutil.copy(paths.EXAMPLES / f"{name}{suffix}", mine)
    monkeypatch.setenv(f"R3L_{kind.upper()}", str(mine))
    for suffix, contents in (
        (".yaml", FOREIGN),
        (".py", [NOT_TEXT, b"def", b"import nothing_here", b"1 / 0"]),
    ):
        intact = (mine / f"{name}{suffix}").read_bytes()
        for content in [*contents, intact[: len(intact) // 2]]:
            (mine / f"{name}{suffix}").write_bytes(content)
            which = ("--env", name) if kind == "envs" else ("--env", "math", "--method", name)
            for command in (("list", kind), ("list", "options", *which)):
                assert not wrong(*command), (command, content[:100])
        (mine / f"{name}{suffix}").write_bytes(intact)


@pytest.mark.parametrize("kind", ["envs", "methods"])
def test_a_broken_file_of_the_user_stops_no_command_about_others(monkeypatch, capsys, caplog, tmp_path, kind):
    """One such file ended `r3l report` and `r3l list`. Only commands that ask for it end, and name it."""
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "halved.yaml").write_text(f"{kind[:-1]}: [")
    write_run(tmp_path / "results", "grpo", 0, [1], [0])
    write_run(tmp_path / "results", "grpo", 0, [1], [0], env="halved")  # while its file was good
    monkeypatch.setenv(f"R3L_{kind.upper()}", str(mine))
    for command in (f"list {kind}", "list options", "list differences", "report", "table table1"):
        caplog.clear()
        files._warn_once.cache_clear()
        code, out, err = program(monkeypatch, capsys, *command.split())
        assert code == 0 and out, (command, err)
        if kind == "methods" and command != "table table1":
            assert f"method 'halved' is left out: {mine}/halved.yaml: not valid YAML" in caplog.text, command
    for command in (
        f"list {kind} halved",
        f"train --{kind[:-1]} halved",
        f"table table1 --{kind[:-1]} halved",
    ):
        code, out, err = program(monkeypatch, capsys, *command.split())
        assert code == 2 and err.startswith(f"error: {mine}/halved.yaml: not valid YAML"), (command, err)
    code, out, err = program(monkeypatch, capsys, "list", "options", "halved")
    assert code == 2 and "halved" in err


@pytest.mark.parametrize("file", ["alfworld/react.yaml", "alfworld/react.txt", "published.csv"])
def test_files_of_protocols_are_read_before_anything_is_played(wrong, monkeypatch, tmp_path, file):
    """Examples that are not UTF-8, and published numbers that cannot be read, cost a finished evaluation."""
    monkeypatch.setattr(paths, "CONFIGS", shutil.copytree(paths.CONFIGS, tmp_path / "configs"))
    monkeypatch.setattr("r3l.local.engine.train", lambda *_: pytest.fail("it is played"))
    path = tmp_path / "configs/protocols" / file
    text = path.read_text()
    contents = [NOT_TEXT]
    if file.endswith(".yaml"):
        row = next(line for line in text.splitlines() if "test_task_set:" in line)
        contents += [b"null", text.replace(row, row.partition(":")[0] + ": 3").encode()]
    if file.endswith(".csv"):
        changes = {"0.709": "1.709", ",134,": ",", "env,": "enw,", '"ReAct': "\x00"}
        contents += [b"", *(text.replace(old, new, 1).encode() for old, new in changes.items())]
    for content in contents:
        path.write_bytes(content)
        load_protocol.cache_clear()
        found = wrong(
            "evaluate", "alfworld", "--protocol", "react", "--model", STORED / "models/alfworld-1.5m"
        )
        assert not found, (found, content[:100])
        assert not list(tmp_path.glob("results/*"))
    load_protocol.cache_clear()


def test_a_run_whose_environment_is_not_here(wrong, run_dir, monkeypatch, caplog):
    """Without R3L_ENVS a report shows it, verify says what it leaves out, and evaluate how to set the
    variable."""
    monkeypatch.delenv("R3L_ENVS", raising=False)
    moved = run_dir.parents[4] / "nano/maze/alfworld-1.5m-hints/r3l/seed0"
    moved.parent.mkdir(parents=True)
    run_dir.rename(moved)
    for name in ("manifest.json", "result.json", "evaluation.json"):
        content = json.loads((moved / name).read_text())
        if name == "manifest.json":
            content["run"] |= {"env": "maze", "own_code": {"envs": {"maze.py": "0" * 64}}}
            content["own_folders"] = {"R3L_ENVS": "/home/me/my envs"}
        else:
            content |= {"env": "maze", "cell": content["cell"].replace("/alfworld/", "/maze/")}
        (moved / name).write_text(json.dumps(content))
    run = verification.run_of(moved)
    fingerprint = run.fingerprint(json.loads((moved / "manifest.json").read_text())["inputs"])
    for name in ("manifest.json", "result.json", "evaluation.json"):
        content = json.loads((moved / name).read_text()) | {"fingerprint": fingerprint}
        (moved / name).write_text(json.dumps(content))
    (moved / SUMS).unlink()
    verification._is_here.cache_clear()
    verification._tasks.cache_clear()
    assert not wrong("verify", moved)
    assert "task sets of maze are not checked: there is no env 'maze'" in caplog.text
    assert "found by R3L_ENVS, which is not set" in caplog.text
    assert not wrong("report", "--results", run_dir.parents[4], "--out", "page.html")
    monkeypatch.setattr(sys, "argv", ["r3l", "evaluate", str(moved)])
    with pytest.raises(SystemExit):
        cli.main()


def test_a_link_to_itself_and_a_pipe(wrong, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    assert [wrong("report", name) for name in ("loop", "pipe")] == [None, None]


def test_a_full_disk_is_one_paragraph(tmp_path):
    """An error at write() names no file."""

    def full():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    command = [sys.executable, "-c", "from r3l.cli import main; main()", "new", "method", "mine"]
    ended = subprocess.run(command, cwd=tmp_path, preexec_fn=full, capture_output=True, text=True)
    assert ended.returncode == 2 and ended.stderr.startswith(
        "error: a file cannot be written: File too large"
    )
