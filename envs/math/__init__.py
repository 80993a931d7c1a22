"""Mathematics: problems with a final answer, real graders, one attempt or the paper's three."""

from envs.math.options import MathOptions
from envs.package import Package
from r3l.core.environment import EnvironmentPackage

PACKAGE: EnvironmentPackage = Package("math", MathOptions)
