"""``r3l data catalogue`` end to end: catalogues are complete or absent, and an error is one paragraph."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from program import run
from r3l.envs.webshop.engine.build import locate
from r3l.envs.webshop.engine.catalogue import Catalogue, read_meta

from r3l.core.errors import DataError

ROOT = Path(__file__).resolve().parents[3]


def command(files, out):
    items, attributes, human = files
    return ["data", "catalogue", "--items", items, "--attrs", attributes, "--human", human, "--out", out]


def program(arguments, **options):
    """Start the program in a separate process."""
    started = [sys.executable, "-c", "from r3l.cli import main; main()", *map(str, arguments)]
    return subprocess.Popen(
        started, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_the_command_builds_and_reports(monkeypatch, capsys, files, tmp_path):
    out = tmp_path / "shop"
    code, text, _ = run(monkeypatch, capsys, *command(files, out), "--json")
    meta, report = read_meta(out), json.loads(text)
    assert code == 0 and (report["id"], report["products"], report["goals"]) == (meta.id, 60, 180)
    monkeypatch.setenv("R3L_WEBSHOP", str(out))
    assert locate(meta.id) == out
    monkeypatch.delenv("R3L_WEBSHOP")
    with pytest.raises(DataError, match="R3L_WEBSHOP is not set"):
        locate(meta.id)
    code, text, _ = run(monkeypatch, capsys, *command(files, tmp_path / "few"), "--limit", 5)
    assert code == 0 and "5 products, 15 goals; next: export R3L_WEBSHOP=" in text


@pytest.mark.parametrize(
    ("which", "spoil", "message"),
    [
        (0, lambda path: path.unlink(), "cannot be read"),
        (0, lambda path: path.write_text(path.read_text()[:20_000]), "is cut off or damaged after"),
        (
            1,
            lambda path: path.write_text('{"B0000": []}'),
            "asin B0000 has [], not a dict; see docs/environments.md",
        ),
        (
            2,
            lambda path: path.write_text('{"B0000": [{}]}'),
            "entry 0: key 'instruction_attributes' is missing",
        ),
        (1, lambda path: path.write_text('{"B0000": {"attributes": [3]}}'), "an entry of attributes is 3"),
    ],
)
def test_bad_files_are_named_and_nothing_is_left(monkeypatch, capsys, files, tmp_path, which, spoil, message):
    spoil(files[which])
    before = sorted(tmp_path.iterdir())
    code, text, err = run(monkeypatch, capsys, *command(files, tmp_path / "shop"))
    assert (code, text) == (2, "") and err.startswith("error: ") and len(err.splitlines()) == 1
    assert message in err and files[which].name in err
    assert sorted(tmp_path.iterdir()) == before


def test_a_killed_builder_leaves_nothing_that_is_opened_or_in_the_way(monkeypatch, capsys, files, tmp_path):
    os.mkfifo(tmp_path / "endless.json")  # a builder that reads from here is in the middle of its work
    out, (items, *_) = tmp_path / "shop", files
    builder = program(command([tmp_path / "endless.json", *files[1:]], out))
    with (tmp_path / "endless.json").open("w") as pipe:
        pipe.write(items.read_text()[:-200])
        pipe.flush()
        _wait_for(lambda: list(tmp_path.glob(".shop.*.tmp/shop.db")))
        code, _, err = run(monkeypatch, capsys, *command(files, out))
        assert code == 2 and "shop is in use by another process" in err
        builder.send_signal(signal.SIGKILL)
        builder.communicate()
    assert not out.exists() and list(tmp_path.glob(".shop.*.tmp"))
    code, _, _ = run(monkeypatch, capsys, *command(files, out))
    assert code == 0 and Catalogue(out).meta.products == 60
    assert not list(tmp_path.glob(".shop*"))


def _wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
