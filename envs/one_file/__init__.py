"""An environment in one file, in the package or outside it: the engine and the rules are its own, the rest is here."""

from r3l.envs.one_file.engine import OneFileEngine
from r3l.envs.one_file.package import OneFileEnvironment

__all__ = ["OneFileEngine", "OneFileEnvironment"]
