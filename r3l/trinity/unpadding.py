"""Training by verl without flash-attn, which PyPI has only as source code to compile.

verl 0.8 imports from flash-attn the functions that drop and restore padding, whichever attention it uses.
transformers has the same functions in plain torch. Attention itself is then torch's
(``attn_implementation: sdpa``, r3l.trinity.config): a micro-batch of several rows computes all pairs of its
tokens and masks pairs of different rows, which flash-attn skips.
"""

from __future__ import annotations

from importlib.util import find_spec


def replace_flash_attn() -> None:
    """Let verl drop and restore padding by transformers' functions, if flash-attn is not installed.

    Replaces a function of verl in this process; does nothing if flash-attn is installed or verl is not.
    """
    if find_spec("flash_attn") or not find_spec("verl"):
        return
    import einops
    from transformers import modeling_flash_attention_utils as plain
    from verl.utils import attention_utils

    functions = (plain._index_first_axis, plain._pad_input, einops.rearrange, plain._unpad_input)
    attention_utils._get_attention_functions = lambda: functions
