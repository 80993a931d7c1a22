"""Pages string by string, as the original's HTML is after its text conversion (compared with its rendered
pages)."""

import re
from dataclasses import replace

from r3l.envs.webshop.engine import pages
from r3l.envs.webshop.engine.goals import Goal
from r3l.envs.webshop.engine.pages import Page, String, text_rich
from r3l.envs.webshop.engine.products import Product

INSTRUCTION = (
    "i want an xx-small sized slim fit button down shirt with long sleeves. pick something in white, "
    "and price lower than 50.00 dollars"
)
GOAL = Goal(
    "B000000000", "fashion", "shirts", "a shirt", "a › b", INSTRUCTION, ("slim fit",), ("white",), 50.0
)
TITLE = "PMUYBHF Womens Fashion Flat Shoes Comfortable Running Shoes Sneakers Tennis Athletic Shoe Casual Walking Shoes"
OPTIONS = (("color", ("black", "purple", "red")), ("size", ("6.5", "7.5", "8", "8.5", "9")))


def strings(page):
    return [(string.text, string.kind) for string in page.strings]


def shoe(**changes):
    shown = Product(
        asin="B09P87V3LZ", name=TITLE, description="", bullets=(), price=100.0, price_label="$100.0",
        category="fashion", query="shoes", product_category="a › b", attributes=(), options=OPTIONS,
    )  # fmt: skip
    return replace(shown, **changes)


def test_pages_string_by_string():
    """The strings of each page from top to bottom; the original's four rendered pages have the same."""
    head = [("Instruction:", "text"), (INSTRUCTION, "text"), ("Back to Search", "button")]
    item = strings(pages.item_page(GOAL, shoe(options=(("color", ("black", "red")),))))
    assert item == [
        *head, ("< Prev", "button"), ("color", "text"), ("black", "option"), ("red", "option"), (TITLE, "text"),
        ("Price: $100.0", "text"), ("Rating: N.A.", "text"), ("Description", "button"), ("Features", "button"),
        ("Reviews", "button"), ("Buy Now", "button"),
    ]  # fmt: skip
    second = strings(pages.results_page(GOAL, [shoe()], 2, 11))
    assert second == [*head, ("Page 2 (Total results: 11)", "text"), ("< Prev", "button"), ("Next >", "button"),
                      ("B09P87V3LZ", "link"), (TITLE, "text"), ("$100.0", "text")]  # fmt: skip
    features = strings(pages.sub_page(GOAL, shoe(bullets=("one", "two")), "Features"))
    assert features == [*head, ("< Prev", "button"), (" one ", "text"), (" two ", "text")]


def test_blank_strings_follow_the_originals_parser():
    page = pages.sub_page(GOAL, shoe(bullets=("one", "", "\n")), "Features")
    assert [s.text for s in page.strings[4:]] == [
        " one ",
        " ",
    ]  # blanks become one; with a line break, nothing
    assert len(pages.sub_page(GOAL, shoe(description=""), "Description").strings) == 4
    assert pages.sub_page(GOAL, shoe(), "Reviews").strings[-1].text == "No reviews found"


def test_text_rich_marks_what_can_be_clicked_and_what_was():
    options = (String("red", "option", "color"), String("blue", "option", "color"))
    page = Page((String("Instruction:"), String("B1", "link"), String("Buy Now", "button"), *options))
    assert text_rich(page, '{"color": "blue"}', frozenset()) == (
        "You have clicked blue.\nInstruction:\n\n[button] B1 [button_]\n[button] Buy Now [button_]\n"
        "  [button] red [button_]\n  [clicked button] blue [clicked button_]\n"
    )
    assert "\n[clicked button] B1 [clicked button_]\n" in text_rich(page, "", frozenset({"B1"}))


def test_first_and_last_page_hold_the_strings_of_recorded_runs():
    first = pages.search_page(GOAL)
    assert [s.text.strip() for s in first.strings] == [
        "WebShop",
        "Instruction:",
        INSTRUCTION,
        "Search",
    ] and first.bar
    last = pages.done_page("B085T3HMGR", (("size", "12 plus"), ("color", "natural khaki")), 0.6)
    # The end of a public transcript of the original in text mode, where strings are joined by " [SEP] ".
    recorded = (
        "Thank you for shopping with us! [SEP] Your code: [SEP] None [SEP] (Paste it in your MTurk interface.) [SEP] "
        "Purchased [SEP] asin [SEP] B085T3HMGR [SEP] options [SEP] "
        '{"color": "natural khaki", "size": "12 plus"} [SEP] attrs [SEP] None [SEP] category [SEP] None [SEP] query '
        "[SEP] None [SEP] product category [SEP] None [SEP] Target [SEP] asin [SEP] options [SEP] attrs [SEP] price "
        "upper [SEP] instuction text [SEP] category [SEP] product category [SEP] query [SEP] Goal [SEP] None [SEP] "
        "Reward [SEP] Your score (min 0.0, max 1.0) [SEP] 0.6 [SEP] Reward Details [SEP] None"
    )
    assert " [SEP] ".join(s.text.strip() for s in last.strings) == recorded
    assert not last.targets and not re.search(r"\[button\]", text_rich(last, "", frozenset()))
