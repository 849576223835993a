"""One thin command a file."""
