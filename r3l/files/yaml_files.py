"""Reading YAML: data alone, never objects, and no key twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from r3l.core.errors import ConfigError

_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's: seven times as fast, a grid reads thousands

REFUSED = {"timestamp", "set", "binary", "omap", "pairs"}  # what JSON has not
DEEPEST = 64  # lists and mappings within one another; our choice
LARGEST = 2**14  # bytes; libyaml follows brackets by recursion, and ends the process where 30,000 are open


class _Loader(_BASE):  # type: ignore[misc]  # yaml has no types
    """YAML itself forbids a key twice; PyYAML keeps the last and says nothing."""

    def construct_document(self, node: yaml.Node) -> Any:
        _check(node)
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for k, (key, _) in enumerate(node.value):
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in keys[:k]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} stands there twice; keep one", key.start_mark
                )
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _check(root: yaml.Node) -> None:
    """Refuse what fails wherever the value is used: dates and sets, and aliases of aliases that fill memory."""
    left, count = [(root, 0)], 0
    while left:
        node, depth = left.pop()
        count += 1
        if (kind := node.tag.rpartition(":")[2]) in REFUSED:
            why = f"it is read as a {kind}; put quotes around a text, and write a set as a list"
        elif depth > DEEPEST or count > LARGEST:
            why = f"more than {DEEPEST} levels or {LARGEST} values, with aliases (*name) written out"
        else:
            left += [(child, depth + 1) for child in _children(node)]
            continue
        raise yaml.constructor.ConstructorError(None, None, why, node.start_mark)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def read_yaml(path: Path) -> dict[str, Any]:
    """The keys of a YAML file. Raises ConfigError where it cannot be read or is not a mapping of names to values."""
    return parse_yaml(content_of(path), path)


def content_of(path: Path) -> bytes:
    """The bytes of a file. Raises ConfigError where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def parse_yaml(content: bytes, path: Path) -> dict[str, Any]:
    """The keys of ``content``, which ``path`` holds (see :func:`read_yaml`)."""
    if len(content) > LARGEST:
        raise ConfigError(f"{path} has {len(content)} bytes; no configuration has more than {LARGEST}")
    try:
        values = yaml.load(content.decode("utf-8"), Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or a number of thousands of digits
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"{path}: a file of names and values (key: value) is expected")
    return values
