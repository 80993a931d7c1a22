"""The memory plan: by hand and compared with what a GPU took; and settings that fit."""

import json

import pytest

from r3l.cli import app
from r3l.config import ArchitectureConfig, find_model, resolve
from r3l.config.gpu_memory import CHUNK, GIB, adapter_parameters, in_turns, kept_by_layer, keys_read
from r3l.config.tier import LoraConfig
from r3l.files.json_files import read_jsonl
from r3l.files.paths import STORED
from r3l.local import memory

SMALL = ArchitectureConfig(
    parameters=1000, layers=2, hidden=4, intermediate=8, heads=2, kv_heads=1, head_dim=2, vocabulary=16
)
HALF = "qwen2.5-coder-0.5b"


def test_a_layer_by_hand():
    """4 x 4 of hidden states, 5 x 4 of attention, 4 x 8 of the MLP, a bias of 5 x 5; in float32 2 heads and 2
    norms."""
    layer = 2 * (10 * (16 + 20 + 32) + 25) + 4 * 10 * (2 + 2)
    assert kept_by_layer(SMALL, 10, 5) == layer == 1570
    assert kept_by_layer(SMALL, 10, 5, lora=LoraConfig(rank=3)) == layer + 2 * 10 * 3 * 7
    # blocks of 1,024 queries read 1,024, 2,048, ... keys
    assert [keys_read(row) for row in (5, 1024, 2048, 8192)] == [1, 1, 1.5, 4.5] and keys_read(
        1536
    ) == 2560 / 1536


def test_all_weights_by_hand():
    """10 tokens in rows of 5, 100 cached; with a reference."""
    plan = in_turns(SMALL, 10, 5, 100, reference=True)
    assert plan.weights == 1000 * (4 + 2 + 2) and plan.optimiser == 8000 and plan.gradients == 4000
    assert plan.caches == 100 * (2 * 2 * 1 * 2 * 2)
    assert (
        plan.training == 4000
    )  # the update's; the backward pass begins with 480 + 3072 and ends with 2000 + 1970
    assert plan.total == 8000 + 8000 + 4000 + 4000
    logits = 16 * 10 * 16 + 2 * 4 * 16 * 4  # and the projection and its gradient's sum in float32
    assert in_turns(SMALL, 10, 5, 0, checkpointing=False).training == 2 * 1570 + 4 * 80 + logits
    single = in_turns(SMALL, 10, 5, 0, "float32")  # a float32 model is its own master
    layer_again = 4 * 705 + 160 + 4 * 10 * (2 * 8 + 4)
    assert single.weights == 4000 and single.training == (2 + 4) * 160 + layer_again
    wordy, many = SMALL.model_copy(update={"vocabulary": 1000}), 10**6  # logits in chunks
    assert in_turns(wordy, many, 1, 0).training == 6 * 8 * many + CHUNK + 2 * 4 * 1000 * 4


def test_an_adapter_by_hand():
    """Rank 2: 2 layers of 2 x (8 + 6 + 6 + 8 + 3 x 12) numbers train, the rest is bfloat16 alone."""
    config = LoraConfig(rank=2)
    assert adapter_parameters(SMALL, config) == 256 and adapter_parameters(SMALL, LoraConfig()) == 0
    plan = in_turns(SMALL, 10, 5, 0, reference=True, lora=config)
    assert (
        plan.weights == 2 * 1000 + 256 * (2 + 4) and plan.optimiser == 256 * 8 and plan.gradients == 256 * 4
    )
    assert plan.training == (2 + 4) * 80 + 16 * 10 * 16 + 4 * 16 * 4
    assert in_turns(SMALL, 10, 5, 0, "float32", lora=config).weights == 4 * 1256


@pytest.mark.parametrize("measured", read_jsonl(STORED / "smol" / "gpu" / "memory.jsonl"), ids=str)
def test_the_plan_is_what_an_h100_took(measured):
    """Within a tenth, without a fitted constant."""
    plan = in_turns(
        find_model(measured["model"]).architecture,
        measured["microbatch"],
        measured["row_tokens"],
        0,
        lora=LoraConfig(rank=measured["rank"]),
        checkpointing=measured["checkpointing"],
    )
    assert plan.total / GIB == pytest.approx(measured["peak_gib"], rel=0.1)


