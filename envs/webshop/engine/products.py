"""Products, parsed from the original's item files one record at a time.

docs/environments.md describes the files. The keys used of a record are ``asin``, ``name``,
``full_description``, ``small_description``, ``pricing``, ``customization_options``, ``category``, ``query``
and ``product_category``; every other key is ignored, as in the original.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from r3l.core.errors import DataError
from r3l.core.seeds import seed_of
from r3l.core.text import SHOWN, shown, well_formed

DEFAULT_PRICE = 100.0  # the original's price for a product without one
NO_ATTRIBUTES = ("DUMMY_ATTR",)  # the original's attributes for a product without any
_LONGEST_ASIN = 10
_TEXTS = ("name", "full_description", "category", "query", "product_category")
_KINDS: dict[type, str] = {str: "a text", list: "a list", dict: "an object"}
MISSING = object()  # marks the value of a missing key
Options = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Product:
    """The fields of a product that pages, search and reward use.

    ``bullets``: the lines of its short description. ``price`` in dollars; ``price_label``: how pages show it.
    ``query``: search words under which the original lists it. ``product_category``: a path of categories
    joined by ``›``. ``options``: a pair (name, values to choose from) per option.
    """

    asin: str
    name: str
    description: str
    bullets: tuple[str, ...]
    price: float
    price_label: str
    category: str
    query: str
    product_category: str
    attributes: tuple[str, ...]
    options: Options

    def document(self) -> str:
        """The text for the search index: name, description, first bullet and options, lower case."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options)
        return " ".join([self.name, self.description, *(self.bullets[:1] or [""]), options]).lower()

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str | bytes) -> Product:
        fields = json.loads(line)
        for name in ("bullets", "attributes"):
            fields[name] = tuple(fields[name])
        fields["options"] = tuple((name, tuple(values)) for name, values in fields["options"])
        return cls(**fields)


def read_items(path: Path) -> Iterator[Mapping[str, Any]]:
    """Stream the records of an item file.

    Raises DataError if it is missing, truncated, empty or not a list of objects.
    """
    import ijson  # a late import: task sets are listed without the extra webshop

    number = 0
    try:
        with path.open("rb") as file:
            for record in ijson.items(file, "item", use_float=True):
                if not isinstance(record, dict):
                    raise DataError(f"{path}: record {number} is {shown(record)}, not an object with an asin")
                yield record
                number += 1
    except OSError as error:
        raise _unreadable(path, error) from error
    except ijson.JSONError as error:
        reason = " ".join(str(error).split())  # the parser's message draws the position over several lines
        raise DataError(
            f"{path} is cut off or damaged after {number} products ({reason}). Download it again",
        ) from error
    if number == 0:
        raise DataError(
            f"{path} holds no product: expected a JSON list of records, each with asin, name, pricing, ...",
        )


def read_table(path: Path, entries: type) -> dict[str, Any]:
    """Read a JSON object that maps asins to entries of type ``entries`` (dict or list).

    Raises DataError if the file is missing, damaged, or has other contents.
    """
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is cut off or damaged ({error}). Download the file again") from error
    if not isinstance(table, dict):
        raise DataError(f"{path} is a JSON {type(table).__name__}; expected an object keyed by asin")
    for asin, entry in table.items():
        if not isinstance(entry, entries):
            raise DataError(
                f"{path}: asin {asin} has {shown(entry)}, not a {entries.__name__}; see docs/environments.md"
            )
    return table


