"""What the stories share: a client, bytes in which anything out of place shows, and what an error was."""
import hashlib
import itertools
import threading

import boto3
import pytest
from botocore.client import Config
from botocore.exceptions import ClientError

MIB = 1 << 20
_numbers = itertools.count()
_lock = threading.Lock()


def pattern(size, seed=0):
    """Bytes that differ by place and by seed; a block out of place, doubled or missing shows."""
    blocks = (hashlib.sha256(b"%d/%d" % (seed, i)).digest() for i in range((size + 31) // 32))
    return b"".join(blocks)[:size]


def spec_pattern(size):
    """byte[k] = 7k mod 256 (spec s3 12)."""
    return (bytes(7 * k % 256 for k in range(256)) * (size // 256 + 1))[:size]


def new_bucket_name(prefix="story"):
    with _lock:
        return f"{prefix}-{next(_numbers):04d}"


def client(endpoint, access_key, secret_key, **config):
    config.setdefault("s3", {"addressing_style": "path"})
    config.setdefault("retries", {"max_attempts": 1, "mode": "standard"})
    config.setdefault("connect_timeout", 5)
    config.setdefault("read_timeout", 60)
    return boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=access_key, aws_secret_access_key=secret_key,
                        region_name="us-east-1", config=Config(signature_version="s3v4", **config))


class Refused:
    """with Refused("NoSuchKey", 404): ... : the block must be refused just so."""

    def __init__(self, code, status):
        self.code, self.status, self.response = code, status, None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if kind is None:
            pytest.fail(f"was not refused; {self.code} wanted")
        if not issubclass(kind, ClientError):
            return False
        self.response = error.response
        got = (error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"])
        # A HEAD has no body, so its code is the status.
        assert got in ((self.code, self.status), (str(self.status), self.status)), error
        return True


def with_header(s3, event, name, value):
    """Adds a header before signing; for parameters that an older boto3 does not know. Returns the undo."""
    def add(request, **_):
        if name in request.headers:
            del request.headers[name]
        request.headers[name] = value
    key = f"before-sign.s3.{event}"
    s3.meta.events.register(key, add)
    return lambda: s3.meta.events.unregister(key, add)
