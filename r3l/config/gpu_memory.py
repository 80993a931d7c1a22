"""GPU memory of a language model in training and in sampling: formulas, not measurements.

Sources: mixed-precision Adam keeps 16 bytes a parameter (ZeRO, arXiv 1910.02054, section 3.1). Activations
on Trinity are estimated as in Trinity-RFT 0.6.0 (config_validator.py, _calc_fsdp_activation_memory). Those
of the local engine are counted by hand from its forward pass (:func:`kept_by_layer`); a test compares them
with an H100.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from r3l.config.model import ArchitectureConfig
from r3l.config.tier import LoraConfig

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
GIB = 2**30
# Bytes per token and vocabulary entry in the local engine: float32 logits and gradients, both twice (tested).
LOGITS = 16
CHUNK = GIB  # bytes of logits computed at once; our choice: 441 tokens of Qwen2.5, still a fast product
GPU_BLOCK = 1024  # queries of a row that attend together; our choice: few launches, which take long
ALL_WEIGHTS = LoraConfig()


@dataclass(frozen=True)
class Training:
    """Bytes on each of the GPUs that train one model on Trinity, by what they hold.

    ``gathered``: copies of weights in the dtype of the forward pass. With several GPUs these are the layers
    in use and the embeddings; with one GPU all weights, or 0 if the dtype is float32. ``reference``: the base
    checkpoint for a KL, 0 without one.
    """

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
    """Bytes per GPU of training with Adam, everything sharded over ``gpus`` (FSDP).

    ``tokens``: number of tokens in a micro-batch on each GPU. Weights, gradients and both moments are
    float32; forward and backward passes compute in ``dtype`` (a key of BYTES) and gather, with several GPUs,
    two layers and the embeddings at once. ``reference``: a frozen copy of the base checkpoint for a KL.
    """
    share = a.parameters / gpus
    size = BYTES[dtype]
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
    """Bytes of a forward and backward pass of ``tokens`` on Trinity, with gradient checkpointing and logits.

    With t = tokens, h = hidden size, L = layers, V = vocabulary: 2 t h (L + 4) for the stored layer inputs,
    then the larger of 10 t V (logits without an entropy term) and 4 V h + 80 t h (one layer's backward pass);
    twice as much in float32.
    """
    stored = 2 * tokens * a.hidden * (a.layers + 4)
    layer = 4 * a.vocabulary * a.hidden + 80 * tokens * a.hidden
    return float((stored + max(10 * tokens * a.vocabulary, layer)) * (BYTES[dtype] // 2))


def cache_per_token(a: ArchitectureConfig, dtype: str = "bfloat16") -> int:
    """Bytes of keys and values in the cache for one token of a dialog."""
    return 2 * a.layers * a.kv_heads * a.head_dim * BYTES[dtype]


@dataclass(frozen=True)
class InTurns:
    """Bytes on the GPU of a process that samples and trains in turn (the local engine), see :func:`in_turns`.

    ``training`` (activations and the like of an update) and ``caches`` (keys and values of sampling) are
    never in memory at the same time.
    """

    weights: float
    optimiser: float
    gradients: float
    training: float
    caches: float

    @property
    def total(self) -> float:
        """Weights, optimiser and gradients, which are permanent, and the larger of the two others."""
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
    lagging: bool = False,
    averaging: bool = False,
) -> InTurns:
    """Memory of a process that samples and trains in turn on one GPU, in bytes.

    A micro-batch has ``tokens`` tokens in rows of ``row`` tokens; the caches of sampling hold at most
    ``cached`` tokens.

    - ``weights``: a copy in ``dtype``, float32 master weights of the trained ones, and with ``reference`` the
      base checkpoint for a KL or a frozen teacher; with an adapter that is the same model with the adapter
      turned off. With ``lagging`` the sampler has a copy of the trained ones (train.sync_interval above 1),
      with ``averaging`` a teacher has their moving average in float32.
    - ``optimiser``: both moments of AdamW.
    - ``gradients``: their float32 sum, which is kept until the next update.
    - ``training``: the peak of a micro-batch and the update beyond these (:func:`_training`).
    - ``caches``: keys and values. Activations of sampling are not counted.

    Loading the model takes less: at most two float32 copies of the trained weights are there at once.
    """
    size = BYTES[dtype]
    lower = size < 4  # then float32 master weights are kept too
    added = adapter_parameters(a, lora)
    trained = added or a.parameters
    return InTurns(
        weights=size * (a.parameters + added)
        + 4 * trained * lower
        + size * a.parameters * (reference and not added)
        + size * trained * lagging
        + 4 * trained * averaging,
        optimiser=trained * 8,
        gradients=trained * 4,
        training=_training(a, tokens, row, dtype, lora, checkpointing, averaging),
        caches=cached * cache_per_token(a, dtype),
    )


def _training(
    a: ArchitectureConfig,
    tokens: int,
    row: int,
    dtype: str,
    lora: LoraConfig,
    checkpointing: bool,
    averaging: bool,
) -> float:
    """The largest of these moments of a step, in bytes beyond the permanent parts.

    1. The backward pass begins: what the forward pass kept of each layer (with checkpointing its input, h a
       token); the last norm's input and output, the gradient of that output and one chunk's share of it (4
       h); and the larger of the logits and the backward pass of the last layer, which checkpointing
       recomputes.
    2. The backward pass ends: the gradients in ``dtype``, and the larger of the first layer's backward pass
       and the float32 copy of the largest gradient (of the embeddings) while it is added to the sum.
    3. AdamW: the square root of the second moments of all weights at once, in float32.
    4. An averaging teacher scores: the average has taken the place of the trained weights, which are kept in
       float32; and logits or a layer, for which those of training are an upper bound.
    """
    size = BYTES[dtype]
    lower = size < 4
    trained = adapter_parameters(a, lora) or a.parameters
    trains = trained == a.parameters  # the vocabulary projection has a gradient
    layer = kept_by_layer(a, tokens, row, dtype, lora)
    between = size * tokens * a.hidden
    kept = a.layers * (between if checkpointing else layer) + 4 * between
    backward = size * tokens * in_flight(a, row)
    again = layer if checkpointing else 0
    begins = kept + max(_logits(a, tokens, lower, trains), again + backward)
    ends = lower * size * trained + max(lower * trains * 4 * a.vocabulary * a.hidden, layer + backward)
    scores = averaging * (4 * trained + max(_logits(a, tokens, lower, False), layer))
    return float(max(begins, ends, 4 * trained, scores))


def kept_by_layer(
    a: ArchitectureConfig, tokens: int, row: int, dtype: str = "bfloat16", lora: LoraConfig = ALL_WEIGHTS
) -> float:
    """Bytes that autograd keeps for one layer of the packed pass (r3l.local.model.forward) on a GPU.

    Values per token, with h = hidden, q = heads * head_dim, i = intermediate, and f = :func:`keys_read`:

    ==========  ===========================================================================================
    h           the layer's input, kept by the first norm, which is one kernel on a GPU
    h           its output, which the projections of queries, keys and values read for their gradients
    q           queries as attention reads them (rotation and gathering keep only indices and cosines)
    2 f q       keys and values, gathered for each row and block and repeated for each query head
    2 q         attention's output, and a copy in the order of the tokens, which o_proj reads
    h           the sum with the layer's input, kept by the second norm
    h           its output, which gate_proj and up_proj read
    4 i         gate (kept by silu), silu's output and up (by their product), the product (read by down_proj)
    rank        with an adapter, for each projection: the input of B; the input of A is listed already
    ==========  ===========================================================================================

    In addition: attention's log-sum-exp of every head and the scale of both norms in float32, and the bias
    of every block of queries, which all rows share.
    """
    queries = a.heads * a.head_dim
    keys = keys_read(row)
    numbers = 4 * a.hidden + (3 + 2 * keys) * queries + 4 * a.intermediate + lora.rank * len(lora.targets)
    bias = sum(queries_in_block * read for queries_in_block, read in _blocks(row))
    return BYTES[dtype] * (tokens * numbers + bias) + 4 * tokens * (a.heads + 2)


def in_flight(a: ArchitectureConfig, row: int) -> float:
    """Values per token that the backward pass of one layer needs at once beyond :func:`kept_by_layer`.

    With i = intermediate size, h = hidden size and rows of ``row`` tokens, it is the larger of two moments.
    In the MLP (down(silu(gate) * up)): the gradients of both factors and of the hidden state, 2 i + h. In
    attention, after the 4 i + h values of the MLP are freed: the gradients of keys and values (repeated for
    each query head), of queries and of the hidden state.
    """
    queries = a.heads * a.head_dim
    in_attention = (2 * keys_read(row) + 1) * queries + a.hidden
    return max(2 * a.intermediate + a.hidden, in_attention - 4 * a.intermediate - a.hidden)


def keys_read(row: int) -> float:
    """Mean number of keys that attention gathers per token of a row of ``row`` tokens (at least 1).

    The queries of a block share all keys up to its end. Rows with a shared prefix gather its keys separately,
    so short answers to a long prompt take more memory.
    """
    return sum(read for _, read in _blocks(row)) / row


def _blocks(row: int) -> list[tuple[int, int]]:
    """The number of queries in each block of a row, and the number of keys that they read."""
    ends = [*range(GPU_BLOCK, row, GPU_BLOCK), row]
    return [(end - first, end) for first, end in zip([0, *ends], ends, strict=False)]


def adapter_parameters(a: ArchitectureConfig, lora: LoraConfig) -> int:
    """Number of parameters in both factors (A and B) of all LoRA adapters; 0 if all weights train."""
    queries = a.heads * a.head_dim
    states = a.kv_heads * a.head_dim
    width = {"q_proj": queries, "o_proj": queries, "k_proj": states, "v_proj": states}
    return sum(a.layers * lora.rank * (a.hidden + width.get(name, a.intermediate)) for name in lora.targets)


def _logits(a: ArchitectureConfig, tokens: int, lower: bool, trains: bool) -> float:
    """Peak bytes of computing the logits of one chunk.

    With weights in a ``lower`` precision the vocabulary projection has a float32 copy, and if it ``trains``,
    a float32 sum of its gradient over chunks. The peak is at the logits, or, when half of their bytes are
    freed, at the chunk's gradient of the projection.
    """
    projection = 4 * a.vocabulary * a.hidden
    logits = min(LOGITS * tokens * a.vocabulary, CHUNK)
    copies = projection * (lower + trains * lower)
    return copies + max(logits, logits / 2 + projection * trains)


@dataclass(frozen=True)
class SamplingMemory:
    """Bytes of weights and of the cache (keys and values) on each GPU of one inference engine.

    ``dialogs``: how many dialogs of full length the cache of all these GPUs holds, with a fraction.
    """

    weights: float
    cache: float
    dialogs: float


def sampling(
    a: ArchitectureConfig,
    card: float,
    share: float,
    context: int,
    tensor_parallel: int = 1,
    dtype: str = "bfloat16",
) -> SamplingMemory:
    """Memory of an inference engine that takes a ``share`` (0 to 1) of GPUs with ``card`` bytes each.

    The cache takes all that the weights leave; it is negative if they do not fit. ``context``: the longest
    dialog, in tokens. ``tensor_parallel``: GPUs that share one copy of the weights.
    """
    weights = a.parameters * BYTES[dtype] / tensor_parallel
    cache = card * share - weights
    return SamplingMemory(weights, cache, cache * tensor_parallel / (context * cache_per_token(a, dtype)))
