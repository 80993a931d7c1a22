"""ScienceWorld elementary-science tasks on the real simulator."""

from envs.package import Package
from envs.scienceworld.options import ScienceWorldOptions
from r3l.core.environment import EnvironmentPackage

PACKAGE: EnvironmentPackage = Package("scienceworld", ScienceWorldOptions)
