"""Prompts and parsing of responses, on the real engine's observations."""

from dataclasses import replace

import pytest
from r3l.envs.webshop import WebshopOptions
from r3l.envs.webshop.engine.pages import item_page, text_rich
from r3l.envs.webshop.engine.shop import WebshopEngine
from r3l.envs.webshop.text.dialogue import WebshopDialogue, compact

from r3l.core.environment import Observation, Parsed

FULL, COMPACT = WebshopDialogue("full", 15), WebshopDialogue("compact", 10)
ANYWHERE = Observation("", ())


def response(action):
    return f"<think>so</think> then <action>{action}</action>"


@pytest.fixture
def at_item(task, shop):
    """A goal's product page and the observations before it."""
    engine, goal = WebshopEngine(), shop.goal(0)
    seen = [engine.reset(task(0)), engine.step(f"search[<q> {goal.query}]")]
    seen.append(engine.step(f"click[{goal.asin.lower()}]"))
    return engine, goal, seen


def test_compact_shows_what_matters_on_one_line(at_item, shop):
    engine, goal, (first, results, item) = at_item
    assert [m.content for m in COMPACT.opening(None, first)] == [f"0: {goal.instruction}"]
    products = [shop.product(number) for number in shop.listed("query", goal.query)]
    assert COMPACT.following(first, ["x"], results).content == "1: page 1 of 3 results; " + "; ".join(
        f"{p.asin} {p.name} {p.price_label}".lower() for p in products
    )
    product = shop.product(shop.number(goal.asin))
    (name, values), (other, others) = product.options
    options = f"{name}: {{}}, {values[1]}, {values[2]}; {other}: {', '.join(others)}"
    expected = f"{options}; {product.name}; {product.price_label}"
    assert compact(item.text) == expected.format(values[0]).lower()
    assert compact(engine.step(f"click[{values[0]}]").text) == expected.format(f"*{values[0]}*").lower()
    assert compact(engine.step("click[features]").text) == product.bullets[0].lower().join("  ")
    assert compact(engine.step("click[back to search]").text) == "search page"


@pytest.mark.parametrize("name", ["", " "])
def test_values_of_an_option_without_a_name_are_shown_compactly(task, shop, name):
    """The original's files have options whose name is empty: their values have no heading."""
    product = shop.product(shop.number(shop.goal(0).asin))
    options = ((name, ("black", "blue")), ("size: us", ("7", "8")))
    page = item_page(shop.goal(0), replace(product, options=options))
    text = compact(text_rich(page, '/1/{"": "blue", "size: us": "7"}', ()))
    assert text == f"black, *blue*; size: us: *7*, 8; {product.name}; {product.price_label}".lower()


def test_plain_pages_are_shown_without_instruction_and_standard_buttons(task, shop):
    engine, goal = WebshopEngine(WebshopOptions(observation="plain")), shop.goal(0)
    first = engine.reset(task(0))
    assert [m.content for m in COMPACT.opening(None, first)] == [f"0: {goal.instruction}"]
    assert compact(first.text) == "search page"
    results = compact(engine.step(f"search[<q> {goal.query}]").text)
    assert results.startswith("page 1 of 3 results; ") and goal.asin.lower() in results
    item = compact(engine.step(f"click[{goal.asin.lower()}]").text)
    product = shop.product(shop.number(goal.asin))
    assert item.endswith(f"; {product.name}; {product.price_label}".lower())
    assert goal.instruction not in item and "buy now" not in item


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (response("search[red tea]"), Parsed("search[red tea]")),
        (
            "so <think>a</think>\n<action> click[Buy Now] </action> and <action>b</action>",
            Parsed("click[Buy Now]"),
        ),
        (response("fly"), Parsed("fly")),  # what the page does not have is for the engine: it changes nothing
        ("<action>click[x]</action><think>a</think>", Parsed(None, "format")),  # the order counts
        ("<action>click[x]</action>", Parsed(None, "format")),
        ("<think>a</think><action> </action>", Parsed(None, "format")),
    ],
)
def test_responses(response, expected):
    assert FULL.parse(response, ANYWHERE, []) == COMPACT.parse(response, ANYWHERE, []) == expected


def test_to_the_release_an_empty_action_is_one():
    released = WebshopDialogue("full", 15, WebshopOptions(response_format="released"))
    assert released.parse("<think>a</think><action> </action>", ANYWHERE, ["search[x]"]) == Parsed("")
    assert released.parse("<think>a</think><action></action>", ANYWHERE, [""]) == Parsed(None, "repetition")
    assert released.parse("<action>a</action><think>b</think>", ANYWHERE, []) == Parsed(None, "format")


def test_the_same_action_twice_ends_an_episode_unless_it_turns_pages():
    assert COMPACT.parse(response("click[red]"), ANYWHERE, ["click[red]"]) == Parsed(None, "repetition")
    assert (
        COMPACT.parse(response("click[red]"), ANYWHERE, ["click[red]", "click[blue]"]).action == "click[red]"
    )
    for action in ("click[next >]", "click[Next >]", "click[< PREV]", "search[tea]", "Search[tea]"):
        assert COMPACT.parse(response(action), ANYWHERE, [action]).action == action
