"""What end-to-end tests are made of: a real server, a raw RESP connection, a raw fabric peer.

Nothing here is Farlift's own client: a test that uses these talks to the module as a stranger would.
"""
import os
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3]
PYTHONPATH = os.environ.get("FARLIFT_PYTHONPATH", str(SOURCE / "build/dev/python"))
MODULE = os.environ.get("FARLIFT_MODULE", str(SOURCE / "build/dev/lib/libfarlift_blob.so"))

if PYTHONPATH not in sys.path:
    sys.path.insert(0, PYTHONPATH)
