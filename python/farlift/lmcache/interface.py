"""What we need of the package ``lmcache``, wherever its line keeps it. Importing this without it is one clear ImportError.

Checked against 0.5.6. Older names are tried second; what an older line lacks is None and its use left out.
"""
import logging
from typing import Any

try:
    from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
    from lmcache.v1.distributed.l2_adapters.config import L2AdapterConfigBase
    from lmcache.v1.platform import create_event_notifier

    try:
        from lmcache.lmcache_native import Bitmap
    except ImportError:
        from lmcache.native_storage_ops import Bitmap
except ImportError as error:
    raise ImportError(
        "farlift.lmcache is a plug-in of LMCache's multi-process server and needs the package lmcache, 0.5.x, with "
        f"lmcache.v1.distributed (pip install lmcache==0.5.6): {error}") from error

try:
    from lmcache.v1.distributed.internal_api import L2StoreResult
except ImportError:  # a bool in older lines
    L2StoreResult = None

try:
    from lmcache.v1.distributed.api import KeyEntry, KeyListPage
except ImportError:
    KeyEntry = KeyListPage = None

__all__ = ["Bitmap", "KeyEntry", "KeyListPage", "L2AdapterConfigBase", "L2AdapterInterface", "L2StoreResult",
           "create_event_notifier", "logger", "store_result"]


def _logger() -> logging.Logger:
    try:
        from lmcache.logging import init_logger
    except ImportError:
        return logging.getLogger("farlift.lmcache")
    return init_logger("farlift.lmcache")


logger = _logger()


def store_result(success: bool, bytes_written: int) -> Any:
    """The result of a store task, as this line of LMCache wants it."""
    return success if L2StoreResult is None else L2StoreResult(success, bytes_written)
