"""WebShop: the original's shop, pages, search and rewards on a catalogue that all workers share on disk."""

from r3l.core.environment import EnvironmentPackage
from r3l.envs.base.package import Package
from r3l.envs.webshop.options import WebshopOptions

PACKAGE: EnvironmentPackage = Package("webshop", WebshopOptions)
