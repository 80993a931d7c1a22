"""LoRA: its gradients by hand, frozen weights, one model for three uses, small checkpoints, merged
exports."""

import copy
import shutil

import peft
import pytest
import torch
from conftest import make_trajectory
from local.model.test_forward import SIZES, random_model, rows_of_a_step
from r3l.baselines.grpo import GRPO
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, Phi3Config, Qwen2Config

from r3l.config import TrainConfig, base_checkpoint_of, find_model, model_identity, resolve
from r3l.config.tier import LoraConfig
from r3l.core.batching import rows_of
from r3l.core.errors import CheckpointError, ConfigError
from r3l.core.trajectory import Group
from r3l.evaluation.evaluate import evaluate_run
from r3l.evaluation.publishing import publish
from r3l.files.digests import write_digests
from r3l.files.json_files import read_json, read_jsonl
from r3l.files.paths import STORED_MODELS
from r3l.files.writing import write_json_atomic
from r3l.local import checkpoint
from r3l.local.engine import train
from r3l.local.model import lora
from r3l.local.model.precision import MasterWeights, recompute_activations
from r3l.local.session import load_network, merged_model, open_session
from r3l.local.training.logprobs import token_logprobs, tree_logprobs
from r3l.local.training.trainer import Trainer
from r3l.trinity.config import Place, write_inputs

CPU = torch.device("cpu")
CONFIG = LoraConfig(rank=3, alpha=6)
SCALE = 2.0  # alpha / rank
BASE = "alfworld-1.5m-hints"  # a base checkpoint to name, whatever the weights


def adapted(model, config=CONFIG, seed=0):
    """``model`` with an adapter in which B is not 0 any more."""
    lora.add(model, config, seed, BASE)
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if ".lora_B." in name:
            parameter.data = 0.1 * torch.randn_like(parameter)
    return model


def digest(model):
    """The bytes of the weights that do not train."""
    return {name: parameter.clone() for name, parameter in model.named_parameters() if ".lora_" not in name}


def backward(model, compute=tree_logprobs):
    ids_B_T, mask_B_T = rows_of_a_step()
    weights_B_T = torch.linspace(-1, 1, ids_B_T.numel(), dtype=torch.float64).view(ids_B_T.shape)
    model.train().zero_grad()
    (compute(model, ids_B_T, mask_B_T, 0.7) * weights_B_T).sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("compute", [tree_logprobs, token_logprobs])
def test_gradients_of_the_factors_are_those_of_the_weights_by_the_chain_rule(compute):
    """y = (W + s B A) x, so dA = s B^T dW and dB = s dW A^T, with dW of full training at W + s B A; in
    float64."""
    model = random_model(Qwen2Config(**SIZES, tie_word_embeddings=True))
    whole = copy.deepcopy(model)
    adapted(model)
    whole.load_state_dict(lora.merged(model, model.state_dict()))
    of_weights, of_factors = backward(whole, compute), backward(model, compute)
    assert all(gradient is None for name, gradient in of_factors.items() if ".lora_" not in name)
    factors = dict(model.named_parameters())
    layers = [name.removesuffix(".lora_A.default.weight") for name in factors if ".lora_A." in name]
    assert len(layers) == SIZES["num_hidden_layers"] * 7
    for layer in layers:
        a, b = f"{layer}.lora_A.default.weight", f"{layer}.lora_B.default.weight"
        dw = of_weights[f"{layer}.weight"]
        for computed, expected in (
            (of_factors[a], SCALE * factors[b].T @ dw),
            (of_factors[b], SCALE * dw @ factors[a].T),
        ):
            assert torch.allclose(
                computed, expected, rtol=0, atol=1e-12 * max(1.0, expected.abs().max().item())
            )


@pytest.mark.parametrize("compute", [tree_logprobs, token_logprobs])
def test_recomputed_activations_give_the_same_gradients(compute):
    """Also where nothing before the first layer has a gradient."""
    model = adapted(random_model(Qwen2Config(**SIZES)))
    expected = backward(model, compute)
    recompute_activations(model)
    for name, gradient in backward(model, compute).items():
        assert (gradient is None) == (expected[name] is None)
        assert gradient is None or torch.allclose(gradient, expected[name], rtol=0, atol=1e-12)


