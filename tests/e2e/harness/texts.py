"""Exact error texts (spec blob 4)."""
from .resp import RespError


def arity(command: str) -> RespError:
    return RespError(f"ERR wrong number of arguments for '{command}' command")


TRIPLES = RespError("ERR memory address args must be rkey, addr, len triples")
TOO_MANY = RespError("ERR too many memory addresses (max 256)")
BAD_RKEY = RespError("ERR invalid rkey")
BAD_ADDR = RespError("ERR invalid memory address")
BAD_REGION_LEN = RespError("ERR invalid memory address len")
BAD_LEN = RespError("ERR invalid len")
BAD_CRC = RespError("ERR invalid crc")
EMPTY_OBJECT = RespError("ERR object length must be > 0")
TOO_LARGE = RespError("ERR max object size exceeded")
NOT_BOUND = RespError("ERR no RDMA session (call BLOB.RDMA_HELLO first)")
ALREADY_BOUND = RespError("ERR RDMA session already established")
NO_FABRIC = RespError("ERR RDMA provider unavailable on this instance")
HELLO_HEX = RespError("ERR invalid rdma address hex")
HELLO_EMPTY = RespError("ERR rdma address must not be empty")
HELLO_LENGTH = RespError("ERR rdma address must be 16 or 28 bytes")
COVERAGE = RespError("ERR client address space smaller than object length")
CRC_MISMATCH = RespError("ERR CRC32C mismatch")
OOM = RespError("OOM command not allowed when used memory > 'maxmemory'.")
INFO_FIELD = RespError("ERR invalid information field")
WRONGTYPE = RespError("WRONGTYPE Operation against a key holding the wrong kind of value")
IN_EXEC = RespError("ERR Blocking module command called from transaction")
COPY_FAILED = RespError("ERR module key failed to copy")


def is_arity(reply: object, command: str) -> bool:
    return isinstance(reply, RespError) and reply.text.lower() == arity(command).text.lower()


def _is_fabric_error(reply: object, prefix: str) -> bool:
    return (isinstance(reply, RespError) and len(reply.text) <= 128 and
            (reply.text == prefix or reply.text.startswith(prefix + ": ")))


def is_write_failed(reply: object) -> bool:
    return _is_fabric_error(reply, "ERR RDMA write failed")


def is_read_failed(reply: object) -> bool:
    return _is_fabric_error(reply, "ERR RDMA read failed")
