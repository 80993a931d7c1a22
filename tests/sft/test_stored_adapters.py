"""A model after SFT, made again from its stored adapter and the model that it adapts."""

import shutil

import pytest
from safetensors.torch import load_file, save_file
from sft_phases import phase
from typer.testing import CliRunner

from r3l.cli import app
from r3l.config import fingerprint_inputs
from r3l.core.errors import CheckpointError, ConfigError
from r3l.files.digests import SUMS
from r3l.local.model.lora import ADAPTER
from r3l.sft import download
from r3l.sft.training import build

NAME = "math-1.5m-tiny"


@pytest.fixture
def taught(recipe, tmp_path, monkeypatch):
    """The folder of a finished SFT whose adapter is stored, on a machine that does not have its result."""
    recipe(phase(0, 1e-2), model="math-1.5m", optimizer="adamw", lora={"rank": 2})
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "STORED_ADAPTERS", tmp_path / "adapters")
    build("tiny", tmp_path / "taught", workers=0)
    shutil.copytree(tmp_path / "taught" / "lora", tmp_path / "adapters" / NAME)
    shutil.copy(tmp_path / "taught" / "sft.json", tmp_path / "adapters" / NAME)
    return tmp_path / "taught"


def test_a_fetched_model_is_byte_for_byte_the_one_that_sft_made(taught, monkeypatch):
    manifest = download.fetch_taught(NAME)
    fetched = fingerprint_inputs.sft_folder("math-1.5m", "tiny")  # where runs look for it
    assert fetched.name == NAME
    assert (fetched / SUMS).read_bytes() == (taught / SUMS).read_bytes()
    assert (fetched / "lora" / ADAPTER).read_bytes() == (taught / "lora" / ADAPTER).read_bytes()
    assert fingerprint_inputs.model_digest(str(fetched)) == fingerprint_inputs.model_digest(str(taught))
    monkeypatch.delattr(download, "merge_adapter")  # what is there is not made again
    assert download.fetch_taught(NAME) == manifest


def test_an_adapter_that_merges_to_other_weights_is_refused(taught, tmp_path):
    file = tmp_path / "adapters" / NAME / ADAPTER
    tensors = load_file(file)
    save_file({name: 2 * tensor for name, tensor in tensors.items()}, file)
    with pytest.raises(
        CheckpointError, match="merge to other weights than its sft.json names: .* r3l sft tiny"
    ):
        download.fetch_taught(NAME)
    assert not [path for path in (tmp_path / "cache" / "models").iterdir() if path.name != f".{NAME}.lock"]


def test_the_command_lists_and_fetches_stored_adapters(taught):
    with pytest.raises(ConfigError, match=f"did you mean '{NAME}'.*; after SFT {NAME}"):
        download.fetch("math-1.5m-tini")
    run = CliRunner()
    assert "no GGUF file after SFT" in str(run.invoke(app, ["model", "fetch", NAME, "--keep-gguf"]).exception)
    result = run.invoke(app, ["model", "fetch", NAME])
    assert result.exit_code == 0 and result.stdout.endswith(
        f" parameters in {fingerprint_inputs.sft_folder('math-1.5m', 'tiny')}\n"
    )
