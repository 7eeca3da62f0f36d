"""Keys, and pages of them."""
from dataclasses import dataclass
from typing import Optional, Tuple


@dataclass(frozen=True)
class EncodedObjectKey:
    chunk_hash_hex: str
    model_name: str
    kv_rank: int
    object_group_id: int
    cache_salt: str


@dataclass(frozen=True)
class ObjectKey:
    chunk_hash: bytes
    model_name: str
    kv_rank: int
    object_group_id: int = 0
    cache_salt: str = ""

    def __post_init__(self) -> None:
        if "@" in self.model_name or set("@/\\\0") & set(self.cache_salt):
            raise ValueError("not a key of LMCache")

    def to_encoded_object_key(self) -> EncodedObjectKey:
        return EncodedObjectKey(self.chunk_hash.hex(), self.model_name, self.kv_rank, self.object_group_id, self.cache_salt)


@dataclass(frozen=True)
class KeyEntry:
    key: EncodedObjectKey
    size_bytes: int


@dataclass(frozen=True)
class KeyListPage:
    entries: Tuple[KeyEntry, ...]
    next_page_token: Optional[str]
