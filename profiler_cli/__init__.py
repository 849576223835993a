"""The command line: options in, text out."""

__version__ = "0.1.0"
