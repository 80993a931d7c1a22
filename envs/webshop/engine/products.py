"""Products: the original's item files read one record at a time, and what the shop keeps of a record.

The files are described in docs/environments.md. Of a record the shop reads ``asin``, ``name``, ``full_description``,
``small_description``, ``pricing``, ``customization_options``, ``category``, ``query`` and ``product_category``; every
other key is ignored, as in the original.
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

DEFAULT_PRICE = 100.0  # the original's price of a product that has none
NO_ATTRIBUTES = ("DUMMY_ATTR",)  # the original's attributes of a product that has none
_LONGEST_ASIN = 10
_TEXTS = ("name", "full_description", "category", "query", "product_category")
_KINDS: dict[type, str] = {str: "a text", list: "a list", dict: "an object"}
MISSING = object()  # stands for the value of a key that is not there
Options = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Product:
    """A product as pages, search and reward need it. ``price`` in dollars; ``options`` are (name, values)."""

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
        """The text that is searched: name, description, first bullet and options, lower case."""
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
    """The records of an item file, streamed. Raises DataError for a file that is missing, cut off or no list."""
    import ijson  # here: task sets are known without the extra webshop

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
        reason = " ".join(str(error).split())  # the parser's message draws a picture over several lines
        raise DataError(
            f"{path} is cut off or damaged after {number} products ({reason}). Download it again and compare sizes"
        ) from error
    if number == 0:
        raise DataError(f"{path} holds no product: expected a JSON list of records, each with asin, name, pricing, ...")


def read_table(path: Path, entries: type) -> dict[str, Any]:
    """A JSON object from asin to ``entries`` (dict: attributes, list: instructions). Raises DataError for any other."""
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
    """What the shop keeps of ``record``; ``where`` (file and position) is for errors."""
    asin = expect(record.get("asin", MISSING), str, where, "asin")
    where = f"{where} ({asin})"
    pricing = _pricing(expect(record.get("pricing") or "", str, where, "pricing"), where)
    texts = {key: expect(record.get(key, MISSING), str, where, key) for key in _TEXTS}
    bullets = record.get("small_description", MISSING)
    bullets = bullets if isinstance(bullets, list) else [expect(bullets, str, where, "small_description")]
    return Product(
        asin=asin,
        name=texts["name"],
        description=texts["full_description"],
        bullets=texts_of(bullets, where, "small_description"),
        price=_price(asin, pricing),
        price_label=" to ".join(f"${price}" for price in pricing),
        category=texts["category"],
        query=texts["query"].lower().strip(),
        product_category=texts["product_category"],
        attributes=texts_of(attributes.get("attributes", list(NO_ATTRIBUTES)), f"{asin} of --attrs", "attributes"),
        options=_options(record.get("customization_options", MISSING), where),
    )


def expect(value: Any, kind: type, where: str, key: str) -> Any:
    """``value`` where it is of the kind that the original's files have under ``key``. Raises DataError otherwise."""
    if value is MISSING:
        raise DataError(f"{where}: key {key!r} is missing; docs/environments.md lists the keys")
    if kind is str and isinstance(value, str) and well_formed(value)[1]:
        raise DataError(f"{where}: {key} is {ascii(value[:SHOWN])}, which holds a lone surrogate and is no Unicode")
    if not isinstance(value, kind):
        raise DataError(f"{where}: {key} is {shown(value)}, which is not {_KINDS[kind]}; see docs/environments.md")
    return value


def texts_of(value: Any, where: str, key: str) -> tuple[str, ...]:
    """A list of texts. Raises DataError for anything else."""
    return tuple(expect(text, str, where, f"an entry of {key}") for text in expect(value, list, where, key))


def is_listed(record: Mapping[str, Any], seen: set[str]) -> bool:
    """Whether the original lists the record: an asin of at most 10 characters that did not come before."""
    asin = str(record.get("asin", "nan"))
    return asin != "nan" and len(asin) <= _LONGEST_ASIN and asin not in seen


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path} cannot be read ({error}); give the path of the original file (--items, --attrs, --human)")


def _pricing(text: str, where: str) -> list[float]:
    """One price, or the two ends of a range: ``$34.00`` or ``$12.99$45.00``."""
    if not text:
        return [DEFAULT_PRICE]
    try:
        prices = [float(re.sub(r"[^\d.]", "", part)) for part in text.split("$")[1:]]
    except ValueError as error:
        raise DataError(f"{where}: pricing {text!r} is not of the form '$12.99' or '$12.99$45.00'") from error
    if any(math.isinf(price) for price in prices):
        raise DataError(f"{where}: pricing {text[:SHOWN]!r}... is larger than any number")
    if not prices:
        raise DataError(f"{where}: pricing {text!r} holds no dollar amount; leave it empty where there is no price")
    return prices[:2]


def _price(asin: str, pricing: list[float]) -> float:
    """The price that counts. Of a range, one uniform draw: the original's is unseeded, ours belongs to the asin."""
    if len(pricing) == 1:
        return pricing[0]
    return random.Random(seed_of("webshop", "price", asin)).uniform(*pricing)


def _options(customization: Any, where: str) -> Options:
    """Lower-case option names and values; an option without a list is left out."""
    key = "customization_options"
    values: dict[str, tuple[str, ...]] = {}
    for name, contents in expect(customization or {}, dict, where, key).items():
        if contents is not None:
            expect(name, str, where, f"a name in {key}")
            at = f"{where}, {key} {name!r}"
            entries = [
                expect(entry, dict, at, "an entry") for entry in expect(contents, list, where, f"{key} {name!r}")
            ]
            texts = [expect(entry.get("value", MISSING), str, at, "value") for entry in entries]
            values[name.lower()] = tuple(text.strip().replace("/", " | ").lower() for text in texts)
    return tuple(values.items())
