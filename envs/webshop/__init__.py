"""WebShop: the original's shop, pages, search and rewards on a catalogue that all workers share on disk."""

from envs.package import Package
from envs.webshop.options import WebshopOptions
from r3l.core.environment import EnvironmentPackage

PACKAGE: EnvironmentPackage = Package("webshop", WebshopOptions)
