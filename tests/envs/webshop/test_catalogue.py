"""Catalogues: the original's files, order of goals, complete folders or none, errors with a fix."""

import json
import os
import random
import stat
from collections import Counter

import pytest
from r3l.envs.webshop.engine.catalogue import Catalogue, build, original_files, read_meta
from r3l.envs.webshop.engine.goals import NO_LIMIT, price_limit, synthetic_goals
from r3l.envs.webshop.engine.products import Product, product_of
from r3l.envs.webshop.engine.synthetic import read_wish, sources

from r3l.core.errors import ConfigError, DataError, RunDirectoryError
from r3l.core.seeds import seed_of

RECORD = {
    "asin": "B000000001", "name": "Red Tea Pot", "full_description": "Holds tea.", "small_description": "one line",
    "pricing": "$12.99$45.00", "images": ["x"], "category": "garden", "query": " Tea Pots ",
    "product_category": "Home › Kitchen", "average_rating": 4.5,
    "customization_options": {"Size": [{"value": " 6/8 Cups "}, {"value": "XL"}], "Color": None},
}  # fmt: skip


def test_a_record_by_hand():
    listed = product_of(RECORD, {"attributes": ["hand wash"]}, "test")
    assert listed.options == (
        ("size", ("6 | 8 cups", "xl")),
    )  # lower case, "/" spaced out, null lists left out
    assert (listed.bullets, listed.query, listed.attributes) == (("one line",), "tea pots", ("hand wash",))
    assert listed.price_label == "$12.99 to $45.0"
    assert listed.price == random.Random(seed_of("webshop", "price", "B000000001")).uniform(12.99, 45.0)
    assert listed.document() == "red tea pot holds tea. one line size: 6 | 8 cups, xl"
    assert Product.from_json(listed.to_json()) == listed
    bare = product_of(
        RECORD | {"pricing": "", "customization_options": "", "small_description": []}, {}, "test"
    )
    assert (bare.price, bare.price_label, bare.attributes) == (100.0, "$100.0", ("DUMMY_ATTR",))
    assert product_of(RECORD | {"pricing": "$1,234.50"}, {}, "test").price == 1234.5


def test_price_limits():
    # 34 dollars: the four nearest limits are 40 to 70, the larger of two of them is 50, 60 or 70.
    drawn = Counter(price_limit("B1", number, 34.0) for number in range(600))
    assert set(drawn) == {50.0, 60.0, 70.0}
    assert (
        60 < drawn[50.0] < 140 and 150 < drawn[60.0] < 250 and 250 < drawn[70.0] < 350
    )  # 1, 2 and 3 of 6 pairs
    assert price_limit("B1", 0, 979.0) == 990.0 and price_limit("B1", 0, 980.0) == NO_LIMIT
    assert price_limit("B1", 0, 40.0) > 40.0 and price_limit("B1", 3, 34.0) == price_limit("B1", 3, 34.0)


def test_goals_of_the_originals_files_in_the_originals_order(files, tmp_path):
    meta = build(original_files(*files), tmp_path / "shop", "original")
    shop = Catalogue(tmp_path / "shop")
    assert (meta.products, meta.goals) == (60, 180)
    # File order, then random.seed(233); random.shuffle, as the original numbers its sessions.
    expected = [(asin, number) for asin in (f"B{i:04d}" for i in range(60)) for number in range(3)]
    random.seed(233)
    random.shuffle(expected)
    wishes = json.loads(files[2].read_text())
    for number, (asin, entry) in enumerate(expected):
        goal, wish = shop.goal(number), wishes[asin][entry]
        assert (goal.asin, list(goal.options)) == (asin, wish["instruction_options"])
        assert list(goal.attributes) == wish["instruction_attributes"]
        assert goal.instruction.startswith(wish["instruction"])
        assert goal.instruction.endswith(f", and price lower than {goal.price_upper:.2f} dollars")


def test_goals_made_from_records():
    customization = {"Size": [{"value": "s"}, {"value": "l"}], "Color": [{"value": "red"}]}
    listed = product_of(RECORD | {"customization_options": customization}, {}, "test")
    goals = list(
        synthetic_goals(listed, {"instruction": "Find me pots", "instruction_attributes": ["red"]}, "attrs")
    )
    assert [goal.options for goal in goals] == [
        (("color", "red"), ("size", "s")),
        (("color", "red"), ("size", "l")),
    ]
    assert goals[0].instruction.startswith("Find me pots with color: red, and size: s, and price lower than ")
    assert len({goal.price_upper for goal in goals}) == 1 and list(synthetic_goals(listed, {}, "attrs")) == []


