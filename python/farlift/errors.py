"""What can go wrong, by what the caller can do about it.

``RequestError`` is the parent of everything that one call can meet. The class of an error never tells whether a region
was closed by it: read ``region.closed``.
"""
import builtins

__all__ = ["FarliftError", "RequestError", "RdmaError", "ConnectionError", "TimeoutError", "ConfigurationError", "ClosingError",
           "KvError"]


class FarliftError(Exception):
    """Parent of all errors of this package."""


class RequestError(FarliftError):
    """The server answered with an error, or the command must not be sent."""


class RdmaError(RequestError):
    """A transfer or a registration was refused or failed; the text carries the server's words where there are any."""


class ConnectionError(RequestError, builtins.ConnectionError):  # noqa: A001 - the published name
    """There is no connection, or it was lost. A transfer whose connection was lost may or may not have happened."""


class TimeoutError(RequestError, builtins.TimeoutError):  # noqa: A001 - the published name
    """No reply within the request timeout. Never raised for a transfer, which has none."""


class ConfigurationError(RequestError):
    """Options that exclude each other, or that this machine cannot meet."""


class ClosingError(FarliftError):
    """The client was closed, or belongs to the parent process of a fork."""


class KvError(RequestError):
    """An operation of the one-sided cache did not end as OK, where a caller asked for an exception. ``status`` is its KvStatus."""

    def __init__(self, text: str, status: object):
        super().__init__(text)
        self.status = status