def product_of(record: Mapping[str, Any], attributes: Mapping[str, Any], where: str) -> Product:
    """Check a record of the item file and convert it to a product. Raises DataError naming a wrong key.

    ``attributes``: the product's entry in the attribute file, {} without one. Without a price it costs
    DEFAULT_PRICE; in a price range, a price drawn by asin. ``where``: file and position of the record, for
    error messages.
    """
    asin = expect(record.get("asin", MISSING), str, where, "asin")
    where = f"{where} ({asin})"
    pricing = _pricing(expect(record.get("pricing") or "", str, where, "pricing"), where)
    price = pricing[0]
    if len(pricing) > 1:  # the original draws a price in the range, without a seed; ours depends on the asin
        price = random.Random(seed_of("webshop", "price", asin)).uniform(*pricing)
    texts = {key: expect(record.get(key, MISSING), str, where, key) for key in _TEXTS}
    bullets = record.get("small_description", MISSING)
    if not isinstance(bullets, list):
        bullets = [expect(bullets, str, where, "small_description")]
    listed = attributes.get("attributes", list(NO_ATTRIBUTES))
    return Product(
        asin=asin,
        name=texts["name"],
        description=texts["full_description"],
        bullets=texts_of(bullets, where, "small_description"),
        price=price,
        price_label=" to ".join(f"${price}" for price in pricing),
        category=texts["category"],
        query=texts["query"].lower().strip(),
        product_category=texts["product_category"],
        attributes=texts_of(listed, f"{asin} of --attrs", "attributes"),
        options=_options(record.get("customization_options", MISSING), where),
    )


def expect(value: Any, kind: type, where: str, key: str) -> Any:
    """Return ``value``, the entry ``key`` of a record, if it is of type ``kind``; else raise DataError.

    ``where``: file and position of the record, for the error.
    """
    if value is MISSING:
        raise DataError(f"{where}: key {key!r} is missing; docs/environments.md lists the keys")
    if kind is str and isinstance(value, str) and well_formed(value)[1]:
        raise DataError(
            f"{where}: {key} is {ascii(value[:SHOWN])}, which has a lone surrogate and is not valid Unicode"
        )
    if not isinstance(value, kind):
        raise DataError(
            f"{where}: {key} is {shown(value)}, which is not {_KINDS[kind]}; see docs/environments.md",
        )
    return value


def texts_of(value: Any, where: str, key: str) -> tuple[str, ...]:
    """Return ``value``, the entry ``key`` of a record, as a tuple of texts.

    Raises DataError, with ``where`` (file and position of the record) and ``key``, unless it is a list of
    texts.
    """
    texts = expect(value, list, where, key)
    return tuple(expect(text, str, where, f"an entry of {key}") for text in texts)


def is_listed(record: Mapping[str, Any], seen: set[str]) -> bool:
    """Whether the original shows the record: it has an asin of at most 10 characters, not yet in ``seen``."""
    asin = str(record.get("asin", "nan"))
    return asin != "nan" and len(asin) <= _LONGEST_ASIN and asin not in seen


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"{path} cannot be read ({error}); give the path of the original file (--items, --attrs, --human)",
    )


def _pricing(text: str, where: str) -> list[float]:
    """Parse one price, or the two ends of a range: ``$34.00`` or ``$12.99$45.00``."""
    if not text:
        return [DEFAULT_PRICE]
    try:
        prices = [float(re.sub(r"[^\d.]", "", part)) for part in text.split("$")[1:]]
    except ValueError as error:
        raise DataError(f"{where}: pricing {text!r} is not of the form '$12.99' or '$12.99$45.00'") from error
    if any(math.isinf(price) for price in prices):
        raise DataError(f"{where}: pricing {text[:SHOWN]!r}... is larger than any number")
    if not prices:
        raise DataError(
            f"{where}: pricing {text!r} has no dollar amount; leave it empty if there is no price",
        )
    return prices[:2]


def _options(customization: Any, where: str) -> Options:
    """Lower-case names and values of options; an option without a list is ignored."""
    key = "customization_options"
    values: dict[str, tuple[str, ...]] = {}
    for name, contents in expect(customization or {}, dict, where, key).items():
        if contents is None:
            continue
        expect(name, str, where, f"a name in {key}")
        at = f"{where}, {key} {name!r}"
        entries = expect(contents, list, where, f"{key} {name!r}")
        entries = [expect(entry, dict, at, "an entry") for entry in entries]
        texts = [expect(entry.get("value", MISSING), str, at, "value") for entry in entries]
        values[name.lower()] = tuple(text.strip().replace("/", " | ").lower() for text in texts)
    return tuple(values.items())
