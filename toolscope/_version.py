"""The version of the distribution ``toolscope-policy``."""

__version__ = "0.1.0"