def test_without_the_adapter_the_model_is_its_base_checkpoint():
    """Exactly, and so it begins: B is 0. A belongs to the seed and the projection."""
    base = random_model(Qwen2Config(**SIZES)).eval()
    expected = tree_logprobs(base, *rows_of_a_step())
    model = copy.deepcopy(base)
    lora.add(model, CONFIG, 0, BASE)
    assert torch.equal(tree_logprobs(model, *rows_of_a_step()), expected)
    other, again = copy.deepcopy(base), copy.deepcopy(base)
    lora.add(other, CONFIG, 1, BASE)
    lora.add(again, LoraConfig(rank=3, targets=["v_proj"]), 0, BASE)
    a = "model.layers.1.self_attn.v_proj.lora_A.default.weight"
    drawn, of_other, of_few = (dict(m.named_parameters())[a] for m in (model, other, again))
    assert torch.equal(drawn, of_few) and not torch.equal(drawn, of_other)
    assert 0.9 * 24**-0.5 < drawn.abs().max() <= 24**-0.5  # uniform, as peft draws it
    adapted(model := copy.deepcopy(base))
    assert not torch.allclose(tree_logprobs(model, *rows_of_a_step()), expected, atol=1e-3)
    with lora.without_adapter(model):
        assert torch.equal(tree_logprobs(model, *rows_of_a_step()), expected)
    assert all(parameter.requires_grad == (".lora_" in name) for name, parameter in model.named_parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_moves_the_adapter_alone(nano, dtype):
    """The frozen weights have no float32 copy, no gradient and no moments."""
    model = copy.deepcopy(nano[0])
    lora.add(model, CONFIG, 0, BASE)
    master_weights = MasterWeights(model, dtype)
    frozen = digest(model)
    config = TrainConfig(steps=1, tasks_per_step=1, lr=1e-2, tokens_per_microbatch=16)
    trainer = Trainer(model, GRPO({}), config, master_weights=master_weights)
    rows = rows_of(GRPO({}), [Group(make_trajectory(1).task, [make_trajectory(3, 1.0), make_trajectory(2)])])
    for _ in range(2):  # the first moves B alone
        assert trainer.step(rows)["grad_norm"] > 0
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    assert all(torch.equal(weight, frozen[name]) for name, weight in digest(model).items())
    assert all(".lora_" in name for name, _ in master_weights.named_parameters())
    assert len(trainer.optimizer.state) == len(master_weights.parameters) == 2 * 7 * 2
    assert all(parameter.grad is None for name, parameter in model.named_parameters() if ".lora_" not in name)
    assert any(
        parameter.abs().max() > 0 for name, parameter in model.named_parameters() if ".lora_B." in name
    )


SMALL = ["workers=0", "threads=1", "train.tasks_per_step=4", "method_settings.group_size=4", "lora.rank=4"]
KL = ["method_settings.kl=k3", "method_settings.kl_coef=0.1", "train.kl_metric_every=1", "train.lr=1e-2"]


def run_of(*changes):
    steps = ["train.steps=4", "train.save_every=2", "evaluation.tasks=8"]
    return resolve("nano", "math", "grpo", 0, overrides=[*SMALL, *KL, *steps, *changes])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of four steps, evaluated."""
    run_dir = tmp_path_factory.mktemp("lora")
    train(run_of(), run_dir)
    evaluate_run(run_dir)
    return run_dir


def test_a_run_begins_at_its_reference_and_leaves_it(trained):
    rows = read_jsonl(trained / "metrics.jsonl")
    assert rows[0]["loss/kl"] == pytest.approx(0, abs=1e-5)
    assert [row["kl_to_start"] > 0 for row in rows] == [True] * 4
    assert max(row["logprob_mismatch/mean"] for row in rows) < 1e-5
    assert read_json(trained / "evaluation.json")["episodes"] == 8


def test_a_checkpoint_holds_the_adapter_and_names_its_base(trained):
    folder = trained / "checkpoints" / "step-000004"
    assert {path.name for path in folder.iterdir()} == {
        *(lora.ADAPTER, lora.CONFIG),
        *("optimizer.safetensors", "trainer.json", "SHA256SUMS"),
    }
    assert read_json(folder / lora.CONFIG)["base_model_name_or_path"] == "math-1.5m"
    tensors = load_file(folder / lora.ADAPTER)
    assert len(tensors) == 3 * 7 * 2 and all(min(tensor.shape) == 4 for tensor in tensors.values())
    with pytest.raises(CheckpointError, match="holds an adapter and no model: r3l export model"):
        checkpoint.find(str(folder))


def test_a_resumed_run_gives_the_same_bytes(trained, tmp_path):
    later = shutil.ignore_patterns("result.json", "step-000004")
    resumed = shutil.copytree(trained, tmp_path / "resumed", ignore=later)
    train(run_of(), resumed)
    assert (resumed / "result.json").read_bytes() == (trained / "result.json").read_bytes()


def test_another_base_checkpoint_is_refused(trained, tmp_path):
    folder = shutil.copytree(trained / "checkpoints" / "step-000004", tmp_path / "adapter")
    stated = (folder / lora.CONFIG).read_text()
    (folder / lora.CONFIG).write_text(stated.replace('"revision": "', '"revision": "0'))
    with pytest.raises(
        CheckpointError, match="is an adapter of the base checkpoint math-1.5m with the digest 0"
    ):
        load_network(run_of(), str(folder), "packed")


def test_an_export_is_merged_and_peft_loads_the_adapter(trained, tmp_path):
    """All three, and the run's own model, agree on log-probs."""
    run, folder = run_of(), trained / "checkpoints" / "step-000004"
    publish(trained, str(tmp_path / "exported"))
    ids_B_T = torch.arange(3, 63).view(2, 30)
    model, _ = load_network(run, str(folder), "packed")
    exported, _ = checkpoint.load_model(str(tmp_path / "exported"), CPU)
    base, _ = checkpoint.load_model(base_checkpoint_of(run), CPU)
    expected = token_logprobs(exported.eval(), ids_B_T, torch.ones(2, 30))
    assert (token_logprobs(base.eval(), ids_B_T, torch.ones(2, 30)) - expected).abs().max() > 1e-2
    by_peft = peft.PeftModel.from_pretrained(base, folder).eval().get_base_model()
    for found in (
        tree_logprobs(model.eval(), ids_B_T, torch.ones(2, 30)),
        token_logprobs(by_peft, ids_B_T, torch.ones(2, 30)),
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_both_passes_begin_with_the_same_adapter():
    """transformers' modules have the names of ours."""
    ours, theirs = (
        load_network(run_of(), "math-1.5m", forward_pass)[0] for forward_pass in ("packed", "transformers")
    )
    assert type(ours) is not type(theirs)
    names, of_ours = zip(*ours.named_parameters(), strict=True)
    for name, parameter in zip(names, of_ours, strict=True):
        assert torch.equal(parameter, theirs.get_parameter(name))


def test_another_engine_begins_with_the_same_adapter_and_its_own_comes_back(tmp_path):
    run, base = run_of(), str(STORED_MODELS / "math-1.5m")
    network, _ = load_network(run, "math-1.5m", "packed")
    (tmp_path / "ours").mkdir()
    lora.save(tmp_path / "ours", network, {n: p for n, p in network.named_parameters() if p.requires_grad})
    lora.write_start(tmp_path / "start", run.lora, run.seed, base)
    for name in (lora.ADAPTER, lora.CONFIG):
        assert (tmp_path / "start" / name).read_bytes() == (tmp_path / "ours" / name).read_bytes()

    (tmp_path / "trained").mkdir()  # as verl writes it: bfloat16, and peft's own settings
    tensors = {name: 2 * t.bfloat16() for name, t in load_file(tmp_path / "start" / lora.ADAPTER).items()}
    save_file(tensors, tmp_path / "trained" / lora.ADAPTER)
    (tmp_path / "trained" / lora.CONFIG).write_text('{"r": 1}')
    lora.adopt(tmp_path / "trained", tmp_path / "start")
    again, _ = load_network(run, str(tmp_path / "trained"), "packed")
    for (name, one), other in zip(network.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(other, 2 * one.bfloat16().float() if ".lora_" in name else one)
    save_file(dict(list(tensors.items())[1:]), tmp_path / "trained" / lora.ADAPTER)
    with pytest.raises(CheckpointError, match="has other tensors than"):
        lora.adopt(tmp_path / "trained", tmp_path / "start")


def test_an_adapter_has_the_digest_of_the_folder_that_its_base_was_loaded_from(tmp_path, monkeypatch):
    """A packaged model's too. Earlier adapters have the digest of its packaged file, and still load."""
    start, base = tmp_path / "start", tmp_path / "models" / "smollm2-135m"
    start.mkdir()
    monkeypatch.setenv("R3L_CACHE", str(tmp_path))
    shutil.copytree(STORED_MODELS / "math-1.5m", base)
    run = resolve("nano", "math", "grpo", 0, "smollm2-135m", ["lora.rank=3"])
    network, _ = load_network(run, "smollm2-135m", "packed")
    lora.save(start, network, {n: p for n, p in network.named_parameters() if p.requires_grad})
    settings = read_json(start / lora.CONFIG)
    assert settings["base_model_name_or_path"] == "smollm2-135m"
    assert settings["revision"] == model_identity(str(base))["sha256"]
    load_network(run, str(start), "packed")

    write_json_atomic(base / "generation_config.json", {"max_new_tokens": 3})
    write_digests(base)
    with pytest.raises(CheckpointError, match="is an adapter of the base checkpoint smollm2-135m"):
        load_network(run, str(start), "packed")
    earlier = {"revision": find_model("smollm2-135m").packaged.sha256}
    write_json_atomic(start / lora.CONFIG, settings | earlier)
    load_network(run, str(start), "packed")


def test_an_adapter_names_the_place_that_its_base_was_loaded_from(tmp_path, monkeypatch):
    """Not our name of it, which peft does not know."""
    monkeypatch.setenv("R3L_MODELS", str(tmp_path))
    shutil.copytree(STORED_MODELS / "math-1.5m", tmp_path / "Qwen2.5-1.5B-Instruct")
    run = resolve("nano", "math", "grpo", 0, "qwen2.5-1.5b", ["lora.rank=3"])
    network, _ = load_network(run, "qwen2.5-1.5b", "packed")
    assert network.peft_config["default"].base_model_name_or_path == "Qwen2.5-1.5B-Instruct"


def test_a_lagging_sampler_shares_the_frozen_weights():
    with open_session(run_of("train.sync_interval=2"), "math-1.5m", trains=True) as session:
        shared = zip(session.model.named_parameters(), session.policy.model.parameters(), strict=True)
        assert all((one is other) == (".lora_" not in name) for (name, one), other in shared)


def test_the_adapter_is_in_the_fingerprint_and_its_absence_is_not():
    full = resolve("nano", "math", "grpo", 0)
    assert full.fingerprint() == resolve("nano", "math", "grpo", 0, overrides=["lora.alpha=8"]).fingerprint()
    changes = ("lora.rank=4", "lora.rank=8", "lora.rank=4,lora.alpha=8", "lora.rank=4,lora.targets=[q_proj]")
    runs = [resolve("nano", "math", "grpo", 0, overrides=change.split(",")) for change in changes]
    assert len({full.fingerprint(), *(run.fingerprint() for run in runs)}) == 5


def test_what_cannot_have_an_adapter_is_refused():
    with pytest.raises(ConfigError, match=r"lora\.targets"):
        resolve("nano", "math", "grpo", 0, overrides=["lora.rank=4", "lora.targets=[lm_head]"])
    other = AutoModelForCausalLM.from_config(GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2))
    with pytest.raises(
        ConfigError, match=r"lora\.targets: .* has no projection down_proj, gate_proj, k_proj"
    ):
        lora.add(other, CONFIG, 0, BASE)


def test_a_base_checkpoint_without_a_projection_is_refused_before_anything_is_written(tmp_path):
    """Phi-3 has one projection for queries, keys and values, and one for gate and up."""
    base = tmp_path / "phi"
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    Phi3Config(vocab_size=698, pad_token_id=0, bos_token_id=1, eos_token_id=2, **sizes).save_pretrained(base)
    for path in STORED_MODELS.glob("math-1.5m/*"):
        if "token" in path.name or "template" in path.name:
            shutil.copy(path, base)
    run = resolve("nano", "math", "grpo", 0, str(base), ["lora.rank=3"])
    place = Place(tmp_path / "trinity", tmp_path / "trinity" / "tasks", "verl")
    refused = (
        "has no projection gate_proj, k_proj, q_proj, up_proj, v_proj. .* lora.targets=.o_proj,down_proj"
    )
    for begin in (
        lambda: train(run, tmp_path / "run"),
        lambda: lora.write_start(tmp_path / "start", run.lora, 0, str(base)),
        lambda: write_inputs(run, place),
    ):
        with pytest.raises(ConfigError, match=f"lora.targets: .*phi {refused}"):
            begin()
    assert [path.name for path in tmp_path.iterdir()] == ["phi"]

    some = run.lora.model_copy(update={"targets": ("down_proj", "o_proj")})
    lora.write_start(tmp_path / "start", some, 0, str(base))
    layer = "base_model.model.model.layers.0."
    assert {name: tuple(t.shape) for name, t in load_file(tmp_path / "start" / lora.ADAPTER).items()} == {
        f"{layer}mlp.down_proj.lora_A.weight": (3, 48),
        f"{layer}mlp.down_proj.lora_B.weight": (32, 3),
        f"{layer}self_attn.o_proj.lora_A.weight": (3, 32),
        f"{layer}self_attn.o_proj.lora_B.weight": (32, 3),
    }


def test_a_whole_checkpoint_is_exported_as_it_lies(tmp_path):
    with merged_model(resolve("nano", "math", "grpo", 0), tmp_path) as folder:
        assert folder == tmp_path
