"""Farlift as a second tier of LMCache's multi-process server; see docs/lmcache.md. Needs the package ``lmcache``."""
