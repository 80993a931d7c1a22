"""Runs with real Ray and Trinity: equal the local engine's, survive a crash, leave no process behind."""

import json
import os
import signal
from pathlib import Path

import psutil
import pytest
from chat_server import serving
from nano_server import NanoServer
from start_models import START_MODEL
from trinity_runs import assert_same_steps, family, finish, largest_difference, start, wait_for_step

from r3l.files.json_files import read_jsonl
from r3l.files.paths import ROOT
from r3l.runs.preemption import EXIT_CODE

PYTHON = Path(os.environ.get("R3L_TRINITY", ROOT / ".venv-trinity")) / "bin" / "python"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.is_file(), reason=f"no Trinity: {PYTHON} does not exist (make trinity)"),
]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("local")
    code, errors = finish(start("local", 4, run_dir))
    assert code == 0, errors
    return run_dir


def test_a_run_that_loses_its_trainer_goes_on_and_equals_the_local_one(local, tmp_path):
    process = start("trinity", 4, tmp_path)
    wait_for_step(tmp_path, 2, process)
    started = family(process)
    (trainer,) = [p for p in started if any(word.startswith("ray::Trainer") for word in p.cmdline())]
    trainer.send_signal(signal.SIGKILL)
    code, errors = finish(process)
    assert code != 0 and "Trinity failed after" in errors and "The end of" in errors
    assert not (tmp_path / "result.json").exists()
    assert not [p for p in started if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    code, errors = finish(start("trinity", 4, tmp_path))
    assert code == 0, errors
    assert [row["step"] for row in read_jsonl(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4]
    assert_same_steps(local, tmp_path)
    results = [json.loads((folder / "result.json").read_text()) for folder in (local, tmp_path)]
    assert results[0]["final"] == pytest.approx(results[1]["final"])
    weights = [(folder / results[0]["checkpoint"] / "model.safetensors") for folder in (local, tmp_path)]
    assert weights[1].is_file() and (tmp_path / "trajectories.jsonl.gz").is_file()
    # AdamW divides a gradient by its size, so rounding of a small gradient may change a weight by a step.
    assert largest_difference(*weights) < 1e-4


def test_an_adapter_trains_as_in_the_local_engine(tmp_path):
    for engine in ("local", "trinity"):
        code, errors = finish(start(engine, 2, tmp_path / engine, settings=("lora.rank=4",)))
        assert code == 0, errors
    assert_same_steps(tmp_path / "local", tmp_path / "trinity")
    last = [tmp_path / engine / "checkpoints/step-000002" for engine in ("local", "trinity")]
    assert largest_difference(*(folder / "adapter_model.safetensors" for folder in last)) < 1e-4
    assert (last[0] / "adapter_config.json").read_bytes() == (last[1] / "adapter_config.json").read_bytes()


def test_trinitys_runners_call_a_judge_as_the_local_engine_does(tmp_path):
    """The judge is a base checkpoint behind a real HTTP server, greedy: same critiques, counts, losses."""
    settings = (f"judge.model={START_MODEL}", "judge.prompts=as_policy", "judge.temperature=0")
    with serving(NanoServer().answer) as (url, seen):
        for engine in ("local", "trinity"):
            judged = start(engine, 2, tmp_path / engine, "rltf_sd@feedback=judge", settings, R3L_JUDGE=url)
            code, errors = finish(judged)
            assert code == 0, errors
    assert_same_steps(tmp_path / "local", tmp_path / "trinity")
    requests = sum(row["judge/requests"] for row in read_jsonl(tmp_path / "trinity" / "metrics.jsonl"))
    assert requests == len(seen) / 2 > 0
    # The address belongs to the machine, not to the run, so no file of the run contains it.
    left = [path for path in (tmp_path / "trinity").rglob("*") if path.is_file()]
    assert not [path for path in left if url.encode() in path.read_bytes()]


def test_sigterm_leaves_no_process(tmp_path):
    process = start("trinity", 4, tmp_path)
    wait_for_step(tmp_path, 1, process)
    started = family(process)
    assert len(started) > 5
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == EXIT_CODE
    assert not [p for p in started if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
