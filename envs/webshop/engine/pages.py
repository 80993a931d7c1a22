"""Pages of the shop as lists of visible strings, and the observations made of them.

The strings, their order and their blanks equal those of the original's HTML templates after its conversion
to text (which drops strings of blanks that contain a line break); tests/envs/webshop compares them with
rendered pages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from r3l.envs.webshop.engine.goals import Goal
from r3l.envs.webshop.engine.products import Product

SEARCH = "Search"
BACK = "Back to Search"
PREVIOUS = "< Prev"
NEXT = "Next >"
BUY = "Buy Now"
SUBPAGES = ("Description", "Features", "Reviews")
STANDARD_BUTTONS = {SEARCH, BACK, PREVIOUS, NEXT, BUY, *SUBPAGES}  # on every product's pages
_BLANKS = " \n\t\f\r"
SEPARATOR = " [SEP] "
RESULTS = re.compile(r"Page (\d+) \(Total results: (\d+)\)")  # what :func:`results_page` writes


@dataclass(frozen=True, slots=True)
class String:
    """A visible string of a page.

    ``kind``: text, button, option (a value to choose) or link (to a product). ``group``: name of the option
    that a value belongs to, such as color; "" for other kinds.
    """

    text: str
    kind: str = "text"
    group: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A rendered page. ``strings``: its visible strings in order. ``bar``: whether it has a search bar.

    ``targets``: what can be clicked, by its text, in lower case unless it is an option. If two targets have
    the same text, it has only the option.
    """

    strings: tuple[String, ...]
    bar: bool = False
    targets: dict[str, String] = field(init=False)

    def __post_init__(self) -> None:
        # Options come last, since of two targets with one name the original clicks the option.
        ordered = sorted((s for s in self.strings if s.kind != "text"), key=lambda s: s.kind == "option")
        targets = {s.text if s.kind == "option" else s.text.lower(): s for s in ordered}
        object.__setattr__(self, "targets", targets)


def search_page(goal: Goal) -> Page:
    """The first page: the instruction and a search bar."""
    strings = (String("WebShop"), String("Instruction: "), *_text(goal.instruction), _button(SEARCH))
    return Page(strings, bar=True)


def results_page(goal: Goal, products: Iterable[Product], number: int, total: int) -> Page:
    """Page ``number`` (from 1) of ``total`` results, with these ``products``.

    Like the original's, it always has the button Next.
    """
    strings = [*_head(goal), String(f"Page {number} (Total results: {total})")]
    if number > 1:
        strings.append(_button(PREVIOUS))
    strings.append(_button(NEXT))
    for product in products:
        strings += [String(product.asin, "link"), *_text(product.name), *_text(product.price_label)]
    return Page(tuple(strings))


def item_page(goal: Goal, product: Product) -> Page:
    """The page of a product, with its options."""
    strings = [*_head(goal), _button(PREVIOUS)]
    for name, values in product.options:
        strings += _text(name)
        strings += [String(value, "option", name) for value in values if value]
    strings += _text(product.name)
    strings += [String(f"Price: {product.price_label}"), String("Rating: N.A.")]
    strings += [_button(name) for name in (*SUBPAGES, BUY)]
    return Page(tuple(strings))


def sub_page(goal: Goal, product: Product, name: str) -> Page:
    """The page ``name`` of a product, one of SUBPAGES (KeyError for any other).

    There are no reviews, since the original's code that loads them is disabled.
    """
    shown = {
        "Description": _text(product.description),
        "Features": [s for bullet in product.bullets for s in _text(f" {bullet} ")],
        "Reviews": [String("No reviews found")],
    }
    return Page((*_head(goal), _button(PREVIOUS), *shown[name]))


def done_page(asin: str, options: Sequence[tuple[str, str]], reward: float) -> Page:
    """The page after a purchase of ``asin`` with the chosen ``options``, (name, value) pairs.

    It includes hidden fields, such as the reward, as the original's conversion to text does.
    """
    bought = json.dumps(dict(options), sort_keys=True)
    texts = ["Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)"]
    texts += [
        "Purchased",
        "asin",
        asin,
        "options",
        bought,
        "attrs",
        "None",
        "category",
        "None",
        "query",
        "None",
    ]
    texts += [
        "product category",
        "None",
        "Target",
        "asin",
        "options",
        "attrs",
        "price upper",
        "instuction text",
    ]
    texts += ["category", "product category", "query", "Goal ", "None", "Reward"]
    texts += ["Your score (min 0.0, max 1.0)", str(reward), "Reward Details ", "None"]
    return Page(tuple(map(String, texts)))


def text_rich(page: Page, url: str, opened: Container[str]) -> str:
    """The page as the observation ``text_rich``: one string a line, with buttons marked.

    Options whose quoted values occur in ``url`` (``Session.url``) and products whose asins are in ``opened``
    are marked as clicked; the clicked options are also listed at the top, the last on the page first.
    """
    lines: list[str] = []
    clicked: list[str] = []
    for string in page.strings:
        if string.kind == "option" and f'"{string.text}"' in url:
            clicked.append(f"You have clicked {string.text}.\n")
            lines.append(f"  [clicked button] {string.text} [clicked button_]")
        elif string.kind == "link" and string.text in opened:
            lines.append(f"\n[clicked button] {string.text} [clicked button_]")
        elif string.kind == "text":
            lines.append(string.text)
        else:
            lines.append(f"{_INDENT[string.kind]}[button] {string.text} [button_]")
    return "".join(reversed(clicked)) + "".join(f"{line}\n" for line in lines)


def text_plain(page: Page) -> str:
    """The page as the observation ``text``: all strings, stripped, joined by `` [SEP] ``."""
    return SEPARATOR.join(string.text.strip() for string in page.strings)


_INDENT = {"button": "", "option": "  ", "link": "\n"}


def _head(goal: Goal) -> list[String]:
    return [String("Instruction:"), *_text(goal.instruction), _button(BACK)]


def _button(text: str) -> String:
    return String(text, "button")


def _text(text: str) -> list[String]:
    """The string as the original's parser keeps it: blanks become one blank, or nothing with a line break."""
    if text.strip(_BLANKS):
        return [String(text)]
    if text and "\n" not in text:
        return [String(" ")]
    return []


def instruction(text: str) -> str:
    """The instruction in an observation, rich or plain: the string after ``Instruction:``.

    Raises IndexError if the text has none.
    """
    lines = text.replace(SEPARATOR, "\n")
    return lines.split("Instruction:", 1)[1].strip().split("\n", 1)[0]
