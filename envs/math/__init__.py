"""Mathematics: problems with a final answer, real graders, one attempt or the paper's three."""

from r3l.core.environment import EnvironmentPackage
from r3l.envs.base.package import Package
from r3l.envs.math.options import MathOptions

PACKAGE: EnvironmentPackage = Package("math", MathOptions)
