"""The archive of stored runs: what an installed package unpacks, and what it says where there is none."""

import subprocess
import sys
import threading
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from program import run

from r3l.core.errors import ConfigError, DataError
from r3l.evaluation import stored_runs
from r3l.files.paths import ROOT, STORED


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """As in an installed wheel, with a cache of its own; the cache."""
    monkeypatch.setattr(stored_runs, "is_checkout", lambda: False)
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def archive(path, content):
    with zipfile.ZipFile(path, "w") as file:
        for name, text in content.items():
            file.writestr(name, text)
    return path


def test_a_checkout_has_its_own(monkeypatch):
    assert stored_runs.stored_runs() == STORED
    with pytest.raises(ConfigError, match="has the stored runs already"):
        stored_runs.fetch("any.zip")


def test_it_is_unpacked_in_place_of_an_older_one(installed, tmp_path):
    top = stored_runs.TOP
    for text in ("old", "new"):
        file = archive(tmp_path / f"{text}.zip", {f"{top}/nano/run.json": text, f"{top}/{text}.json": ""})
        assert stored_runs.fetch(str(file)) == stored_runs.stored_runs()
    folder = stored_runs.stored_runs()
    assert folder.is_relative_to(installed) and (folder / "nano" / "run.json").read_text() == "new"
    assert sorted(path.name for path in folder.iterdir()) == ["nano", "new.json"]
    assert list(folder.parent.iterdir()) == [folder]


def test_it_comes_from_a_url(installed, tmp_path):
    archive(tmp_path / "runs.zip", {f"{stored_runs.TOP}/a.json": "1"})

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(tmp_path))

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        assert (stored_runs.fetch(f"{address}/runs.zip") / "a.json").read_text() == "1"
        with pytest.raises(DataError, match="404"):
            stored_runs.fetch(f"{address}/none.zip")
        server.shutdown()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.zip", "there is no file"),
        ("text.zip", "is not a whole zip archive"),
        ("other.zip", "holds r3l-stored-0.0.0/a.json, not the folder"),
        ("above.zip", "holds ../a.json, not the folder"),
        ("bomb.zip", "unpacks to far more than its size"),
    ],
)
def test_another_file_is_refused(installed, tmp_path, name, message):
    (tmp_path / "text.zip").write_text("no archive")
    archive(tmp_path / "other.zip", {"r3l-stored-0.0.0/a.json": ""})
    archive(tmp_path / "above.zip", {"../a.json": ""})
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(f"{stored_runs.TOP}/a.json", bytes(200 << 20))
    with pytest.raises(DataError, match=message):
        stored_runs.fetch(str(tmp_path / name))
    assert not stored_runs.folder().exists()


@pytest.mark.parametrize("words", [["verify"], ["compare", "r3l", "--power", "0.8"], ["compare", "raft", "--offline"]])
def test_without_it_verbs_say_where_to_get_it(installed, monkeypatch, capsys, words):
    code, _, stderr = run(monkeypatch, capsys, *words)
    assert code == 2 and len(stderr.splitlines()) == 1
    assert f"unpack it: r3l stored fetch {stored_runs.ARCHIVE}" in stderr


def test_verbs_that_only_learn_from_it_do_without(installed, monkeypatch, capsys):
    assert run(monkeypatch, capsys, "run", "--status", "--env", "math", "--seed", "0")[0] == 0


def test_the_version_of_the_archive_is_that_of_the_package():
    code = "import sys, r3l; print(r3l.__version__, 'importlib.metadata' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.split() == [stored_runs.TOP.removeprefix("r3l-stored-"), "False"]
