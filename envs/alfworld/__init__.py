"""ALFWorld household tasks on the real TextWorld PDDL engine."""

from envs.package import Package
from r3l.core.environment import EnvironmentPackage

PACKAGE: EnvironmentPackage = Package("alfworld")