def test_a_sampler_that_lags_behind_has_a_copy_of_what_trains():
    """In bfloat16: of all weights, or of an adapter's, since the frozen ones are shared."""

    def weights(lora_rank, interval):
        changes = [f"lora.rank={lora_rank}", f"train.sync_interval={interval}", "compute_dtype=bfloat16"]
        run = resolve("smol", "gsm8k", "grpo", 0, "smollm2-135m", changes)
        return memory.memory_plan(a, run, 8).weights

    a = find_model("smollm2-135m").architecture
    assert weights(0, 5) - weights(0, 1) == 2 * a.parameters
    adapter = adapter_parameters(a, LoraConfig(rank=8))
    assert weights(8, 5) - weights(8, 1) == 2 * adapter


def test_weights_of_a_base_model_and_of_a_teacher_are_planned():
    """In bfloat16: a KL or a frozen teacher loads the base checkpoint, whose adapter is else turned off; a
    teacher's moving average is float32.
    """

    def weights(method, lora_rank=0):
        changes = [f"lora.rank={lora_rank}", "compute_dtype=bfloat16", "train.kl_metric_every=0"]
        run = resolve("smol", "gsm8k", method, 0, "smollm2-135m", changes)
        return memory.report(run, None)["plan_gib"]["weights"] * GIB

    parameters = find_model("smollm2-135m").architecture.parameters
    adapter = adapter_parameters(find_model("smollm2-135m").architecture, LoraConfig(rank=8))
    for method, extra in (
        ("r3l@kl=k3,kl_coef=0.1", 2),
        ("sdpo@teacher=live", 0),
        ("sdpo@teacher=frozen", 2),
        ("sdpo@teacher=average", 4),
    ):
        assert weights(method) - weights("grpo") == pytest.approx(extra * parameters)
        averaged = 4 * adapter if method.endswith("average") else 0
        assert weights(method, 8) - weights("grpo", 8) == pytest.approx(averaged)


def test_scoring_by_an_averaging_teacher_keeps_the_trained_weights_aside():
    """The average takes their place meanwhile: 4 bytes each, and the logits of 10 tokens with the projection's
    copy in float32.
    """
    live, average = (in_turns(SMALL, 10, 5, 0, averaging=averaging) for averaging in (False, True))
    assert live.training == 4000 and average.training == 4000 + 16 * 10 * 16 + 4 * 16 * 4
    assert average.weights - live.weights == 4000


def test_settings_that_cost_least_come_first():
    """First what costs time alone, then fewer tasks a step, last an adapter."""
    many = [
        "train.tasks_per_step=16",
        "train.tokens_per_microbatch=16384",
        "sampling.tokens_per_batch=524288",
    ]
    all_weights = ["lora.rank=0", "train.gradient_checkpointing=false", "sampling.max_tokens=4096"]
    run = resolve("smol", "gsm8k", "r3l", 0, "smollm2-135m", many + all_weights)
    a = find_model("smollm2-135m").architecture
    less = {"train.gradient_checkpointing": True}
    for gib, expected in (
        (60, {}),
        (38, {"sampling.tokens_per_batch": 262144}),
        (24, {"train.tasks_per_step": 8, "sampling.tokens_per_batch": 262144}),
        (8, less | {"train.tasks_per_step": 2, "sampling.tokens_per_batch": 65536}),
        (3, less | {"lora.rank": 16, "train.tasks_per_step": 1, "sampling.tokens_per_batch": 32768}),
        (1, None),
    ):
        assert memory.settings_that_fit(a, run, 8, gib * GIB) == expected


def test_doctor_prints_a_plan_and_settings_that_fit(capsys):
    """Both sizes fit 24 GiB with the tier's settings; all weights of the larger do not, an adapter does."""
    command = ["doctor", "memory", "--model", HALF, "--env", "gsm8k", "--gib", "8"]
    assert app(command, standalone_mode=False) == 2
    *_, settings = capsys.readouterr().out.splitlines()
    assert settings == "  --set sampling.tokens_per_batch=16384"
    assert not app([*command, *settings.split()], standalone_mode=False)
    assert "fits 8 GiB" in capsys.readouterr().out
    command[-1] = "24"
    for size, changes, expected in (
        (HALF, (), {}),
        (HALF, ("lora.rank=0",), {}),
        ("qwen2.5-coder-1.5b", (), {}),
        ("qwen2.5-coder-1.5b", ("lora.rank=0",), {"lora.rank": 16}),
    ):
        command[3] = size
        app(
            [*command, "--json", *(word for change in changes for word in ("--set", change))],
            standalone_mode=False,
        )
        found = json.loads(capsys.readouterr().out)
        assert found["fits"] == (not expected) and (found["set"] or {}) == expected
        assert found["fits"] or found["total_gib_then"] < 24 * 0.9
