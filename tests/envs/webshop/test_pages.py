"""Pages against the original's rendered HTML, read by the rules of its text conversion."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from r3l.envs.webshop import pages
from r3l.envs.webshop.goals import Goal
from r3l.envs.webshop.pages import Page, String, text_rich
from r3l.envs.webshop.products import Product

# The original's rendered pages: its licence (academic use only) does not let us pass them on.
RENDERED = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "webshop" / "fixtures"
FILES = {
    "item": "mock_parse_item_page_ws",
    "results": "mock_parse_results_ws",
    "description": "mock_parse_item_page_ws_desc",
    "features": "mock_parse_item_page_ws_feat",
}
needs_rendered = pytest.mark.skipif(not RENDERED.exists(), reason="the original's rendered pages are not redistributed")
INSTRUCTION = (
    "i want an xx-small sized slim fit button down shirt with long sleeves. pick something in white, "
    "and price lower than 50.00 dollars"
)
GOAL = Goal("B000000000", "fashion", "shirts", "a shirt", "a › b", INSTRUCTION, ("slim fit",), ("white",), 50.0)
TITLE = "PMUYBHF Womens Fashion Flat Shoes Comfortable Running Shoes Sneakers Tennis Athletic Shoe Casual Walking Shoes"
OPTIONS = (("color", ("black", "purple", "red")), ("size", ("6.5", "7.5", "8", "8.5", "9")))


class Visible(HTMLParser):
    """The visible strings of a page with the tag that they stand in: scripts, heads and comments are not seen."""

    def __init__(self, name):
        super().__init__(convert_charrefs=True)
        self.open, self.strings = [], []
        self.feed((RENDERED / FILES[name]).read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        if tag not in ("br", "input", "img", "link", "meta"):
            self.open.append((tag, dict(attrs).get("class")))

    def handle_endtag(self, tag):
        tags = [name for name, _ in self.open]
        if tag in tags:
            del self.open[len(tags) - 1 - tags[::-1].index(tag) :]

    def handle_data(self, data):
        inside = {name for name, _ in self.open}
        if not inside & {"head", "script", "style"} and self.open and not (data.isspace() and "\n" in data):
            tag, kind = self.open[-1]
            kinds = {"button": "button", "label": "option"}
            self.strings.append((data, "link" if kind == "product-link" else kinds.get(tag, "text")))


def strings(page):
    return [(string.text, string.kind) for string in page.strings]


def shoe(**changes):
    shown = Product(
        asin="B09P87V3LZ", name=TITLE, description="", bullets=(), price=100.0, price_label="$100.0",
        category="fashion", query="shoes", product_category="a › b", attributes=(), options=OPTIONS,
    )  # fmt: skip
    return replace(shown, **changes)


@needs_rendered
def test_the_item_page_is_the_rendered_one():
    assert strings(pages.item_page(GOAL, shoe())) == Visible("item").strings


@needs_rendered
def test_the_results_page_is_the_rendered_one():
    rendered = Visible("results").strings
    assert rendered[:4] == [("Instruction:", "text"), (INSTRUCTION, "text"), ("Back to Search", "button"),
                            ("Page 1 (Total results: 50)", "text")]  # fmt: skip
    listed = [k for k, (_, kind) in enumerate(rendered) if kind == "link"]
    assert len(listed) == 10
    products = [shoe(asin=rendered[k][0], name=rendered[k + 1][0], price_label=rendered[k + 2][0]) for k in listed]
    assert strings(pages.results_page(GOAL, products, 1, 50)) == rendered


@needs_rendered
def test_description_and_features_are_the_rendered_ones():
    description = Visible("description").strings
    assert len(description) == 5 and description[-1][0].startswith("Here Are The Things You Want To Know")
    assert strings(pages.sub_page(GOAL, shoe(description=description[-1][0]), "Description")) == description
    features = Visible("features").strings
    assert len(features) == 12
    bullets = tuple(text[1:-1] for text, _ in features[4:])
    assert bullets[0] == "Pure Running Shoe"
    assert strings(pages.sub_page(GOAL, shoe(bullets=bullets), "Features")) == features


def test_pages_string_by_string():
    """The same order without the rendered files: what each page shows, top to bottom."""
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
    assert [s.text for s in page.strings[4:]] == [" one ", " "]  # blanks become one; with a line break, nothing
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


def test_of_two_options_with_one_value_the_later_is_clicked():
    page = pages.item_page(GOAL, shoe(options=(("cup", ("a", "b")), ("band", ("b", "c")))))
    assert page.targets["b"].group == "band" and page.targets["a"].group == "cup"


def test_first_and_last_page_hold_the_strings_of_recorded_runs():
    first = pages.search_page(GOAL)
    assert [s.text.strip() for s in first.strings] == ["WebShop", "Instruction:", INSTRUCTION, "Search"] and first.bar
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
