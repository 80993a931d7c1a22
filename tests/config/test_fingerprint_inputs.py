"""The fingerprint covers what decides a result, weights and data behind their names too, and nothing else."""

import os
import shutil
import subprocess
import sys

import pytest
from r3l.envs.alfworld.engine import games
from r3l.envs.registry import find_environment
from start_models import START_FOLDER, START_MODEL

from r3l.config import find_model, fingerprint_inputs, locate, resolve, sft_folder
from r3l.config import run as run_module
from r3l.config.files import own_folders
from r3l.config.fingerprint_inputs import model_identity
from r3l.core.errors import ConfigError, DataError
from r3l.feedback import prompt_templates
from r3l.files.json_files import read_json
from r3l.files.paths import STORED, cache_folder
from r3l.runs.manifest import manifest, run_of
from r3l.runs.run_paths import find_runs
from r3l.workflow import plan

OWN = {"train.lr=1e-3", "method_settings.alpha=2", "threads=7", "compute=transformers", "evaluation.batch=7"}
OTHERS = ["workers=7", "train.save_every=1", "judge.model=a", "env_settings.validation_task_set=small/train"]


def fingerprint(*overrides, seed=0, model=None):
    return resolve("nano", "alfworld", "r3l", seed, model, list(overrides)).fingerprint()


def test_settings_that_decide_a_result_and_no_others():
    assert {fingerprint(change) for change in OTHERS} == {fingerprint()}
    prints = {fingerprint(), fingerprint(seed=1), *map(fingerprint, OWN)}
    assert len(prints) == len(OWN) + 2


@pytest.mark.parametrize("env", ["alfworld", "scienceworld", "webshop"])
def test_the_texts_of_full_prompts_decide_a_result_and_not_one_with_compact_prompts(
    monkeypatch, tmp_path, env
):
    package = find_environment(env)

    def fingerprints():
        return [
            resolve("nano", env, "grpo", 0, None, [f"prompts={style}"]).fingerprint()
            for style in ("full", "compact")
        ]

    full, compact = fingerprints()
    texts = {name: shutil.copy(path, tmp_path / name) for name, path in package.prompt_texts().items()}
    monkeypatch.setattr(type(package), "prompt_texts", lambda self: texts)
    assert "system.txt" in texts and fingerprints() == [full, compact]
    with texts["system.txt"].open("a") as file:
        file.write("Hurry.")
    assert fingerprints()[0] != full and fingerprints()[1] == compact


def test_an_edited_text_of_reflections_or_retries_decides_a_result(monkeypatch, tmp_path, request):
    """The texts of stored runs change no fingerprint: they were in none when those runs were made."""
    texts = tmp_path / "prompts"
    shutil.copytree(prompt_templates.PROMPTS, texts)
    monkeypatch.setattr(prompt_templates, "PROMPTS", texts)
    before = fingerprint()
    with (texts / "reflection_compact.txt").open("a") as file:
        file.write("Hurry.")
    fingerprint_inputs.edited_texts.cache_clear()  # as in another process
    request.addfinalizer(fingerprint_inputs.edited_texts.cache_clear)
    run = resolve("nano", "alfworld", "r3l", 0)
    assert run.fingerprint() != before
    digest = subprocess.run(["sha256sum", texts / "reflection_compact.txt"], capture_output=True, text=True)
    assert run.inputs()["edited_texts"] == {"reflection_compact": digest.stdout.split()[0]}


def test_what_a_models_file_says_of_its_weights_decides_a_result_on_a_cluster(monkeypatch):
    """The type and the thoughts of a model are settings of Trinity alone; the local engine reads neither."""

    def fingerprints():
        return [
            resolve(tier, "alfworld", "grpo", 0, "qwen2.5-1.5b").fingerprint() for tier in ("paper", "smol")
        ]

    paper, local = fingerprints()
    changed = find_model("qwen2.5-1.5b").model_copy(update={"dtype": "float32"})
    monkeypatch.setattr(run_module, "find_model", lambda name: changed)
    assert fingerprints()[0] != paper and fingerprints()[1] == local
    changed = changed.model_copy(update={"dtype": "bfloat16", "thinking": True})
    assert fingerprints()[0] != paper and fingerprints()[1] == local


def test_a_device_that_is_named_decides_a_result():
    """A GPU rounds otherwise than a CPU. By default the machine decides, and the manifest names it."""
    automatic, cpu, gpu = (fingerprint(f"device={name}") for name in ("auto", "cpu", "cuda"))
    assert automatic == fingerprint() and len({automatic, cpu, gpu}) == 3


@pytest.fixture
def copies(tmp_path):
    """Two folders of one name with the base checkpoint of ALFWorld."""
    return [shutil.copytree(START_FOLDER, tmp_path / place / "mine") for place in "ab"]


def test_a_model_is_known_by_its_files(copies):
    """In any folder: by weights, template and generation settings, not by notes next to them."""
    first, second = (str(folder) for folder in copies)
    base = fingerprint()
    assert base == fingerprint(model=START_MODEL) == fingerprint(model=first)  # no rate is tuned from it
    (copies[0] / "README.md").write_text("notes")
    (copies[0] / "sft.json").write_text("{}")
    (copies[0] / "tokenizer_old").mkdir()
    assert model_identity(first) == model_identity(second)
    for name in ("model.safetensors", "chat_template.jinja", "generation_config.json"):
        before = model_identity(second)
        with (copies[1] / name).open("ab") as file:
            file.write(b" ")
        assert model_identity(second) != before, name
    assert fingerprint(model=first) != fingerprint(model=second)


