"""The archive of stored runs: what an installed package unpacks, and what it says where there is none."""

import hashlib
import json
import os
import resource
import socketserver
import threading
import time
import zipfile
from contextlib import suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from program import run

from r3l.core.errors import DataError, RunDirectoryError
from r3l.evaluation import stored_runs

RUN = "nano/math/model/grpo/seed0/evaluation.json"


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """As in an installed wheel, with a cache of its own; the cache."""
    monkeypatch.setattr(stored_runs, "is_checkout", lambda: False)
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def archive(path, content):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in content.items():
            file.writestr(name, text)
    return path


def test_it_is_unpacked_in_place_of_an_older_one(installed, tmp_path):
    top = stored_runs.TOP
    for text in ("old", "new"):
        file = archive(tmp_path / f"{text}.zip", {f"{top}/{RUN}": text, f"{top}/{text}.json": ""})
        assert stored_runs.fetch(str(file)) == stored_runs.stored_runs()
    folder = stored_runs.stored_runs()
    assert folder.is_relative_to(installed) and (folder / RUN).read_text() == "new"
    assert sorted(path.name for path in folder.iterdir()) == ["nano", "new.json"]
    assert list(folder.parent.iterdir()) == [folder]


@pytest.fixture
def address(tmp_path):
    """Of a server of the files in ``tmp_path``."""

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(tmp_path))

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_it_comes_from_a_url(installed, tmp_path, address):
    archive(tmp_path / "runs.zip", {f"{stored_runs.TOP}/{RUN}": "1"})
    assert (stored_runs.fetch(f"{address}/runs.zip") / RUN).read_text() == "1"
    assert stored_runs.fetch(f"{address}/runs.zip".replace("http", "HTTP")) == stored_runs.folder()
    with pytest.raises(DataError, match="404"):
        stored_runs.fetch(f"{address}/none.zip")


def test_a_download_is_bounded_in_size_and_time(installed, monkeypatch, tmp_path, address):
    archive(tmp_path / "runs.zip", {f"{stored_runs.TOP}/{RUN}": "1"})
    for bound, value, message in (("LARGEST", 99, "larger than 0 MiB"), ("SECONDS", -1.0, "longer than")):
        with monkeypatch.context() as bounded:
            bounded.setattr(stored_runs, bound, value)
            with pytest.raises(DataError, match=message):
                stored_runs.fetch(f"{address}/runs.zip")
    with pytest.raises(DataError, match="cannot be fetched"):
        stored_runs.fetch("http://[::1/runs.zip")
    assert not stored_runs.folder().exists()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n",  # the body is slow
        b"HTTP/1.1 200 OK\r\nServer: ",  # a header is
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x00",
    ],
    ids=["body", "header", "nothing unpacked"],  # the last one: a name in gzip's header that does not end
)
def test_a_server_that_sends_a_byte_at_a_time_is_left_at_the_deadline(installed, monkeypatch, answer):
    import httpx2  # noqa: F401, its import is not part of the download

    monkeypatch.setattr(stored_runs, "SECONDS", 1.0)

    class Slow(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(65536)
            with suppress(OSError):  # the client has left
                self.request.sendall(answer)
                for _ in range(100):  # twenty seconds, never as long as a read may wait
                    time.sleep(0.2)
                    self.request.sendall(b"x")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        began = time.monotonic()
        with pytest.raises(DataError, match="it takes longer than"):
            stored_runs.fetch(f"http://127.0.0.1:{server.server_address[1]}/runs.zip")
        assert time.monotonic() - began < 15
        server.shutdown()
    assert not list(stored_runs.folder().parent.iterdir())


def test_what_may_never_end_is_no_archive(installed, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", tmp_path / "pipe", tmp_path):
        with pytest.raises(DataError, match=f"{path} is no regular file"):
            stored_runs.fetch(str(path))


def test_by_default_it_is_the_one_of_the_release_by_its_digest(installed, monkeypatch, tmp_path, address):
    release = tmp_path / "release.json"
    monkeypatch.setattr(stored_runs, "RELEASE", release)
    with pytest.raises(DataError, match="names no address"):
        stored_runs.fetch()
    made = archive(tmp_path / "runs.zip", {f"{stored_runs.TOP}/{RUN}": "1"})
    sha256 = hashlib.sha256(made.read_bytes()).hexdigest()
    release.write_text(json.dumps({"address": f"{address}/runs.zip", "sha256": sha256}))
    assert (stored_runs.fetch() / RUN).read_text() == "1"
    archive(made, {f"{stored_runs.TOP}/{RUN}": "another"})
    with pytest.raises(DataError, match=f"not {sha256[:12]} as when this wheel was made"):
        stored_runs.fetch()
    assert (stored_runs.stored_runs() / RUN).read_text() == "1"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.zip", "there is no file"),
        ("above.zip", "holds ../a.json, not the folder"),
        ("bomb.zip", "unpacks to far more than its size"),
        ("hole.zip", "unpacks to far more than its size"),
        ("many.zip", "holds 101 files, more than 100"),
        ("no_runs.zip", "holds no runs"),
        ("broken.zip", "is not a complete zip archive"),
    ],
)
def test_another_file_is_refused(installed, monkeypatch, tmp_path, name, message):
    whole = archive(tmp_path / "whole.zip", {f"{stored_runs.TOP}/{RUN}": "before"})
    contents = {"above.zip": {"../a.json": ""}}
    contents["no_runs.zip"] = {f"{stored_runs.TOP}/a.json": ""}
    contents["bomb.zip"] = contents["hole.zip"] = {f"{stored_runs.TOP}/a.json": bytes(100 << 20)}
    contents["many.zip"] = {f"{stored_runs.TOP}/{number}.json": "" for number in range(101)}
    monkeypatch.setattr(stored_runs, "FILES", 100)
    if name == "broken.zip":
        content = bytearray(whole.read_bytes())
        content[30 + len(f"{stored_runs.TOP}/{RUN}")] ^= (
            255  # behind the first header, which ends with a name
        )
        (tmp_path / name).write_bytes(content)
    elif name in contents:
        archive(tmp_path / name, contents[name])
    if name == "hole.zip":  # a bomb behind a gigabyte that takes no room on the disk
        bomb = (tmp_path / name).read_bytes()
        with (tmp_path / name).open("wb") as file:
            file.seek(1 << 30)
            file.write(bomb)
    stored_runs.fetch(str(whole))
    with pytest.raises(DataError, match=message):
        stored_runs.fetch(str(tmp_path / name))
    assert (stored_runs.folder() / RUN).read_text() == "before"  # what was there stays


def test_a_full_disk_is_no_damaged_archive(installed, tmp_path):
    """A limit on the size of a file stands in for the disk."""
    made = archive(tmp_path / "runs.zip", {f"{stored_runs.TOP}/{RUN}": "1" * 99_999})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, limits[1]))
    try:
        with pytest.raises(RunDirectoryError, match=r"cannot be written \(.*free the disk"):
            stored_runs.fetch(str(made))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not stored_runs.folder().exists()
    stored_runs.fetch(str(made))


@pytest.mark.parametrize("words", [["verify"], ["compare", "power", "r3l"], ["compare", "raft", "--offline"]])
def test_without_it_verbs_say_where_to_get_it(installed, monkeypatch, capsys, words):
    code, _, stderr = run(monkeypatch, capsys, *words)
    assert code == 2 and len(stderr.splitlines()) == 1
    assert f"Get them: r3l stored fetch {stored_runs.ARCHIVE}" in stderr
