"""How much GPU memory a language model needs: in training, and in sampling. Formulas, not measurements.

Sources: mixed-precision Adam keeps 16 bytes a parameter (ZeRO, arXiv 1910.02054, section 3.1). Trinity's activations as
Trinity-RFT 0.6.0 estimates them (config_validator.py, _calc_fsdp_activation_memory), those of the local engine by hand
from its forward pass (:func:`kept_by_layer`), compared with an H100 by a test.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from r3l.config.model import ArchitectureConfig
from r3l.config.tier import LoraConfig

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
GIB = 2**30
LOGITS = 16  # bytes a token and word in the local engine: float32 logits and gradients, both twice (a test measures it)
CHUNK = GIB  # bytes of the logits that it computes at once; our choice: 441 tokens of Qwen2.5, still a fast product
GPU_BLOCK = 1024  # queries of a row that attend together: few large operations, as launching takes long; our choice
ALL_WEIGHTS = LoraConfig()


@dataclass(frozen=True)
class Training:
    """Bytes on each of the GPUs that train one model."""

    weights: float
    gradients: float
    optimiser: float
    gathered: float
    reference: float
    activations: float

    @property
    def total(self) -> float:
        return float(sum(asdict(self).values()))


def training(
    a: ArchitectureConfig, tokens: int, gpus: int = 1, dtype: str = "bfloat16", reference: bool = False
) -> Training:
    """Training with Adam, everything sharded over ``gpus`` (FSDP), micro-batches of ``tokens`` a GPU.

    Weights, gradients and both moments are float32; forward and backward passes compute in ``dtype`` and gather, with
    several GPUs, two layers at once. ``reference``: a frozen copy of the base checkpoint for a KL.
    """
    share, size = a.parameters / gpus, BYTES[dtype]
    layer = (a.parameters - a.vocabulary * a.hidden) / a.layers
    gathered = size * (2 * layer + a.vocabulary * a.hidden) if gpus > 1 else size * a.parameters * (size < 4)
    return Training(
        weights=4 * share,
        gradients=4 * share,
        optimiser=8 * share,
        gathered=gathered,
        reference=4 * share if reference else 0.0,
        activations=activations(a, tokens, dtype),
    )


def activations(a: ArchitectureConfig, tokens: int, dtype: str = "bfloat16") -> float:
    """Bytes of a forward and backward pass of ``tokens`` with gradient checkpointing, logits included, by Trinity.

    2 t h (L + 4) for what is stored between layers, then the larger of 10 t V (logits without an entropy term) and
    4 V h + 80 t h (one layer's backward pass); all that twice in float32.
    """
    stored = 2 * tokens * a.hidden * (a.layers + 4)
    layer = 4 * a.vocabulary * a.hidden + 80 * tokens * a.hidden
    return float((stored + max(10 * tokens * a.vocabulary, layer)) * (BYTES[dtype] // 2))


def cache_per_token(a: ArchitectureConfig, dtype: str = "bfloat16") -> int:
    """Bytes of keys and values that one token of a dialog keeps."""
    return 2 * a.layers * a.kv_heads * a.head_dim * BYTES[dtype]


@dataclass(frozen=True)
class InTurns:
    """Bytes on the one GPU of a process that samples and trains in turn (the local engine)."""

    weights: float
    optimiser: float
    gradients: float
    training: float
    caches: float

    @property
    def total(self) -> float:
        """What stays, and the larger of the two phases."""
        return self.weights + self.optimiser + self.gradients + max(self.training, self.caches)


def in_turns(
    a: ArchitectureConfig,
    tokens: int,
    row: int,
    cached: int,
    dtype: str = "bfloat16",
    reference: bool = False,
    lora: LoraConfig = ALL_WEIGHTS,
    checkpointing: bool = True,
) -> InTurns:
    """Micro-batches of ``tokens`` in rows of ``row``; ``cached`` tokens of dialogs hold keys and values at most.

    ``weights``: those in ``dtype``, float32 master weights of what trains, and the reference's, which with an adapter
    is the model itself; ``optimiser``: both moments; ``gradients``: their float32 sum, which stays until the next
    update; ``training``: the most of what a micro-batch and the update take besides (:func:`_training`). Loading takes
    less: frozen weights come to the GPU in ``dtype``, and those that train as two float32 copies at most. What a pass
    of sampling computes is not counted, only the caches.
    """
    size, lower, added = BYTES[dtype], BYTES[dtype] < 4, adapter_parameters(a, lora)
    trained = added or a.parameters
    return InTurns(
        weights=size * (a.parameters + added) + 4 * trained * lower + size * a.parameters * (reference and not added),
        optimiser=trained * 8,
        gradients=trained * 4,
        training=_training(a, tokens, row, dtype, lora, checkpointing),
        caches=cached * cache_per_token(a, dtype),
    )


def _training(a: ArchitectureConfig, tokens: int, row: int, dtype: str, lora: LoraConfig, checkpointing: bool) -> float:
    """The largest of three moments of a step, in bytes beyond what stays.

    1. The backward pass begins: what the forward pass has kept of each layer (with checkpointing its input, h a token);
       the last norm's input and output, the gradient of that output and one chunk's share of it (4 h); and the logits
       or, where it takes more, the backward pass of the last layer, which checkpointing computes again.
    2. It ends: the gradients in ``dtype``, and the first layer's backward pass or the float32 copy of the largest
       gradient, the embeddings', on its way to the sum.
    3. AdamW: the root of the second moments, of all weights at once, in float32.
    """
    size, trained = BYTES[dtype], adapter_parameters(a, lora) or a.parameters
    lower, trains = size < 4, trained == a.parameters
    layer = kept_by_layer(a, tokens, row, dtype, lora)
    between = size * tokens * a.hidden
    kept = a.layers * (between if checkpointing else layer) + 4 * between
    backward = size * tokens * in_flight(a, row)
    again = layer if checkpointing else 0
    begins = kept + max(_logits(a, tokens, lower, trains), again + backward)
    ends = lower * size * trained + max(lower * trains * 4 * a.vocabulary * a.hidden, layer + backward)
    return float(max(begins, ends, 4 * trained))


def kept_by_layer(
    a: ArchitectureConfig, tokens: int, row: int, dtype: str = "bfloat16", lora: LoraConfig = ALL_WEIGHTS
) -> float:
    """Bytes that autograd keeps of one layer of the packed pass (r3l.local.model.forward) of ``tokens`` on a GPU.

    Numbers a token, with h = hidden, q = heads * head_dim, i = intermediate, and f = :func:`keys_read`:

    ==========  ====================================================================================================
    h           the layer's input, kept by the first norm, which is one operation on a GPU
    h           its output, which the projections of queries, keys and values read for their weights' gradients
    q           queries as attention reads them (rotation, cat, stack and gathering keep indices and cosines alone)
    2 f q       keys and values, gathered for each row and block and repeated for each query head
    2 q         attention's output, and the same in the order of the tokens, which o_proj reads
    h           the sum with the layer's input, kept by the second norm
    h           its output, which gate_proj and up_proj read
    4 i         gate (kept by silu), silu's output and up (by their product), the product (read by down_proj)
    rank        with an adapter, of each projection: what B reads; A reads what is listed already
    ==========  ====================================================================================================

    Besides, in float32, attention's log-sum-exp of every head and the scale of either norm; and the bias of every block
    of queries, which all rows share.
    """
    queries, keys = a.heads * a.head_dim, keys_read(row)
    numbers = 4 * a.hidden + (3 + 2 * keys) * queries + 4 * a.intermediate + lora.rank * len(lora.targets)
    bias = sum(asking * read for asking, read in _blocks(row))
    return BYTES[dtype] * (tokens * numbers + bias) + 4 * tokens * (a.heads + 2)


def in_flight(a: ArchitectureConfig, row: int) -> float:
    """Gradients that a layer's backward pass holds at once beyond what the layer kept, numbers a token.

    Of the product's two factors and the hidden state (2 i + h); or, when the MLP's 4 i + h are gone, of repeated keys,
    values, queries and the hidden state.
    """
    queries = a.heads * a.head_dim
    in_attention = (2 * keys_read(row) + 1) * queries + a.hidden
    return max(2 * a.intermediate + a.hidden, in_attention - 4 * a.intermediate - a.hidden)


def keys_read(row: int) -> float:
    """Keys that are gathered for each token of a row: the queries of a block share all keys up to its end.

    Rows that share a beginning gather its keys each, so a micro-batch of short answers to a long prompt takes more.
    """
    return sum(read for _, read in _blocks(row)) / row


def _blocks(row: int) -> list[tuple[int, int]]:
    """Of each block of a row's queries how many ask, and how many keys they read."""
    ends = [*range(GPU_BLOCK, row, GPU_BLOCK), row]
    return [(end - first, end) for first, end in zip([0, *ends], ends, strict=False)]


def adapter_parameters(a: ArchitectureConfig, lora: LoraConfig) -> int:
    """Numbers in both factors of all projections that train; 0 where all weights do."""
    queries, states = a.heads * a.head_dim, a.kv_heads * a.head_dim
    width = {"q_proj": queries, "o_proj": queries, "k_proj": states, "v_proj": states}
    return sum(a.layers * lora.rank * (a.hidden + width.get(name, a.intermediate)) for name in lora.targets)


def _logits(a: ArchitectureConfig, tokens: int, lower: bool, trains: bool) -> float:
    """Bytes of logits at once, with the float32 copy of a ``lower`` vocabulary projection and, if that ``trains``, its
    gradient's sum over chunks, where that is another tensor than the weights' gradient; or, when half of the logits'
    bytes are gone, the chunk's own share of it too."""
    projection = 4 * a.vocabulary * a.hidden
    logits = min(LOGITS * tokens * a.vocabulary, CHUNK)
    copies = projection * (lower + trains * lower)
    return copies + max(logits, logits / 2 + projection * trains)


@dataclass(frozen=True)
class Sampling:
    """Bytes on each GPU of one inference engine; ``dialogs`` of full length fit into the engine's cache at once."""

    weights: float
    cache: float
    dialogs: float


def sampling(
    a: ArchitectureConfig, card: float, share: float, context: int, tensor_parallel: int = 1, dtype: str = "bfloat16"
) -> Sampling:
    """An engine that takes ``share`` of cards of ``card`` bytes: the weights, and the rest as cache."""
    weights = a.parameters * BYTES[dtype] / tensor_parallel
    cache = card * share - weights
    return Sampling(weights, cache, cache * tensor_parallel / (context * cache_per_token(a, dtype)))
