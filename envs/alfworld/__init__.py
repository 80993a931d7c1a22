"""ALFWorld household tasks on the real TextWorld PDDL engine."""

from r3l.core.environment import EnvironmentPackage
from r3l.envs.base.package import Package

PACKAGE: EnvironmentPackage = Package("alfworld")
