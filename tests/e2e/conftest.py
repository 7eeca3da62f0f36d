"""End-to-end tests against a real valkey-server; see README.md."""
from harness.fixtures import *  # noqa: F401,F403
from harness.fixtures import _shared  # noqa: F401
