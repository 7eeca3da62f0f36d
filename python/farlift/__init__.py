"""Farlift for Python."""
