"""What every environment shares: the package template, options, committed task sets."""
