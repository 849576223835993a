"""Readers of other programs' files: text in, records out; no file is opened here."""
