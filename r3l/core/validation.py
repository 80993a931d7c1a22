"""Checks of what a user's environment returns, and the parts that r3l.core.method_validation shares.

Python accepts values that are almost right: "false" is true, a number may be infinite. So each value is
checked once, and the error names who returned it, the value and the fix. Workers of environments import this
module; without torch they start four times faster.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Generic, TypeVar

import numpy as np

from r3l.core.environment import Environment, Observation
from r3l.core.errors import ContractError
from r3l.core.text import shown

T = TypeVar("T")
LONGEST = 1_000_000  # most characters of an observation; our choice, beyond any model's context


@dataclass(frozen=True)
class Rule(Generic[T]):
    """A check of one value that a user's code returned.

    ``read`` converts it to a plain Python type, or returns None for a wrong value. ``fix``: how to correct
    it, for the error.
    """

    read: Callable[[Any], T | None]
    fix: str

    def check(self, who: str, what: str, value: Any) -> T:
        """Return the converted ``value``, or raise ContractError naming ``who`` returned ``what``."""
        read = self.read(value)
        if read is None:
            raise wrong(who, what, value, self.fix)
        return read


def _number(value: Any) -> float | None:
    found = real_number(value)
    return found if found is not None and math.isfinite(found) else None


def _texts(value: Any) -> tuple[str, ...] | None:
    is_list = isinstance(value, tuple | list)
    return tuple(value) if is_list and all(isinstance(part, str) for part in value) else None


NUMBER = Rule(_number, "give a finite int or float")  # numpy numbers too
FLAG = Rule(lambda value: bool(value) if isinstance(value, bool | np.bool_) else None, "give True or False")
TEXT = Rule(
    lambda value: value if isinstance(value, str) and len(value) <= LONGEST else None,
    f"give a str of at most {LONGEST:,} characters",
)
TEXTS = Rule(_texts, "give a tuple of str")
OBSERVATION: Mapping[str, Rule[Any]] = {
    "text": TEXT,
    "admissible": TEXTS,
    "reward": NUMBER,
    "done": FLAG,
    "success": FLAG,
    "invalid_action_reward": NUMBER,
    "refused": FLAG,
    "no_answer": FLAG,
    "failed": TEXT,
}


def checked_observation(env: str, call: str, returned: Any) -> Observation:
    """Check what ``call`` (reset, step, restore) of an environment returned.

    Returns a copy whose fields have plain Python types. Raises ContractError if it is no Observation or a
    field has a wrong type, an infinite number or more than a million characters.
    """
    who = f"environment {env!r}"
    what = f"{call} returned"
    if not isinstance(returned, Observation):
        raise wrong(who, what, returned, "return an Observation (r3l.core.environment)")
    fields = {
        name: rule.check(who, f"{what} an Observation whose {name} is", getattr(returned, name))
        for name, rule in OBSERVATION.items()
    }
    return replace(returned, **fields)


def checked_payload(env: str, returned: Any) -> dict[str, Any]:
    """Return ``returned``, the result of an environment's ``problem``, if it is a JSON object with str keys.

    Raises ContractError otherwise: payloads are hashed and cross processes.
    """
    who = f"environment {env!r}"
    fix = "return a dict of what JSON has: str, int, finite float, bool, None, list, dict"
    if not isinstance(returned, dict) or not all(isinstance(key, str) for key in returned):
        raise wrong(who, "problem returned", returned, fix)
    try:
        json.dumps(returned, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise wrong(who, "problem returned", returned, f"{fix} ({error})") from error
    return returned


def close_all(env: str, engines: Sequence[Environment]) -> None:
    """Close each of ``engines`` of environment ``env``; warns once of those whose close() raises."""
    warn_of_closing(env, [closing_error(engine) for engine in engines])


def closing_error(engine: Environment) -> str:
    """Close ``engine``; returns a sentence on what its close() raised, with its class, or "" if nothing."""
    try:
        engine.close()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code; a warning names it
        text = " ".join(str(error).split())
        return f"{close_of(engine)} raised {type(error).__name__}: {text}"
    return ""


def close_of(engine: Environment) -> str:
    """The name of the function that closes ``engine``, for messages: ``Class.close()``."""
    return f"{type(engine).__qualname__}.close()"


def warn_of_closing(env: str, errors: Sequence[str]) -> None:
    """Warn of the engines of ``env`` that did not close, by count and by the first one's error.

    ``errors``: each engine's :func:`closing_error`, "" for one that closed.
    """
    left = [error for error in errors if error]
    if left:
        warnings.warn(
            f"environment {env!r}: {len(left)} of {len(errors)} engines did not close ({left[0][:300]}). "
            "What was played is not affected; what an engine holds, such as a process or a session, may be "
            "left open",
            stacklevel=3,
        )


def wrong(who: str, what: str, value: Any, fix: str) -> ContractError:
    """A ContractError that reads "who: what value; fix".

    ``who`` names the method or environment. ``what`` ends with a verb, such as "keep returned". ``fix`` says
    how to correct it, such as "give True or False".
    """
    return ContractError(f"{who}: {what} {shown(value)}; {fix}")


def real_number(value: Any) -> float | None:
    """``value`` as a float if it is a real number, numpy's too, finite or not; a Python int stays an int.

    True and False are 1.0 and 0.0. None for anything else, or for a number too large for a float.
    """
    try:
        number = float(value) if isinstance(value, Real) else None
    except (OverflowError, ValueError):
        number = None
    if number is None or type(value) is not int:
        return number
    return value  # an int stays one in records


def name_of_method(method: object) -> str:
    """The text ``method <module>.<class>`` of a method object, for errors."""
    return f"method {type(method).__module__}.{type(method).__qualname__}"
