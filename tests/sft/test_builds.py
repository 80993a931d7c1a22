"""A build is cut into phases and can be taken up after any of them; finished models and their folders."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from program import run
from safetensors.torch import load_file
from sft_phases import phase

from r3l import config
from r3l.config import resolve
from r3l.config import sft_recipe as recipes
from r3l.core.errors import ConfigError, DataError, RunDirectoryError
from r3l.files import paths
from r3l.files.digests import write_digests
from r3l.files.json_files import read_json
from r3l.files.locks import locked
from r3l.files.paths import ROOT, STORED_MODELS
from r3l.files.writing import write_json_atomic
from r3l.local.training.trainer import Trainer
from r3l.sft import training
from r3l.sft.checkpoint import finished_model
from r3l.sft.training import build, fit

# Builds a recipe of two phases, then kills a build before each of its writes in turn, and resumes it (once from
# what several kills leave alike).
KILLED = """
import shutil, sys
from pathlib import Path
from kills import deaths
from transformers import AutoModelForCausalLM, AutoTokenizer  # once, not in each child
from r3l.files.cleanup import remove_unfinished
from r3l.files.digests import SUMS
from r3l.config import sft_recipe as recipes
from r3l.sft import training
from r3l.sft.training import build

recipes.CONFIGS = Path(sys.argv[1])
training.SAVE_EVERY = 0  # an adapter has checkpoints before each step, too
top = recipes.CONFIGS / "top"
out, phases = top / "h", top / ".h.phases"
whole = build("tiny", out, workers=0)

def digests():
    # Not of sft.json, which names the commit: somebody may commit while this runs.
    return [line for line in (out / SUMS).read_text().splitlines() if not line.endswith("sft.json")]

expected = digests()

def fresh():
    shutil.rmtree(top)
    top.mkdir()

finished, resumed = [], []
for number in deaths(lambda: build("tiny", out, workers=0), top, fresh):
    remove_unfinished(top, phases)
    left = sorted(str(path.relative_to(top)) for path in top.rglob("*"))
    finished.append(2 if out.is_dir() else len(list(phases.glob("step-*"))))
    if out.is_dir():  # killed while it tidied up
        assert digests() == expected, number
    elif left not in resumed:
        resumed.append(left)
        made = build("tiny", out, workers=0)
        assert digests() == expected, number
        assert (made["loss"], made["examples"]) == (whole["loss"], whole["examples"]), number
        assert [path.name for path in top.iterdir()] == ["h"], number
