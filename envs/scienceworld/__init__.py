"""ScienceWorld elementary-science tasks on the real simulator."""

from envs.package import Package
from r3l.core.environment import EnvironmentPackage

PACKAGE: EnvironmentPackage = Package("scienceworld")
