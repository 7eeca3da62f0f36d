"""What the storage manager hands to adapters and takes from them."""
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class L1MemoryDesc:
    ptr: int
    size: int
    align_bytes: int
    stable_registration_size: Optional[int] = None


class L2StoreResult(int):
    def __new__(cls, success: bool, bytes_transferred: int) -> "L2StoreResult":
        if bytes_transferred < 0:
            raise ValueError("negative")
        return super().__new__(cls, bytes_transferred if success else -1)

    def is_successful(self) -> bool:
        return int(self) >= 0

    def bytes_transferred(self) -> int:
        return max(int(self), 0)


class L2AdapterListener:
    pass
