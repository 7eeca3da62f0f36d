"""Many repeats: bounded in time, and a sign of life now and then."""
import time
from typing import Iterator

import pytest

SIGN_OF_LIFE_S = 15.0


@pytest.fixture
def rounds(request):
    """rounds(count, limit_s): counts up to `count`; fails when that takes longer than `limit_s`, which bounds the test.

    The name of the test, the count and the time are printed past pytest's capture every 15 s."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def run(count: int, limit_s: float = 900.0) -> Iterator[int]:
        start = said = time.monotonic()
        for i in range(count):
            yield i
            now = time.monotonic()
            if now - start > limit_s:
                pytest.fail(f"{i + 1} of {count} rounds took {now - start:.0f} s, the limit is {limit_s:.0f} s")
            if now - said > SIGN_OF_LIFE_S:
                said = now
                with capture.global_and_fixture_disabled():
                    print(f"\n{request.node.name}: {i + 1} of {count}, {now - start:.0f} s", flush=True)

    return run