def test_models_of_one_name_have_places_of_their_own(copies, monkeypatch):
    """Folders, hub ids, and what lies at a path today; a named base checkpoint is its name's."""

    def place(model):
        return resolve("nano", "alfworld", "r3l", 0, model).cell

    def grid(*models):
        config = plan.load(plan.workflow_content() | {"models": list(map(str, models)), "seeds": [0, 1]})
        return list(plan.grid(config, ["alfworld"], ["grpo"], config.models))

    assert place(START_MODEL) == f"nano/alfworld/{START_MODEL}/r3l" and place("org1/Name") != place(
        "org2/Name"
    )
    with pytest.raises(ConfigError, match=r"a/mine and .*b/mine have the same weights"):
        grid(*copies)
    weights, earlier = copies[1] / "model.safetensors", place(str(copies[1]))
    stat, changed = weights.stat(), bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # new weights of the old size and time
    assert earlier == place(str(copies[0])) != place(str(copies[1]))
    assert len(grid(*copies)) == 4
    monkeypatch.chdir(copies[1].parent)
    assert place("mine") == place("./mine/") == place(str(copies[1]))
    monkeypatch.chdir(copies[1])
    assert place(".") == place("../mine/../mine") == place(str(copies[1]))
    assert sft_folder(str(copies[0]), "smol") != sft_folder(str(copies[1]), "smol")


def test_a_model_of_the_hub_is_known_by_the_revision_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert model_identity("org1/Name") == {"name": "org1/Name", "revision": None}
    assert model_identity("smollm2-135m") == {"sha256": find_model("smollm2-135m").packaged.sha256}
    ref = tmp_path / "models--org1--Name" / "refs" / "main"
    ref.parent.mkdir(parents=True)
    ref.write_text("abc\n")
    assert (
        model_identity("org1/Name")["revision"] == "abc" and model_identity("org2/Name")["revision"] is None
    )


@pytest.mark.parametrize(
    ("variables", "hub"),
    [
        ({}, "home/.cache/huggingface/hub"),
        ({"XDG_CACHE_HOME": "$AT/xdg"}, "xdg/huggingface/hub"),
        ({"HF_HOME": "$AT/hf", "XDG_CACHE_HOME": "/no"}, "hf/hub"),
        ({"HF_HOME": "~/hf"}, "home/hf/hub"),
        ({"HF_HUB_CACHE": "$AT/hub", "HF_HOME": "/no"}, "hub"),
    ],
)
def test_the_revision_is_found_wherever_the_hub_keeps_its_models(tmp_path, variables, hub):
    ref = tmp_path / hub / "models--org1--Name" / "refs" / "main"
    ref.parent.mkdir(parents=True)
    ref.write_text("abc\n")
    command = (
        "from r3l.config.fingerprint_inputs import model_identity as m; print(m('org1/Name')['revision'])"
    )
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "XDG_"))}
    env = kept | {"AT": str(tmp_path), "HOME": str(tmp_path / "home")} | variables
    done = subprocess.run(
        [sys.executable, "-c", command], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "abc\n"


@pytest.mark.parametrize("folder", ["~/models", "$AT/models", "${AT}/models/"])
def test_the_folder_of_models_is_found_as_the_hub_finds_its_own(tmp_path, monkeypatch, folder):
    """A variable set in a file of a container or a cluster's job is not expanded by a shell."""
    hub = find_model("qwen2.5-1.5b").hub
    (tmp_path / "models" / hub.partition("/")[2]).mkdir(parents=True)
    for name, value in {"HOME": str(tmp_path), "AT": str(tmp_path), "R3L_MODELS": folder}.items():
        monkeypatch.setenv(name, value)
    assert locate("qwen2.5-1.5b") == str(tmp_path / "models" / hub.partition("/")[2])
    monkeypatch.setenv("R3L_CACHE", folder)
    assert cache_folder("x") == tmp_path / "models" / "x"
    monkeypatch.setenv("R3L_ENVS", folder)
    assert own_folders("envs") == [tmp_path / "models"]


def test_a_revision_that_a_killed_download_left_empty_is_none(tmp_path, monkeypatch):
    """None is downloaded before a run has a fingerprint; two revisions would share the empty one's."""
    monkeypatch.setattr(fingerprint_inputs.constants, "HF_HUB_CACHE", str(tmp_path))
    ref = tmp_path / "models--org1--Name" / "refs" / "main"
    ref.parent.mkdir(parents=True)
    ref.write_text("")
    assert model_identity("org1/Name") == {"name": "org1/Name", "revision": None}


def test_texts_and_graders_of_an_environment_are_inputs(monkeypatch):
    assert find_environment("scienceworld").inputs(["nano/test"]) == {"scienceworld": "1.2.3"}
    before = fingerprint()
    monkeypatch.setattr(games, "_digest_of_packaged", lambda name: "another grammar")
    assert fingerprint() != before
    math = resolve("nano", "math", "grpo", 0)
    before = math.fingerprint()
    monkeypatch.setattr(type(find_environment("math")), "version", 2)
    assert math.fingerprint() != before


def test_a_manifest_has_what_its_fingerprint_is_made_of():
    content = manifest(resolve("nano", "math", "grpo", 0))
    stored = find_runs(STORED)[0].parent
    assert run_of(stored).fingerprint(read_json(stored / "manifest.json")["inputs"]) == content_of(stored)
    assert set(content["inputs"]["task_sets"]) == {"chain/train", "chain/test"}


def content_of(run_dir):
    return read_json(run_dir / "manifest.json")["fingerprint"]


def test_a_run_of_an_earlier_version_is_named_as_such(tmp_path):
    (tmp_path / "manifest.json").write_text('{"run": {"forward": "packed"}, "fingerprint": "0"}')
    with pytest.raises(DataError, match="another version of r3l"):
        run_of(tmp_path)
