"""The AWS command line tells a whole user story."""
import filecmp
import json
import os
import shutil
import subprocess

import pytest

from stories import MIB, new_bucket_name, pattern

AWS = shutil.which("aws", path="/usr/bin:" + os.environ.get("PATH", ""))


@pytest.fixture
def aws(stack, tmp_path):
    config = tmp_path / "aws.config"
    # Small enough that a few MiB go in parts.
    config.write_text("[default]\ns3 =\n  multipart_threshold = 6MB\n  multipart_chunksize = 5MB\n  addressing_style = path\n")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "AWS_CONFIG_FILE": str(config), "AWS_EC2_METADATA_DISABLED": "true",
                   "AWS_ACCESS_KEY_ID": stack.keys[0], "AWS_SECRET_ACCESS_KEY": stack.keys[1], "AWS_DEFAULT_REGION": "us-east-1",
                   "AWS_MAX_ATTEMPTS": "1", "LC_ALL": "C.UTF-8"}

    def run(*words, check=True, stdin=None):
        done = subprocess.run([AWS, "--endpoint-url", stack.endpoint, *map(str, words)], env=environment, capture_output=True,
                              timeout=120, input=stdin)
        if check:
            assert done.returncode == 0, done.stderr.decode()
        return done
    return run


@pytest.mark.skipif(AWS is None, reason="no aws command (package awscli)")
def test_a_whole_story(aws, tmp_path):
    bucket = f"s3://{new_bucket_name('awscli')}"
    name = bucket.removeprefix("s3://")
    tree = tmp_path / "tree"
    (tree / "deep" / "er").mkdir(parents=True)
    files = {"small.txt": b"hello\n", "empty": b"", "deep/one piece.bin": pattern(4 * MIB + 1), "deep/er/parts.bin": pattern(17 * MIB, 1)}
    for path, data in files.items():
        (tree / path).write_bytes(data)
    aws("s3", "mb", bucket)
    assert name.encode() in aws("s3", "ls").stdout
    aws("s3", "cp", tree / "small.txt", f"{bucket}/first.txt")
    assert aws("s3", "cp", f"{bucket}/first.txt", "-").stdout == b"hello\n"
    aws("s3", "cp", "-", f"{bucket}/from-stdin", stdin=files["deep/er/parts.bin"])
    assert aws("s3", "cp", f"{bucket}/from-stdin", "-").stdout == files["deep/er/parts.bin"]
    aws("s3", "sync", tree, f"{bucket}/tree")
    assert b"upload:" not in aws("s3", "sync", tree, f"{bucket}/tree").stdout  # nothing is new
    listing = aws("s3", "ls", "--recursive", f"{bucket}/tree/").stdout.decode()
    assert all(path in listing for path in files)
    aws("s3", "sync", f"{bucket}/tree", tmp_path / "back")
    same, different, odd = filecmp.cmpfiles(tree, tmp_path / "back", files, shallow=False)
    assert sorted(same) == sorted(files) and not different and not odd
    aws("s3", "mv", f"{bucket}/tree/deep/er/parts.bin", f"{bucket}/moved")
    assert aws("s3", "cp", f"{bucket}/moved", "-").stdout == files["deep/er/parts.bin"]
    assert b"parts.bin" not in aws("s3", "ls", "--recursive", bucket).stdout
    head = json.loads(aws("s3api", "head-object", "--bucket", name, "--key", "moved").stdout)
    assert head["ContentLength"] == 17 * MIB
    aws("s3api", "get-object", "--bucket", name, "--key", "moved", "--range", "bytes=5242870-5242889", tmp_path / "range")
    assert (tmp_path / "range").read_bytes() == files["deep/er/parts.bin"][5242870:5242890]
    url = aws("s3", "presign", f"{bucket}/first.txt").stdout.decode().strip()
    import urllib.request
    assert urllib.request.urlopen(url, timeout=30).read() == b"hello\n"
    aws("s3", "rm", "--recursive", f"{bucket}/tree")
    assert aws("s3", "ls", f"{bucket}/tree/", check=False).stdout == b""
    refused = aws("s3", "rb", bucket, check=False)
    assert refused.returncode != 0 and b"BucketNotEmpty" in refused.stderr
    aws("s3", "rb", "--force", bucket)
    assert name.encode() not in aws("s3", "ls").stdout
    missing = aws("s3", "cp", f"{bucket}/first.txt", "-", check=False)
    assert missing.returncode != 0
