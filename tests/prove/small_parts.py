"""Parts of seconds, for tests of how the kit runs parts."""

import json
import os
import time

from r3l.core.errors import EngineError
from r3l.prove.parts import Part, Proof, Skipped


def note(form, name):
    """Count the calls of a part in a file, for they run in processes of their own."""
    path = form.work / "calls.json"
    calls = json.loads(path.read_text()) if path.is_file() else {}
    calls[name] = calls.get(name, 0) + 1
    path.write_text(json.dumps(calls))
    return calls[name]


def well(form, seconds):
    note(form, "well")
    return Proof("as it should be", {"seconds given": seconds})


def wrong(form, seconds):
    raise EngineError("sampling and training disagree")


def defect(form, seconds):
    raise ZeroDivisionError("a defect")


def crash(form, seconds):
    os._exit(9)


def absent(form, seconds):
    raise Skipped("it is not installed")


def late(form, seconds):
    time.sleep(600)


def counting(form, seconds):
    """Three calls are its work."""
    calls = note(form, "counting")
    return Proof(f"{calls} of 3", {"finished": calls == 3})


def nothing(form, seconds):
    return Proof("", {"finished": False})


WELL, WRONG, DEFECT = Part("well", "w", 1, well), Part("wrong", "x", 1, wrong), Part("defect", "d", 1, defect)
CRASH, ABSENT = Part("crash", "c", 1, crash), Part("absent", "a", 1, absent)
LATE = Part("late", "l", 0.05, late)
COUNTING, NOTHING = Part("counting", "n", 10, counting, True), Part("nothing", "o", 1, nothing, True)
