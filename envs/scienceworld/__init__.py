"""ScienceWorld elementary-science tasks on the real simulator."""

from r3l.core.environment import EnvironmentPackage
from r3l.envs.base.package import Package
from r3l.envs.scienceworld.options import ScienceWorldOptions

PACKAGE: EnvironmentPackage = Package("scienceworld", ScienceWorldOptions)
