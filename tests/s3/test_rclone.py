"""rclone copies a tree there, checks it, and brings it back."""
import filecmp
import json
import os
import shutil
import subprocess

import pytest

from stories import MIB, new_bucket_name, pattern

RCLONE = shutil.which("rclone", path="/usr/bin:" + os.environ.get("PATH", ""))


@pytest.mark.skipif(RCLONE is None, reason="no rclone (package rclone)")
def test_a_whole_story(stack, tmp_path):
    config = tmp_path / "rclone.conf"
    config.write_text(f"[here]\ntype = s3\nprovider = Other\naccess_key_id = {stack.keys[0]}\nsecret_access_key = {stack.keys[1]}\n"
                      f"endpoint = {stack.endpoint}\nregion = us-east-1\nforce_path_style = true\nupload_cutoff = 6M\nchunk_size = 5M\n"
                      f"list_version = 2\n")

    def rclone(*words, check=True):
        done = subprocess.run([RCLONE, "--config", config, "--retries", "1", "--low-level-retries", "1", *map(str, words)],
                              capture_output=True, timeout=120, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
        if check:
            assert done.returncode == 0, done.stderr.decode()
        return done

    bucket = f"here:{new_bucket_name('rclone')}"
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    files = {"one": b"1", "a/two \u00e4": pattern(100_000), "a/b/three": pattern(13 * MIB, 3), "a/none": b""}
    for path, data in files.items():
        (tree / path).write_bytes(data)
    rclone("mkdir", bucket)
    rclone("copy", tree, f"{bucket}/tree")
    rclone("check", tree, f"{bucket}/tree", "--one-way")
    listed = json.loads(rclone("lsjson", "-R", "--files-only", f"{bucket}/tree").stdout)
    assert {one["Path"]: one["Size"] for one in listed} == {path: len(data) for path, data in files.items()}
    rclone("sync", f"{bucket}/tree", tmp_path / "back")
    same, different, odd = filecmp.cmpfiles(tree, tmp_path / "back", files, shallow=False)
    assert sorted(same) == sorted(files) and not different and not odd
    assert rclone("cat", f"{bucket}/tree/one").stdout == b"1"
    (tree / "one").write_bytes(b"22")
    (tree / "a" / "none").unlink()
    rclone("sync", tree, f"{bucket}/tree")
    assert rclone("cat", f"{bucket}/tree/one").stdout == b"22"
    assert "none" not in rclone("lsf", "-R", f"{bucket}/tree").stdout.decode()
    rclone("copyto", f"{bucket}/tree/a/b/three", f"{bucket}/copy")  # on the server
    assert rclone("cat", f"{bucket}/copy").stdout == files["a/b/three"]
    size = json.loads(rclone("size", "--json", bucket).stdout)
    assert size == {"count": 4, "bytes": 2 + 100_000 + 2 * 13 * MIB} or size["count"] == 4
    rclone("purge", bucket)
    assert bucket.removeprefix("here:") not in rclone("lsd", "here:").stdout.decode()
