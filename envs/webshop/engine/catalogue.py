"""A catalogue: a folder of read-only files that any number of worker processes share.

``shop.db`` (SQLite) has one row per product, goal, term and name with nouns; the postings are memory-mapped
arrays. The page cache of the machine keeps one copy of the used parts, so no server has to be started or
exposed. A folder is built under a temporary name and renamed, so an incomplete one is never opened.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from r3l.envs.webshop.engine.goals import Goal, human_goals, in_order, synthetic_goals
from r3l.envs.webshop.engine.index import Index, IndexWriter, Term
from r3l.envs.webshop.engine.products import Product, is_listed, product_of, read_items, read_table, texts_of
from r3l.envs.webshop.engine.reward import model_version, nouns

from r3l.core.errors import ConfigError, DataError
from r3l.files.unpacking import most, unpacked
from r3l.files.writing import replacing

T = TypeVar("T")
SCHEMA = 1
HITS = 50  # products that a search returns (the original's)
PAGE_SIZE = 10  # products on a results page (the original's)
_ALL_NOUNS = 20_000  # larger catalogues store the nouns of goals only, since a name takes 2.6 ms
_CREATE = """
CREATE TABLE products (number INTEGER PRIMARY KEY, asin TEXT UNIQUE, category TEXT, query TEXT, body BLOB);
CREATE TABLE goals (number INTEGER PRIMARY KEY, body TEXT);
CREATE TABLE terms (term TEXT PRIMARY KEY, start INTEGER, size INTEGER) WITHOUT ROWID;
CREATE TABLE nouns (name TEXT PRIMARY KEY, nouns TEXT) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Source:
    """A product with its goals, maybe none; catalogues take them in the order of the item file."""

    product: Product
    goals: tuple[Goal, ...]


@dataclass(frozen=True)
class Meta:
    """Contents of a catalogue's meta.json.

    ``schema``: version of the file format. ``products``, ``goals``: their numbers. ``page_size``: results on
    a page. ``total_length``: number of terms in all documents of the search index. ``sha256`` covers every
    product, every goal and the page size. ``nouns``: version of the language model that finds nouns.
    """

    schema: int
    name: str
    products: int
    goals: int
    page_size: int
    total_length: int
    sha256: str
    nouns: str

    @property
    def id(self) -> str:
        """Name, number of products and first digits of the hash; part of task ids."""
        return f"{self.name}-{self.products}-{self.sha256[:8]}"


def original_files(
    items: Path,
    attributes: Path,
    human: Path | None,
    limit: int | None = None,
) -> Iterator[Source]:
    """Stream products and goals of the original's files (schema: r3l.envs.webshop.engine.products).

    ``items``: product records; ``attributes``: their attributes; ``human``: instructions that people wrote,
    None: goals come from the records' own instructions. ``limit``: number of records to read, None for all;
    those that the original does not show (``is_listed``) count but are left out. Raises DataError for a
    missing or damaged file.
    """
    known = read_table(attributes, dict)
    instructions = read_table(human, list) if human is not None else {}
    seen: set[str] = set()
    for number, record in enumerate(read_items(items)):
        if number == limit:
            return
        if not is_listed(record, seen):
            continue
        entry = known.get(str(record["asin"]), {})
        texts_of(entry.get("attributes", []), f"{attributes}, asin {record['asin']}", "attributes")
        product = product_of(record, entry, f"{items}, record {number}")
        seen.add(product.asin)
        if human is not None:
            goals = human_goals(product, instructions.get(product.asin, ()), str(human))
        else:
            goals = synthetic_goals(product, known.get(product.asin, {}), str(attributes))
        yield Source(product, tuple(goals))


