"""Spellings of one formula as one: unicode mathematics as LaTeX, and LaTeX without layout.

``normalize`` begins with both. Neither changes a value.
"""

from __future__ import annotations

import re
import unicodedata

# --- Characters: unicode mathematics as LaTeX.

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱˣ", "0123456789+-=()nix", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₙₐₓₖᵢ", "0123456789+-=()naxki", strict=True))
_SUPERSCRIPT_RUN = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_SUBSCRIPT_RUN = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")
_LETTERS = "αβγδεζηθικμνξπρστυφχψωΓΔΘΞΠΣΦΨΩ"
_NAMES = {letter: unicodedata.name(letter).split()[-1] for letter in _LETTERS}
_GREEK = {letter: name.capitalize() if letter.isupper() else name.lower() for letter, name in _NAMES.items()}
_COMMANDS = _GREEK | {
    "λ": "lambda",  # LAMDA in unicode
    "Λ": "Lambda",
    "∪": "cup",
    "∩": "cap",
    "×": "times",
    "✕": "times",
    "·": "cdot",
    "⋅": "cdot",
    "∙": "cdot",
    "÷": "div",
    "∞": "infty",
    "≤": "le",
    "≥": "ge",
    "≠": "ne",
    "±": "pm",
    "∓": "mp",
    "∈": "in",
    "∅": "emptyset",
    "⌊": "lfloor",
    "⌋": "rfloor",
    "⌈": "lceil",
    "⌉": "rceil",
    "⟨": "langle",
    "⟩": "rangle",
    "≈": "approx",
}
_CHARACTERS = str.maketrans(
    {character: f"\\{command} " for character, command in _COMMANDS.items()}
    | dict.fromkeys("−﹣－‐‑‒", "-")
    | dict.fromkeys("°º˚", "^{\\circ}")
    | {"ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}", "ℚ": "\\mathbb{Q}", "ℕ": "\\mathbb{N}"}
    | {"⁄": "/", "∕": "/"}
    | {"“": '"', "”": '"', "’": "'", "–": "-", "\u200b": "", "\ufeff": ""}
)
# A radical sign without a bar covers the number, the letter or the bracket after it.
_ROOT_OF = r"(\d+(?:\.\d+)?|[A-Za-z]|\([^()]*\)|\{[^{}]*\})"
_RADICAL = re.compile(rf"(?:\^\{{(\d)\}}(?=\s*√))?\s*([√∛∜])\s*{_ROOT_OF}")
_RADICAL_INDEX = {"√": "", "∛": "3", "∜": "4"}


def as_latex(text: str) -> str:
    r"""``text`` with unicode mathematics as LaTeX, such as ``\sqrt{3}`` for √3, ``x^{2}`` for x².

    Full-width characters become plain ones.
    """
    text = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + "".join(_SUPERSCRIPTS[c] for c in run[0]) + "}", text)
    text = _SUBSCRIPT_RUN.sub(lambda run: "_{" + "".join(_SUBSCRIPTS[c] for c in run[0]) + "}", text)
    characters = []
    for character in text:
        plain = unicodedata.normalize("NFKC", character)
        if "⁄" in plain:  # ½ is one character, 1⁄2 for NFKC
            over, under = plain.split("⁄")
            characters.append(f"\\frac{{{over}}}{{{under}}}" if under else plain)
        else:
            characters.append(character if character in "…º˚" else plain)

    def root(radical: re.Match[str]) -> str:
        index = radical[1] or _RADICAL_INDEX[radical[2]]
        inside = radical[3].strip("(){}")
        return f"\\sqrt[{index}]{{{inside}}}" if index else f"\\sqrt{{{inside}}}"

    text = _RADICAL.sub(root, "".join(characters))
    return text.translate(_CHARACTERS)


# --- Layout: commands that change how a formula looks, not its value.

