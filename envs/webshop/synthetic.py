"""A seeded catalogue in the original's schema: titles, attributes, options and prices that belong to their category.

For the nano tier, tests and measurements; the original files are a download of the user's own. ``short`` records
have titles of a few words; ``full`` ones have the size of the original's (about 4 KB a record, 100 distinct terms).
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from r3l.envs.webshop.catalogue import Source
from r3l.envs.webshop.goals import human_goals
from r3l.envs.webshop.products import product_of

from r3l.core.seeds import seed_of

_BASE36 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_STEP, _SPACE = 1_000_003_729, 36**8  # coprime, so that asins are distinct and not in order
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
_SYLLABLES = ("ba", "do", "ka", "lu", "mi", "no", "ra", "su", "te", "vi", "zo", "pe")
_CARE = ("good value", "great gift", "made with care", "easy to use", "tested for years", "loved by families")


@dataclass(frozen=True)
class _Kind:
    """A kind of product: its name, query, path below the category, prices in dollars, and what varies."""

    name: str
    query: str
    path: str
    prices: tuple[int, int]
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Wish:
    """An instruction of this catalogue, read back. ``limit`` in dollars, None where there is none."""

    kind: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    limit: float | None


def _kinds(path: str, attributes: str, *rows: tuple[str, int, int, str]) -> tuple[_Kind, ...]:
    groups = {
        "c": ("color", _COLORS),
        "s": ("size", _SIZES),
        "p": ("count", _PACKS),
        "n": ("scent", _SCENTS),
        "l": ("length", _LENGTHS),
        "f": ("flavor", _FLAVORS),
    }
    pool = tuple(attributes.split(", "))
    return tuple(
        _Kind(name, f"{name}s", f"{path} › {name.title()}s", (low, high), pool, tuple(groups[g] for g in letters))
        for name, low, high, letters in rows
    )


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


def records(count: int, seed: int, full: bool = False) -> Iterator[tuple[dict[str, Any], dict[str, Any], list[Any]]]:
    """``count`` records, each with its entries in the attributes file and in the human instructions file."""
    for index in range(count):
        rng = random.Random(seed_of("webshop", "synthetic", seed, index))
        category, kind = _ALL[index % len(_ALL)]
        attributes = rng.sample(kind.attributes, 2)
        options = {name: _pick(rng, values) for name, values in kind.options}
        asin = _asin(index, seed) if full else f"B{index:04d}"
        record = {
            "asin": asin,
            "name": _title(rng, kind, attributes, full),
            "full_description": _prose(rng, kind, attributes, 9) if full else "",
            "small_description": [_prose(rng, kind, attributes, 2 if full else 1) for _ in range(5 if full else 1)],
            "pricing": _pricing(rng, kind),
            "customization_options": {
                name: [{"value": value, "image": f"https://example.org/{asin}/{value}.jpg"} for value in values]
                for name, values in options.items()
            },
            "category": category,
            "query": kind.query,
            "product_category": kind.path,
            "images": [f"https://example.org/{asin}.jpg"],
        }
        entry = {"asin": asin}
        wishes = [entry | _wish(rng, kind, attributes, options, hard) for hard in ((False, True, rng.random() < 0.5))]
        yield record | (_ballast(rng, asin) if full else {}), {"attributes": attributes}, wishes


def sources(count: int, seed: int, full: bool = False, goals_of: int | None = None) -> Iterator[Source]:
    """The records as the catalogue takes them. ``goals_of``: only the first so many products have goals."""
    for number, (record, attributes, wishes) in enumerate(records(count, seed, full)):
        product = product_of(record, attributes, f"synthetic record {number}")
        instructions = wishes if goals_of is None or number < goals_of else []
        yield Source(product, tuple(human_goals(product, instructions, "synthetic wishes")))


def is_wish(instruction: str) -> bool:
    """Whether :func:`read_wish` can read it."""
    return _WISH.fullmatch(instruction) is not None


def read_wish(instruction: str) -> Wish:
    """What an instruction of this catalogue asks for. Raises ValueError for any other text."""
    match = _WISH.fullmatch(instruction)
    if match is None:
        raise ValueError(f"not an instruction of the synthetic catalogue: {instruction!r}")
    options = tuple(match["options"].split(" and ")) if match["options"] else ()
    limit = float(match["limit"]) if match["limit"] else None
    return Wish(match["kind"], tuple(match["attributes"].split(" and ")), options, limit)


def is_hard(options: tuple[Any, ...]) -> bool:
    """Two options and two attributes are wanted, else one of each."""
    return len(options) == 2


def _wish(
    rng: random.Random, kind: _Kind, attributes: list[str], options: dict[str, list[str]], hard: bool
) -> dict[str, Any]:
    wanted = list(attributes) if hard else [rng.choice(attributes)]
    groups = sorted(options) if hard else [rng.choice(sorted(options))]
    values = [rng.choice(options[group]) for group in groups]
    article = "an" if kind.name[0] in "aeiou" else "a"
    text = f"i want {article} {kind.name} that is {' and '.join(wanted)}, in {' and '.join(values)}"
    return {"instruction": text, "instruction_attributes": wanted, "instruction_options": values}


def _pick(rng: random.Random, values: tuple[str, ...]) -> list[str]:
    sample = set(rng.sample(values, 3))
    return [value for value in values if value in sample]


def _pricing(rng: random.Random, kind: _Kind) -> str:
    low, high = kind.prices
    price = low + (high - low) * rng.random() ** 2 + 0.49  # cheap ones are more frequent
    return f"${price:.2f}"


def _title(rng: random.Random, kind: _Kind, attributes: list[str], full: bool) -> str:
    brand = "".join(rng.choices(_SYLLABLES, k=2)).title()
    short = f"{brand} {' '.join(attributes)} {kind.name}"
    if not full:
        return short
    other = " and ".join(rng.sample(_CARE, 2))
    return f"{short.title()} Model {rng.randrange(100_000)}, {kind.query.title()} for Home and Travel, {other.title()}"


def _prose(rng: random.Random, kind: _Kind, attributes: list[str], sentences: int) -> str:
    texts = []
    for _ in range(sentences):
        text = f"This {kind.name} is {rng.choice(attributes)} and {rng.choice(_CARE)}"
        if sentences > 1:
            one, two, three, four = _words(rng, 4)
            text += f"; part {one} of the {two} {three} line with {four}"
        texts.append(f"{text}.")
    return " ".join(texts)


def _words(rng: random.Random, count: int) -> list[str]:
    """Words of a language of 20,000, the n-th of them 1 / n as frequent as the first."""
    words, cumulative = _language()
    return rng.choices(words, cum_weights=cumulative, k=count)


@lru_cache(maxsize=1)
def _language() -> tuple[list[str], list[float]]:
    rng = random.Random(seed_of("webshop", "language"))
    words = sorted({"".join(rng.choices(_SYLLABLES, k=4)) for _ in range(40_000)})[:20_000]
    rng.shuffle(words)
    return words, list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))


def _asin(index: int, seed: int) -> str:
    number = (index * _STEP + seed_of("webshop", "asin", seed)) % _SPACE
    digits = []
    for _ in range(8):
        number, digit = divmod(number, 36)
        digits.append(_BASE36[digit])
    return "B0" + "".join(reversed(digits))


def _ballast(rng: random.Random, asin: str) -> dict[str, Any]:
    """What the original's records carry and the shop drops; it counts in the memory of an in-memory copy."""
    return {
        "brand": "",
        "list_price": "",
        "availability_quantity": None,
        "total_reviews": "",
        "total_answered_questions": "",
        "seller_id": "",
        "fast_track_message": "",
        "product_information": {"ASIN": asin, "Date First Available": "May 1, 2021", "Package Dimensions": "9 x 6 x 2"},
        "brand_url": f"https://example.org/brands/{asin}",
        "availability_status": "In Stock. Ships from and sold by the shop.",
        "seller_name": "the shop",
        "fulfilled_by_amazon": "",
        "aplus_present": "",
        "small_description_old": "About this item " + " ".join(_words(rng, 150)),
        "average_rating": round(rng.uniform(1, 5), 1),
        "page": rng.randrange(20),
    }
