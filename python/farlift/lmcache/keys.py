"""How an LMCache key becomes a key of ours: the text its own native bridge uses, as bytes.

``model@kv_rank(8 hex)@object group(hex)@chunk hash(hex)[@salt]``. LMCache forbids ``@`` in model names and salts, so that
two keys never share a text. Longer than 1024 bytes it is no key of ours (``None``): the object is then never cached.
"""
from typing import Any, Optional

KEY_BYTES_MAX = 1024


def key_bytes(key: Any) -> Optional[bytes]:
    """Of an ``ObjectKey``; None when it is too long."""
    group = getattr(key, "object_group_id", 0)
    text = f"{key.model_name}@{key.kv_rank:08x}@{group:x}@{key.chunk_hash.hex()}"
    salt = salt_of(key)
    encoded = (f"{text}@{salt}" if salt else text).encode("utf-8", "surrogateescape")
    return encoded if len(encoded) <= KEY_BYTES_MAX else None


def salt_of(key: Any) -> str:
    return getattr(key, "cache_salt", "") or ""
