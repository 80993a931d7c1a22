"""Synthetic products in the original's schema; titles, attributes, options and prices fit their category.

They serve the nano tier and tests, since users download the original files themselves.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from r3l.envs.webshop.engine.catalogue import Source
from r3l.envs.webshop.engine.goals import human_goals
from r3l.envs.webshop.engine.products import product_of

from r3l.core.seeds import seed_of

_WISH = re.compile(
    r"i want an? (?P<kind>.+?) that is (?P<attributes>.+?)(?:, in (?P<options>.+?))?"
    r"(?:, and price lower than (?P<limit>[\d.]+) dollars)?"
)

_COLORS = ("black", "white", "red", "blue", "green", "pink", "grey", "brown")
_SIZES = ("small", "medium", "large", "x-large")
_PACKS = ("pack of 1", "pack of 2", "pack of 4", "pack of 6")
_SCENTS = ("rose", "mint", "vanilla", "citrus")
_LENGTHS = ("3 ft", "6 ft", "10 ft")
_FLAVORS = ("cocoa", "honey", "lemon", "berry")
OPTIONS = {  # by name; no value belongs to two
    "color": _COLORS,
    "size": _SIZES,
    "count": _PACKS,
    "scent": _SCENTS,
    "length": _LENGTHS,
    "flavor": _FLAVORS,
}
_SYLLABLES = ("ba", "do", "ka", "lu", "mi", "no", "ra", "su", "te", "vi", "zo", "pe")
_CARE = ("good value", "great gift", "made with care", "easy to use", "tested for years", "loved by families")


@dataclass(frozen=True)
class _Kind:
    """A kind of product; ``prices`` in dollars, ``attributes`` and ``options`` are the possible values."""

    name: str
    query: str
    path: str
    prices: tuple[int, int]
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Wish:
    """The request of an instruction of the synthetic catalogue: a kind of product with certain properties.

    ``kind``: the product's name, such as shirt. ``options``: values to choose, such as a colour. ``limit``:
    price limit in dollars, None without one.
    """

    kind: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    limit: float | None


def _kinds(path: str, attributes: str, *rows: tuple[str, int, int, str]) -> tuple[_Kind, ...]:
    """The kinds of a category; a row is (name, lowest price, highest price, letters of options)."""
    letters_of = {"c": "color", "s": "size", "p": "count", "n": "scent", "l": "length", "f": "flavor"}
    kinds = []
    for name, low, high, letters in rows:
        kind = _Kind(
            name=name,
            query=f"{name}s",
            path=f"{path} › {name.title()}s",
            prices=(low, high),
            attributes=tuple(attributes.split(", ")),
            options=tuple((letters_of[letter], OPTIONS[letters_of[letter]]) for letter in letters),
        )
        kinds.append(kind)
    return tuple(kinds)


_CATEGORIES: dict[str, tuple[_Kind, ...]] = {
    "beauty": _kinds(
        "Beauty & Personal Care › Daily Care",
        "cruelty free, alcohol free, long lasting, natural, organic, gentle",
        ("shampoo", 6, 30, "np"),
        ("lipstick", 5, 25, "cp"),
        ("face cream", 8, 60, "np"),
        ("hair brush", 4, 20, "cs"),
        ("body lotion", 5, 30, "np"),
        ("nail polish", 3, 15, "cp"),
    ),
    "electronics": _kinds(
        "Electronics › Accessories",
        "wireless, waterproof, portable, lightweight, high speed, durable",
        ("phone case", 6, 30, "cs"),
        ("charging cable", 4, 25, "cl"),
        ("speaker", 15, 150, "cs"),
        ("keyboard", 15, 120, "cs"),
        ("camera bag", 12, 80, "cs"),
        ("headset", 15, 140, "cl"),
    ),
    "fashion": _kinds(
        "Clothing, Shoes & Jewelry › Everyday",
        "cotton, machine washable, slim fit, soft, warm, breathable",
        ("shirt", 8, 50, "cs"),
        ("jacket", 20, 150, "cs"),
        ("skirt", 10, 60, "cs"),
        ("sweater", 15, 90, "cs"),
        ("hat", 6, 35, "cs"),
        ("sock", 4, 20, "cp"),
    ),
    "garden": _kinds(
        "Home & Kitchen › Furniture & Decor",
        "wooden, easy clean, sturdy, modern, foldable, handmade",
        ("chair", 25, 300, "cs"),
        ("lamp", 12, 120, "cs"),
        ("rug", 15, 200, "cs"),
        ("curtain", 10, 80, "cl"),
        ("pillow", 8, 45, "cs"),
        ("bookcase", 40, 400, "cs"),
    ),
    "grocery": _kinds(
        "Grocery & Gourmet Food › Pantry",
        "gluten free, sugar free, organic, vegan, low sodium, crunchy",
        ("granola bar", 3, 25, "fp"),
        ("tea", 4, 30, "fp"),
        ("cookie", 3, 20, "fp"),
        ("candy", 2, 18, "fp"),
        ("popcorn", 3, 20, "fp"),
        ("oatmeal", 4, 24, "fp"),
    ),
}
_ALL = tuple((category, kind) for category, kinds in _CATEGORIES.items() for kind in kinds)


def records(count: int, seed: int) -> Iterator[tuple[dict[str, Any], dict[str, Any], list[Any]]]:
    """Generate ``count`` products in the format of the original's files, by ``seed``.

    Yields for each product its record, its entry of the attributes file, and its entries of the instructions
    file.
    """
    for index in range(count):
        # Two attributes, and three values of each option in the order in which the kind lists them.
        rng = random.Random(seed_of("webshop", "synthetic", seed, index))
        category, kind = _ALL[index % len(_ALL)]
        attributes = rng.sample(kind.attributes, 2)
        options: dict[str, list[str]] = {}
        for name, values in kind.options:
            sample = set(rng.sample(values, 3))
            options[name] = [value for value in values if value in sample]
        asin = f"B{index:04d}"
        brand = "".join(rng.choices(_SYLLABLES, k=2)).title()
        care = f"This {kind.name} is {rng.choice(attributes)} and {rng.choice(_CARE)}."
        images = f"https://example.org/{asin}"
        low, high = kind.prices
        price = low + (high - low) * rng.random() ** 2 + 0.49  # low prices are more frequent
        record = {
            "asin": asin,
            "name": f"{brand} {' '.join(attributes)} {kind.name}",
            "full_description": "",
            "small_description": [care],
            "pricing": f"${price:.2f}",
            "customization_options": {
                name: [{"value": value, "image": f"{images}/{value}.jpg"} for value in values]
                for name, values in options.items()
            },
            "category": category,
            "query": kind.query,
            "product_category": kind.path,
            "images": [f"{images}.jpg"],
        }

        # Three instructions: an easy one, a hard one, and one of either sort.
        levels = (False, True, rng.random() < 0.5)
        wishes = [{"asin": asin} | _wish(rng, kind, attributes, options, hard) for hard in levels]
        yield record, {"attributes": attributes}, wishes


def sources(count: int, seed: int) -> Iterator[Source]:
    """Generate ``count`` products with their goals, three each, by ``seed``."""
    for number, (record, attributes, wishes) in enumerate(records(count, seed)):
        product = product_of(record, attributes, f"synthetic record {number}")
        yield Source(product, tuple(human_goals(product, wishes, "synthetic wishes")))


def is_wish(instruction: str) -> bool:
    """Whether :func:`read_wish` can parse ``instruction``."""
    return _WISH.fullmatch(instruction) is not None


def read_wish(instruction: str) -> Wish:
    """Parse an instruction of the synthetic catalogue into the product, properties and price it asks for.

    Raises ValueError for any other text.
    """
    match = _WISH.fullmatch(instruction)
    if match is None:
        raise ValueError(f"not an instruction of the synthetic catalogue: {instruction!r}")
    options = tuple(match["options"].split(" and ")) if match["options"] else ()
    limit = float(match["limit"]) if match["limit"] else None
    return Wish(match["kind"], tuple(match["attributes"].split(" and ")), options, limit)


def is_hard(options: tuple[Any, ...]) -> bool:
    """True if a goal of the synthetic catalogue with these wanted ``options`` is hard: if they are two.

    A hard goal has two options and two attributes, an easy goal one of each.
    """
    return len(options) == 2


def _wish(
    rng: random.Random, kind: _Kind, attributes: list[str], options: dict[str, list[str]], hard: bool
) -> dict[str, Any]:
    """Draw an instruction that asks for a product with these attributes and options, without a price limit.

    A ``hard`` instruction names all attributes and an option of each group, an easy one only one attribute
    and one option.
    """
    wanted = list(attributes) if hard else [rng.choice(attributes)]
    groups = sorted(options) if hard else [rng.choice(sorted(options))]
    values = [rng.choice(options[group]) for group in groups]
    article = "an" if kind.name[0] in "aeiou" else "a"
    text = f"i want {article} {kind.name} that is {' and '.join(wanted)}, in {' and '.join(values)}"
    return {"instruction": text, "instruction_attributes": wanted, "instruction_options": values}