def test_the_same_source_gives_the_same_bytes_and_another_gives_another_hash(tmp_path):
    one, two = (build(sources(30, 1), tmp_path / name, "nano", 4) for name in ("one", "two"))
    assert one == two
    assert (tmp_path / "one" / "docs.npy").read_bytes() == (tmp_path / "two" / "docs.npy").read_bytes()
    other_seed = build(sources(30, 2), tmp_path / "seed", "nano", 4)
    other_page = build(sources(30, 1), tmp_path / "page", "nano", 5)
    assert (
        len({one.sha256, other_seed.sha256, other_page.sha256}) == 3 and one.id == f"nano-30-{one.sha256[:8]}"
    )


def test_wishes_can_be_read_back(shop):
    for number in range(shop.meta.goals):
        goal = shop.goal(number)
        wish = read_wish(goal.instruction)
        assert (wish.attributes, wish.options, wish.limit) == (
            goal.attributes,
            goal.options,
            goal.price_upper,
        )
        assert wish.kind in goal.name and all(attribute in goal.name for attribute in wish.attributes)
    with pytest.raises(ValueError, match="not an instruction"):
        read_wish("find me a shoe")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("pricing", "12.99", r"record 0 \(B000000001\): pricing '12.99' has no dollar amount"),
        ("pricing", "$12.9.9", r"pricing '\$12.9.9' is not of the form"),
        ("pricing", "$" + "9" * 400, "is larger than any number"),
        ("name", ..., "key 'name' is missing"),
        ("asin", {"a": 1}, "record 0: asin is .*, which is not a text"),
        ("full_description", "\ud800", "full_description is .*, which has a lone surrogate"),
        ("small_description", ["one", None], "an entry of small_description is None"),
        (
            "product_category",
            {"a": "y" * 200},
            r"product_category is \{'a': 'y{30}y*\.\.\., which is not a text",
        ),
        ("customization_options", {"Size": [{"image": None}]}, "'Size': key 'value' is missing"),
        (
            "customization_options",
            {"Size": "xl"},
            "customization_options 'Size' is 'xl', which is not a list",
        ),
    ],
)
def test_a_bad_record_is_named(key, value, message):
    record = {k: v for k, v in (RECORD | {key: value}).items() if v is not ...}
    with pytest.raises(DataError, match=message):
        product_of(record, {}, "items.json, record 0")


def test_no_half_catalogue_is_left_or_opened(tmp_path, files):
    def torn():
        yield from list(sources(20, 1))
        raise DataError("the file ends here")

    with pytest.raises(DataError, match="the file ends here"):
        build(torn(), tmp_path / "made" / "shop", "nano")
    assert list((tmp_path / "made").iterdir()) == []
    build(sources(20, 1), tmp_path / "shop", "nano")
    with pytest.raises(ConfigError, match="exists; remove it first"):
        build(sources(20, 1), tmp_path / "shop", "nano")
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        build(sources(20, 1), blocked / "shop", "nano")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o755), (0o002, 0o775)])
def test_a_catalogue_has_the_permissions_that_the_umask_gives(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        build(sources(3, 1), tmp_path / "shop", "nano")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "shop").stat().st_mode) == mode
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in (tmp_path / "shop").iterdir())


def test_a_damaged_catalogue_is_named(tmp_path):
    folder = tmp_path / "shop"
    build(sources(20, 1), folder, "nano")
    meta = (folder / "meta.json").read_text()
    (folder / "meta.json").write_text(meta.replace('"products": 20', '"products": 21'))
    with pytest.raises(DataError, match="products end at 19, its meta.json says 21"):
        Catalogue(folder)
    (folder / "meta.json").write_text(meta.replace('"schema": 1', '"schema": 0'))
    with pytest.raises(DataError, match="schema is 0, this release needs 1"):
        Catalogue(folder)
    (folder / "meta.json").write_text(meta)
    database = (folder / "shop.db").read_bytes()
    (folder / "shop.db").write_bytes(database[: len(database) // 2])
    with pytest.raises(DataError, match="shop.db is damaged"):
        shop = Catalogue(folder)
        [shop.product(number) for number in range(20)]
    with pytest.raises(DataError, match="holds no catalogue"):
        read_meta(tmp_path)
