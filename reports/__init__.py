"""Conclusions: pure functions of saved facts."""