_SPACE = re.compile(
    r"(?<!\\)\\[,:;> ]|~|\s|\\(?:q?quad|enspace|enskip|(?:thin|med|thick)space|hfill?|allowbreak)(?![A-Za-z])"
    r"|\\(?:hspace|hskip|vspace|phantom|hphantom|vphantom)\*?\s*\{[^{}]*\}"
)
_NOTHING = re.compile(
    r"(?<![A-Za-z])(?:US|CA|AU|NZ|HK|[AC])\\?\$(?=\s*[\d.])"
    r"|(?<!\\)\\!|\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])\.?|\\?\$|(?<!\\)\\[()\[\]]"
    r"|\\(?:display|text|script)style(?![A-Za-z])|\\(?:no)?limits(?![A-Za-z])|\\(?:math)?strut(?![A-Za-z])"
    r"|\\(?:negthinspace|nobreak|relax|noindent|centering)(?![A-Za-z])|\\color\s*\{\w*\}"
)
_COMMA_OF_THOUSANDS = re.compile(r"\{,\}|,\s*\\!\s*")
_STYLED = re.compile(
    r"\\(?:mathbf|boldsymbol|bm|mathsf|mathit|underline|ensuremath|textcolor\s*\{\w*\})\s*\{([^{}]*)\}"
)
_WRAPPED = re.compile(
    r"\\(?:boxed|fbox|text|textbf|textit|textrm|mathrm|mbox|hbox)\s*\{([^{}]*)\}|\{([^{},]*)\}"
)
_ROWS = re.compile(r"(?:\\\\)+\s*$")
_FRACTION_COMMAND = re.compile(r"\\(?:[dtc]frac|nicefrac|sfrac)(?![A-Za-z])")
_BINOMIAL_COMMAND = re.compile(r"\\[dt]binom(?![A-Za-z])")
TEXT = re.compile(r"\\(?:text|textrm|textbf|textit|textnormal|mathrm|mbox|hbox|operatorname)\s*\{([^{}]*)\}")
# TeX takes one character as an argument: \frac 3 4, \frac34, \frac{3} 4, \sqrt 2.
_TWO_ARGUMENTS = re.compile(r"\\(frac|binom)\s*(?:(\w)|\{([^{}]*)\})\s*(?:(\w)|\{([^{}]*)\})")
_ONE_ARGUMENT = re.compile(r"\\sqrt\s*(\w)")
_FUNCTIONS = "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|log|ln|exp"  # sec may be seconds
_BARE_FUNCTION = re.compile(rf"(?<![A-Za-z\\])(?:(?:np|numpy|math)\.)?({_FUNCTIONS})(?=[\s_(\^{{\d])")
_BARE_PI = re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])")
_LOG_BASE = re.compile(r"\\log(\d+)(?=\s*\()")
_BARE_ROOT = re.compile(r"(?<![A-Za-z\\])(?:(?:np|numpy|math)\.)?(sqrt|cbrt)\(([^()]*)\)")
_POWER = re.compile(r"\^\s*(-\s*\d+)")


def without_layout(text: str) -> str:
    """Normalise how LaTeX is written, so that formulas that look alike become equal text.

    Removes commands for spacing, style and size; gives fractions, binomials and roots one spelling, with
    braces; strips a box, text command, braces or Markdown marks around the complete text. Roots, functions
    and powers in program notation become LaTeX: ``sqrt(2)``, ``np.log(3)``, ``2**-1``.
    """

    def braced(command: re.Match[str]) -> str:
        first = command[2] or command[3] or ""
        second = command[4] or command[5] or ""
        return f"\\{command[1]}{{{first.strip()}}}{{{second.strip()}}}"

    def root(function: re.Match[str]) -> str:
        index = "[3]" if function[1] == "cbrt" else ""
        return f"\\sqrt{index}{{{function[2]}}}"

    # One spelling of blanks and of commands, whose arguments get braces.
    text = _COMMA_OF_THOUSANDS.sub(",", text)
    text = _NOTHING.sub("", _SPACE.sub(" ", text))
    text = _BINOMIAL_COMMAND.sub(r"\\binom", _FRACTION_COMMAND.sub(r"\\frac", text))
    text = _TWO_ARGUMENTS.sub(braced, text)
    text = _ONE_ARGUMENT.sub(r"\\sqrt{\1}", text)
    text = _STYLED.sub(r"\1", text)
    text = _ROWS.sub("", re.sub(r" +", " ", text)).strip()

    # Marks around all of it.
    whole = _WRAPPED.fullmatch(text.strip("*` "))  # \text{5}, {5}, **5**
    while whole:
        text = next(part for part in whole.groups() if part is not None).strip()
        whole = _WRAPPED.fullmatch(text.strip("*` "))
    text = text.strip("*` ").replace("**", "^")

    # Roots, functions and powers written as in a program: sqrt(2), np.log(3), 2**-1.
    text = _BARE_ROOT.sub(root, text)
    text = _BARE_PI.sub(r"\\pi ", text).replace("\\varnothing", "\\emptyset").strip()
    text = _LOG_BASE.sub(r"\\log_{\1}", _BARE_FUNCTION.sub(r"\\\1", text))
    return _POWER.sub(lambda power: "^{" + power[1].replace(" ", "") + "}", text)