assert finished == sorted(finished) and {*finished} == {0, 1, 2} and len(finished) > 20, finished
"""


@pytest.mark.parametrize(
    "kind", ["adapter", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("new", "bfloat16"))]
)
def test_a_build_killed_at_any_write_ends_in_the_same_bytes(recipe, tmp_path, kind):
    """And no finished phase is lost. A new model; the adapter of a known one; all weights of a known one."""
    known = {"model": "math-1.5m", "optimizer": "adamw"}
    settings = {
        "new": {},
        "adapter": known | {"lora": {"rank": 2, "alpha": 4}, "compute_dtype": "bfloat16"},
        "bfloat16": known | {"compute_dtype": "bfloat16_anywhere"},
    }
    recipe(*({**phase(first, 1e-3), "tasks": 2, "steps": 1} for first in (0, 2)), **settings[kind])
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


class Killed(BaseException):
    pass


@pytest.fixture
def cut(monkeypatch):
    """Ends a build after a number of phases."""

    def after(number):
        fit, left = training.fit, number

        def counted(*arguments):
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return fit(*arguments)

        monkeypatch.setattr(training, "fit", counted)

    return after


def test_an_adapter_goes_on_within_a_phase_without_playing_it_again(recipe, tmp_path, monkeypatch, caplog):
    """Two phases, of two and three steps, killed in the last step."""
    recipe(
        phase(0, 1e-2),
        {**phase(16, 5e-3), "steps": 3},
        model="math-1.5m",
        optimizer="adamw",
        lora={"rank": 2},
    )
    whole = build("tiny", tmp_path / "whole", workers=0)
    monkeypatch.setattr(training, "SAVE_EVERY", 0.0)
    step, done = Trainer.step, 0

    def counted(*arguments, **options):
        nonlocal done
        if done == 4:
            raise Killed
        done += 1
        return step(*arguments, **options)

    monkeypatch.setattr(Trainer, "step", counted)
    with pytest.raises(Killed):
        build("tiny", tmp_path / "h", workers=0)
    assert sorted(path.name for path in (tmp_path / ".h.phases").iterdir()) == ["step-000002", "unfinished"]
    shutil.copytree(tmp_path / ".h.phases", tmp_path / ".edited.phases")
    done = 3
    monkeypatch.delattr(training, "_played")
    resumed = build("tiny", tmp_path / "h", workers=0)
    assert done == 4  # the last of five steps alone
    assert (resumed["examples"], resumed["loss"]) == (whole["examples"], whole["loss"])
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "h"))
    assert one == other

    # With another second phase it begins again there, not with the first.
    monkeypatch.undo()
    monkeypatch.setattr(recipes, "CONFIGS", tmp_path)
    edited = phase(0, 1e-2), {**phase(16, 4e-3), "steps": 3}
    recipe(*edited, model="math-1.5m", optimizer="adamw", lora={"rank": 2})
    made = build("tiny", tmp_path / "edited", workers=0)
    assert made["examples"] == whole["examples"] and made["loss"][0] == whole["loss"][0]
    assert made["loss"][1] != whole["loss"][1]
    assert "unfinished is of another configuration: phase 2 is played and trained again" in caplog.text


def test_finished_phases_are_taken_up_by_their_own_recipe_alone(recipe, cut, tmp_path, monkeypatch):
    """In a folder named without a slash, too. A model is sharpened once, after its last phase."""
    monkeypatch.chdir(tmp_path)
    both, out = (phase(0, 1e-3), phase(16, 5e-4)), Path("h")
    recipe(*both)
    build("tiny", Path("whole"), workers=0)
    with pytest.raises(Killed):
        cut(1)
        build("tiny", out, workers=0)
    assert not out.exists()
    monkeypatch.setattr(training, "fit", fit)
    for others in ((phase(0, 2e-3), both[1]), both[:1]):
        recipe(*others)
        with pytest.raises(DataError, match="1 finished phases of h are of another configuration"):
            build("tiny", out, workers=0)
    recipe(*both, sharpness=2, sources={"*": "another reason"})
    (last,) = Path(".h.phases").iterdir()
    record = read_json(last / "phase.json")
    del record["config"]["plan_thoughts"]  # a key that is newer than the phase
    write_json_atomic(last / "phase.json", record)
    write_digests(last)
    build("tiny", out, workers=0)
    whole, sharp = (load_file(Path(name) / "model.safetensors") for name in ("whole", "h"))
    assert torch.equal(sharp.pop("model.norm.weight"), 2 * whole.pop("model.norm.weight"))
    assert all(torch.equal(sharp[name], whole[name]) for name in whole)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (out / name).read_bytes() == (Path("whole") / name).read_bytes()


def test_a_finished_model_is_not_built_again(recipe, tmp_path, monkeypatch, capsys):
    recipe(phase(0, 1e-3))
    out = tmp_path / "h"
    words = ("sft", "tiny", "--out", str(out), "--workers", "0")
    assert run(monkeypatch, capsys, *words)[0] == 0
    made = (out / "sft.json").read_bytes(), (out / "model.safetensors").stat().st_mtime_ns
    code, printed, stderr = run(monkeypatch, capsys, *words)
    assert (code, printed.split()[1:]) == (0, ["parameters", "in", str(out)])
    assert f"{out} already holds the model of this recipe" in stderr
    assert made == ((out / "sft.json").read_bytes(), (out / "model.safetensors").stat().st_mtime_ns)

    recipe(phase(0, 2e-3))
    code, _, stderr = run(monkeypatch, capsys, *words)
    assert code == 2 and "holds another model" in stderr

    recipe(phase(0, 1e-3))
    (out / "tokenizer.json").write_bytes(b"{}")
    code, _, stderr = run(monkeypatch, capsys, *words)
    assert code == 2 and "it is damaged (tokenizer.json)" in " ".join(stderr.split())


@pytest.mark.parametrize("name", sorted(path.name for path in STORED_MODELS.iterdir()))
def test_a_stored_model_is_the_finished_one_of_its_recipe(tmp_path, name):
    """The recipe may have other reasons (``sources``) by now, and keys that are newer than the model."""
    out = tmp_path / name
    shutil.copytree(STORED_MODELS / name, out)
    made = finished_model(recipes.load_config(name), out)
    assert made == read_json(out / "sft.json")


def test_another_model_is_refused_with_the_keys_that_differ(recipe, tmp_path):
    """A recipe that this version of r3l cannot read is another one, too."""
    recipe(phase(0, 1e-3))
    out = tmp_path / "h"
    build("tiny", out, workers=0)
    recipe(phase(0, 1e-3), seed=7, plan_thoughts=True)
    with pytest.raises(
        DataError, match=r"h holds another model \(its recipe differs in seed, plan_thoughts\)"
    ):
        build("tiny", out, workers=0)
    recipe(phase(0, 1e-3))
    made = read_json(out / "sft.json")
    write_json_atomic(out / "sft.json", made | {"config": made["config"] | {"dropout": 0.1}})
    with pytest.raises(DataError, match=r"its recipe differs in dropout"):
        build("tiny", out, workers=0)
    (out / "sft.json").unlink()
    with pytest.raises(DataError, match=r"h holds another model \(it has no sft.json\); move it away"):
        build("tiny", out, workers=0)


@pytest.mark.parametrize("place", [".", "../link"])
def test_a_folder_may_be_the_present_one_or_a_link(recipe, tmp_path, monkeypatch, capsys, place):
    recipe(phase(0, 1e-3))
    (tmp_path / "h").mkdir()
    (tmp_path / "link").symlink_to("h")
    monkeypatch.chdir(tmp_path / "h")
    code, _, stderr = run(monkeypatch, capsys, "sft", "tiny", "--out", place, "--workers", "0")
    assert code == 0, stderr
    assert (tmp_path / "h" / "sft.json").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h", "link", "sft"]


def test_two_builds_do_not_share_a_folder(recipe, tmp_path):
    recipe(phase(0, 1e-3))
    refused = pytest.raises(RunDirectoryError, match="h is in use by another process")
    with locked(tmp_path / "h"), refused:
        build("tiny", tmp_path / "h", workers=0)


def test_a_build_removes_what_its_killed_process_was_writing_alone(recipe, tmp_path):
    recipe(phase(0, 1e-3))
    child = subprocess.Popen(["true"])
    child.wait()
    phases = tmp_path / ".h.phases"
    left = tmp_path / f".h.{child.pid}.7.tmp", phases / f".step-000002.{child.pid}.7.tmp"
    another = tmp_path / f".other.{child.pid}.7.tmp"  # of a build on another machine that shares the folder
    for folder in (*left, another):
        folder.mkdir(parents=True)
    build("tiny", tmp_path / "h", workers=0)
    assert another.is_dir() and not any(folder.exists() for folder in left)


def test_a_full_disk_is_one_paragraph_and_keeps_the_finished_phases(recipe, cut, tmp_path, monkeypatch):
    """A limit on the size of a file stands in for the disk: the write fails in the same place."""
    recipe(phase(0, 1e-3), phase(16, 5e-4))
    with pytest.raises(Killed):
        cut(1)
        build("tiny", tmp_path / "h", workers=0)
    monkeypatch.setattr(training, "fit", fit)
    before = sorted(tmp_path.rglob("*"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, limits[1]))
    try:
        with pytest.raises(RunDirectoryError, match=r"/h cannot be written \(.*re-run to resume") as refused:
            build("tiny", tmp_path / "h", workers=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(refused.value) and sorted(tmp_path.rglob("*")) == before
    assert len(build("tiny", tmp_path / "h", workers=0)["loss"]) == 2


def test_a_model_of_elsewhere_is_taught_and_runs_start_from_it(recipe, tmp_path, monkeypatch):
    """The stored nano model stands in for a published one; SFT examples over the limit are counted."""
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    recipe(phase(0, 1e-3))
    path = tmp_path / "sft" / "tiny.yaml"
    path.write_text(
        yaml.safe_dump({**yaml.safe_load(path.read_text()), "model": "math-1.5m", "max_tokens": 70})
    )
    target = recipes.default_folder("tiny")
    assert target == tmp_path / "cache" / "models" / "math-1.5m-tiny"
    run = resolve("nano", "math", "grpo", 0)
    staged = run.model_copy(update={"env_settings": run.env_settings.model_copy(update={"sft": "tiny"})})
    for name in ("envs", "models"):
        (tmp_path / name).symlink_to(paths.CONFIGS / name)
    monkeypatch.setattr(paths, "CONFIGS", tmp_path)
    assert config.base_checkpoint_of(run) == run.model
    with pytest.raises(ConfigError, match="make it with r3l sft tiny --model math-1.5m"):
        config.base_checkpoint_of(staged)
    manifest = build("tiny", target, workers=0)
    assert config.base_checkpoint_of(staged) == str(target)
    assert manifest["examples"][0]["too_long"] > 0
    start, taught = (
        load_file(folder / "model.safetensors") for folder in (STORED_MODELS / "math-1.5m", target)
    )
    assert any(not torch.equal(start[name], taught[name]) for name in start)
    fingerprints = {run.fingerprint(), staged.fingerprint()}
    text = path.read_text()
    path.write_text(text.replace("tokens_per_step: 300", "tokens_per_step: 301"))
    assert len(fingerprints | {staged.fingerprint()}) == 3  # another recipe, another run
    refused = rf"{target}/sft.json: .* differs from configs/sft/tiny.yaml in tokens_per_step"
    with pytest.raises(ConfigError, match=refused) as error:
        config.base_checkpoint_of(staged)
    assert "\n" not in str(error.value) and "r3l sft tiny --model math-1.5m" in str(error.value)
    values = yaml.safe_load(text)
    path.write_text(yaml.safe_dump({**values, "sources": {"*": "another reason"}, "plan_thoughts": False}))
    assert config.base_checkpoint_of(staged) == str(target)


def test_a_model_whose_base_was_replaced_is_not_the_one_of_its_recipe(recipe, cut, tmp_path, monkeypatch):
    """Finished or not. A base that is gone, or was not recorded by an earlier r3l, is not compared."""
    base, out = tmp_path / "base", tmp_path / "h"
    shutil.copytree(STORED_MODELS / "math-1.5m", base)
    recipe({**phase(0, 1e-3), "tasks": 2}, {**phase(2, 1e-3), "tasks": 2}, model=str(base))
    with pytest.raises(Killed):
        cut(1)
        build("tiny", out, workers=0)
    monkeypatch.setattr(training, "fit", fit)
    changed = {"max_new_tokens": 3}
    before = read_json(base / "generation_config.json")
    replaced = pytest.raises(
        DataError, match="h(.phases)? was started from .*/base with the digest .*, which"
    )

    write_json_atomic(base / "generation_config.json", changed)
    with replaced:
        build("tiny", out, workers=0)
    write_json_atomic(base / "generation_config.json", before)
    write_digests(base)
    made = build("tiny", out, workers=0)
    assert made["base_digest"] == config.model_identity(str(base))["sha256"]
    write_json_atomic(base / "generation_config.json", changed)
    with replaced:
        build("tiny", out, workers=0)

    shutil.rmtree(base)
    assert build("tiny", out, workers=0) == made
    shutil.copytree(STORED_MODELS / "puzzles-1.5m", base)
    earlier = {key: value for key, value in made.items() if key != "base_digest"}
    write_json_atomic(out / "sft.json", earlier)
    write_digests(out)
    assert build("tiny", out, workers=0) == earlier


def test_a_model_whose_environment_has_changed_is_not_the_one_of_its_recipe(
    recipe, cut, tmp_path, monkeypatch
):
    """Finished or not. Builds by an earlier r3l, which recorded no inputs, are not compared."""
    out = tmp_path / "h"
    recipe({**phase(0, 1e-3), "tasks": 2}, {**phase(2, 1e-3), "tasks": 2})
    package = config.environment_of("math")
    version = package.version
    with pytest.raises(Killed):
        cut(1)
        build("tiny", out, workers=0)
    monkeypatch.setattr(training, "fit", fit)
    changed = pytest.raises(
        DataError,
        match=rf"h(.phases)? was made with environment.version {version}, which is {version + 1} now",
    )

    monkeypatch.setattr(type(package), "version", version + 1)
    with changed:
        build("tiny", out, workers=0)
    monkeypatch.setattr(type(package), "version", version)
    made = build("tiny", out, workers=0)
    assert made["inputs"]["environment"]["version"] == version
    monkeypatch.setattr(type(package), "version", version + 1)
    with changed:
        build("tiny", out, workers=0)

    earlier = {key: value for key, value in made.items() if key != "inputs"}
    write_json_atomic(out / "sft.json", earlier)
    write_digests(out)
    assert build("tiny", out, workers=0) == earlier
