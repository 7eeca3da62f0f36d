"""The adapter without LMCache, and with lines of it that keep things elsewhere. Each in a process of its own."""
import os
import subprocess
import sys
from pathlib import Path

from conftest import HERE

PACKAGE = os.environ.get("FARLIFT_PYTHONPATH", "")
PRELOADED = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(code: str, *paths: Path) -> subprocess.CompletedProcess:
    environment = {**PRELOADED, "PYTHONPATH": ":".join([PACKAGE, *map(str, paths)])}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)


def test_without_lmcache_one_clear_error():
    done = run("import sys; sys.modules['lmcache'] = None; import farlift, farlift.lmcache; print('alive', flush=True)\n"
               "import farlift.lmcache.adapter")
    assert done.stdout == "alive\n" and done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: farlift.lmcache") and "pip install lmcache==0.5.6" in last


def test_older_names_and_results():
    done = run("""
import sys, types
import lmcache.lmcache_native as native, lmcache.v1.distributed.internal_api as internal, lmcache.v1.distributed.api as api
older = types.ModuleType("lmcache.native_storage_ops"); older.Bitmap = native.Bitmap
sys.modules["lmcache.lmcache_native"] = None; sys.modules["lmcache.native_storage_ops"] = older
del internal.L2StoreResult, api.KeyListPage
from farlift.lmcache import adapter, interface
assert adapter.Bitmap is older.Bitmap and interface.store_result(True, 5) is True and interface.store_result(False, 0) is False
try:
    adapter.OkvL2Adapter.list_l2_keys(object())
except NotImplementedError:
    print("fine")
""", HERE / "double")
    assert done.stdout == "fine\n", done.stderr
