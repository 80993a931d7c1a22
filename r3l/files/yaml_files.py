"""Reading YAML: plain data only, no objects, and no duplicate keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from r3l.core.errors import ConfigError
from r3l.files.paths import regular

# libyaml's loader is seven times as fast, and a grid reads thousands of files. Both keep the last of two
# equal keys.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

REFUSED = {"timestamp", "set", "binary", "omap", "pairs"}  # types that JSON does not have
DEEPEST = 64  # lists and mappings within one another; our choice
LARGEST = 2**14  # bytes; libyaml follows brackets by recursion, and ends the process where 30,000 are open
# Numbers that YAML 1.1 reads otherwise than they look: 1:30 is 90, and 010 is 8.
_MISREAD = re.compile(r"[-+]?(?:0[0-7_]*[0-7]|\d[\d_]*(?::[0-5]?\d)+(?:\.[\d_]*)?)")


def check_numbers(node: yaml.Node) -> str:
    """Why a scalar ``node`` is no number that a reader expects, such as 1:30 or 010; "" for all others."""
    number = node.tag.rpartition(":")[2] in ("int", "float")
    if not number or not _MISREAD.fullmatch(node.value):
        return ""
    return f"{node.value} is read in base {60 if ':' in node.value else 8}; write a decimal number, or quotes"


def check_value(text: str, key: str) -> None:
    """Raise ConfigError if ``text``, the value of ``key``, is or has a number like 1:30 or 010.

    An alias to itself has no end, and is left to the reader of the text. Raises YAMLError if it is no YAML.
    """
    left = [] if "*" in text else [yaml.compose(text, Loader=_LOADER)]
    while left:
        node = left.pop()
        if isinstance(node, yaml.ScalarNode) and (why := check_numbers(node)):
            raise ConfigError(f"key {key!r} is {text!r}: {why}")
        if isinstance(node, yaml.SequenceNode):
            left += node.value
        elif isinstance(node, yaml.MappingNode):
            left += [value for _, value in node.value]


def read_yaml(path: Path, content: bytes | None = None) -> dict[str, Any]:
    """Read a YAML file: its values by their keys; ``content``: its bytes, if the caller has read them.

    Raises ConfigError naming ``path`` if it cannot be read, for text that is not YAML, a key that is set
    twice, a value that JSON does not have (such as a date; .nan and .inf are read), a number in base 60 or 8,
    a file too large or too deeply nested, and one that is not a mapping of names to values.
    """
    try:
        content = regular(path).read_bytes() if content is None else content
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > LARGEST:
        raise ConfigError(f"{path} has {len(content)} bytes; a configuration may have at most {LARGEST}")
    try:
        loader = _LOADER(content.decode("utf-8"))
        root = loader.get_single_node()
        # Look at every node before anything is made of the file. An aliased node counts each time that it
        # is used.
        left = [] if root is None else [(root, 0)]
        count = 0
        while left:
            node, depth = left.pop()
            count += 1
            kind = node.tag.rpartition(":")[2]
            children = []
            why = ""  # this node is refused
            if kind in REFUSED:
                why = f"it is read as a {kind}; put quotes around a text, and write a set as a list"
            elif depth > DEEPEST or count > LARGEST:
                why = f"more than {DEEPEST} levels or {LARGEST} values, with aliases (*name) written out"
            elif isinstance(node, yaml.ScalarNode):
                why = check_numbers(node)
            elif isinstance(node, yaml.SequenceNode):
                children = node.value
            elif isinstance(node, yaml.MappingNode):
                children = [part for pair in node.value for part in pair]
                keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
                twice = [value for k, (tag, value) in enumerate(keys) if (tag, value) in keys[:k]]
                why = f"key {twice[0]!r} is set twice; keep one" if twice else ""
            if why:
                raise yaml.constructor.ConstructorError(None, None, why, node.start_mark)
            left += [(child, depth + 1) for child in children]
        values = None if root is None else loader.construct_document(root)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or a number of thousands of digits
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"{path}: a file of names and values (key: value) is expected")
    return values