def build(sources: Iterable[Source], folder: Path, name: str, page_size: int = PAGE_SIZE) -> Meta:
    """Write a catalogue (products, goals, search index) to ``folder``, which appears only when complete.

    ``name``: part of its id. ``page_size``: products on a page of results. Raises ConfigError if the folder
    exists, DataError if ``sources`` reads a damaged file, and RunDirectoryError, or from SQLite DataError, if
    the disk is full.
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists; remove it first, or build into another folder")
    try:
        with replacing(folder) as partial:
            meta = _write(sources, partial, name, page_size)
            # Everything must be on disk before the folder gets its name.
            for path in partial.iterdir():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
    except sqlite3.Error as error:
        raise DataError(
            f"catalogue {folder} could not be written ({error}); nothing was kept. Free space",
        ) from error
    return meta


def _write(sources: Iterable[Source], folder: Path, name: str, page_size: int) -> Meta:
    """Write shop.db, the arrays of the search index and meta.json to the existing ``folder``."""
    # If the build fails, the folder is deleted: no journal is needed. One transaction: a million take hours.
    database = sqlite3.connect(folder / "shop.db", isolation_level=None)
    database.executescript(f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; {_CREATE}")
    database.execute("BEGIN")
    digest = hashlib.sha256(f"{SCHEMA}/{page_size}\n".encode())
    writer = IndexWriter(folder)

    # Products, one at a time: the original's file has a million.
    asins: list[str] = []
    goals: list[Goal] = []
    for source in sources:
        product = source.product
        line = product.to_json().encode()
        digest.update(line + b"\n")
        row = (len(asins), product.asin, product.category, product.query, zlib.compress(line, 1))
        database.execute("INSERT INTO products VALUES (?, ?, ?, ?, ?)", row)
        writer.add(product.document())
        asins.append(product.asin)
        goals += source.goals

    # Goals and index terms
    lines = [goal.to_json() for goal in in_order(goals)]
    digest.update("\n".join(lines).encode())
    database.executemany("INSERT INTO goals VALUES (?, ?)", enumerate(lines))
    database.executemany("INSERT INTO terms VALUES (?, ?, ?)", sorted(writer.finish(asins)))

    # Nouns of names, which the reward compares
    names = {goal.name for goal in goals}
    if len(asins) <= _ALL_NOUNS:
        bodies = database.execute("SELECT body FROM products").fetchall()
        names |= {_product(body).name for (body,) in bodies}
    rows = ((name, json.dumps(nouns(name))) for name in sorted(names))
    database.executemany("INSERT INTO nouns VALUES (?, ?)", rows)

    for column in ("category", "query"):
        database.execute(f"CREATE INDEX by_{column} ON products ({column}, number)")
    database.execute("COMMIT")
    database.close()
    meta = Meta(
        schema=SCHEMA,
        name=name,
        products=len(asins),
        goals=len(goals),
        page_size=page_size,
        total_length=writer.total_length,
        sha256=digest.hexdigest(),
        nouns=model_version(),
    )
    (folder / "meta.json").write_text(json.dumps(asdict(meta), indent=1) + "\n", encoding="utf-8")
    return meta


class Catalogue:
    """A catalogue opened for reading: products, goals and search. Not thread-safe.

    ``search(query)`` gives the numbers of the best 50 products, ``product(number)`` one product,
    ``nouns(name)`` the nouns of a name; each remembers its last 4,096 results. Reading a damaged file raises
    DataError. ``Catalogue.at`` opens each folder once per process.
    """

    def __init__(self, folder: Path) -> None:
        """Raises DataError unless the folder is a complete catalogue of this release."""
        self.folder = folder
        self.meta = read_meta(folder)
        with self._reading():
            # immutable: since the file never changes, SQLite needs no locks and no journal
            self._database = sqlite3.connect(f"file:{folder / 'shop.db'}?mode=ro&immutable=1", uri=True)
            for table, expected in (("products", self.meta.products), ("goals", self.meta.goals)):
                (last,) = self._database.execute(f"SELECT MAX(number) FROM {table}").fetchone()
                if (-1 if last is None else last) != expected - 1:
                    raise DataError(
                        f"{self.folder} is incomplete: {table} end at {last}, its meta.json says {expected}"
                    )
        self._index = Index(folder, self.meta.total_length, self._term)
        self.search = lru_cache(maxsize=4096)(self._search)
        self.product = lru_cache(maxsize=4096)(self._product)
        self.nouns = lru_cache(maxsize=4096)(self._nouns)

    @classmethod
    @lru_cache(maxsize=8)
    def at(cls, folder: Path) -> Catalogue:
        """The catalogue in ``folder``, opened once per process."""
        return cls(folder)

    def goal(self, number: int) -> Goal:
        """A goal by its session number. Raises DataError for a number that the catalogue does not have."""
        row = self._one("SELECT body FROM goals WHERE number = ?", number)
        if row is None:
            raise DataError(
                f"goal {number} is outside catalogue {self.meta.id}, which has goals 0 to "
                f"{self.meta.goals - 1}; this task set belongs to a larger catalogue (1,000 products have "
                f"only 13 human goals)"
            )
        return Goal.from_json(row[0])

    def number(self, asin: str) -> int | None:
        """The position (from 0) of the product ``asin`` in the catalogue; None if it is not there."""
        row = self._one("SELECT number FROM products WHERE asin = ?", asin)
        return None if row is None else int(row[0])

    def listed(self, column: str, value: str) -> list[int]:
        """Numbers of the products with this ``value`` in ``column``, in the order of the item file.

        ``column``: ``category`` or ``query``; AssertionError for another one. [] if no product has the value.
        """
        assert column in ("category", "query")
        statement = f"SELECT number FROM products WHERE {column} = ? ORDER BY number"
        with self._reading():
            return [int(number) for (number,) in self._database.execute(statement, (value,))]

    def _search(self, query: str) -> tuple[int, ...]:
        return tuple(self._index.search(query, HITS))

    def _product(self, number: int) -> Product:
        row = self._one("SELECT body FROM products WHERE number = ?", number)
        assert row is not None, number
        return _product(row[0])

    def _nouns(self, name: str) -> tuple[str, ...]:
        row = self._one("SELECT nouns FROM nouns WHERE name = ?", name)
        return nouns(name) if row is None else tuple(json.loads(row[0]))

    def _term(self, term: str) -> Term | None:
        row: Term | None = self._one("SELECT start, size FROM terms WHERE term = ?", term)
        return row

    def _one(self, statement: str, value: int | str) -> Any:
        with self._reading():
            return self._database.execute(statement, (value,)).fetchone()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn SQLite's errors into DataError."""
        try:
            yield
        except sqlite3.Error as error:
            path = self.folder / "shop.db"
            raise DataError(f"{path} is damaged ({error}); build the catalogue again") from error


def read_meta(folder: Path) -> Meta:
    """Read meta.json of the catalogue in ``folder``. Raises DataError unless it is one of this release."""
    path = folder / "meta.json"
    try:
        meta = Meta(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{folder} holds no catalogue ({error}); see `r3l data catalogue --help`") from error
    if meta.schema != SCHEMA:
        raise DataError(
            f"{path}: schema is {meta.schema}, this release needs {SCHEMA}; build the catalogue again",
        )
    return meta


def _product(packed: bytes) -> Product:
    """Unpack a product, within a limit of size against decompression bombs."""
    line = unpacked(packed, zlib.decompressobj(), most(len(packed)), "a product of the catalogue")
    return Product.from_json(line)
