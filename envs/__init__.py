"""Environment packages, one a benchmark; each exports ``PACKAGE`` (``r3l.core.environment.EnvironmentPackage``)."""
