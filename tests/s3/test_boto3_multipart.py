"""boto3 uploads in parts."""
import base64
import hashlib
import io

import botocore
import pytest
from boto3.s3.transfer import TransferConfig

from stories import MIB, Refused, pattern

NEW_BOTO = tuple(map(int, botocore.__version__.split(".")[:2])) >= (1, 36)
PART = 5 * MIB


def upload(s3, bucket, parts, key="k", **options):
    number = s3.create_multipart_upload(Bucket=bucket, Key=key, **options)["UploadId"]
    done = []
    for n, data in enumerate(parts, 1):
        done.append({"PartNumber": n,
                     "ETag": s3.upload_part(Bucket=bucket, Key=key, UploadId=number, PartNumber=n, Body=data)["ETag"]})
    return number, done


def complete(s3, bucket, number, parts, key="k", **options):
    return s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=number, MultipartUpload={"Parts": parts}, **options)


def etag_of(parts):
    whole = hashlib.md5(b"".join(hashlib.md5(part).digest() for part in parts)).hexdigest()
    return f'"{whole}-{len(parts)}"'


def test_three_parts(s3, bucket):
    data = [pattern(PART, 1), pattern(PART + 77, 2), pattern(1000, 3)]
    number, parts = upload(s3, bucket, data, Metadata={"m": "1"}, ContentType="x/y")
    with Refused("NoSuchKey", 404):
        s3.head_object(Bucket=bucket, Key="k")
    done = complete(s3, bucket, number, parts)
    assert done["ETag"] == etag_of(data) and done["Key"] == "k" and done["Bucket"] == bucket
    got = s3.get_object(Bucket=bucket, Key="k")
    assert got["Body"].read() == b"".join(data)
    assert got["Metadata"] == {"m": "1"} and got["ContentType"] == "x/y" and got["ETag"] == etag_of(data)
    start = 0
    for n, part in enumerate(data, 1):
        got = s3.get_object(Bucket=bucket, Key="k", PartNumber=n)
        assert got["ResponseMetadata"]["HTTPStatusCode"] == 206 and got["PartsCount"] == 3
        assert got["Body"].read() == part
        assert got["ContentRange"] == f"bytes {start}-{start + len(part) - 1}/{sum(map(len, data))}"
        start += len(part)
    assert s3.head_object(Bucket=bucket, Key="k", PartNumber=2)["ContentLength"] == PART + 77
    with Refused("InvalidPartNumber", 416):
        s3.get_object(Bucket=bucket, Key="k", PartNumber=4)
    # spread over the parts' border
    got = s3.get_object(Bucket=bucket, Key="k", Range=f"bytes={PART - 10}-{PART + 9}")
    assert got["Body"].read() == data[0][-10:] + data[1][:10]


def test_completing_again_gives_the_same_answer_or_no_such_upload(s3, bucket):
    data = [pattern(PART), b"end"]
    number, parts = upload(s3, bucket, data)
    complete(s3, bucket, number, parts)
    try:
        assert complete(s3, bucket, number, parts)["ETag"] == etag_of(data)
    except botocore.exceptions.ClientError as error:
        assert error.response["Error"]["Code"] == "NoSuchUpload"
    assert s3.get_object(Bucket=bucket, Key="k")["ETag"] == etag_of(data)


def test_a_part_is_replaced_and_one_is_left_out(s3, bucket):
    number, parts = upload(s3, bucket, [pattern(PART, 1), pattern(PART, 2), pattern(10, 3)])
    parts[0]["ETag"] = s3.upload_part(Bucket=bucket, Key="k", UploadId=number, PartNumber=1, Body=pattern(PART, 9))["ETag"]
    complete(s3, bucket, number, [parts[0], parts[2]])
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == pattern(PART, 9) + pattern(10, 3)


def test_wrong_completions(s3, bucket):
    number, parts = upload(s3, bucket, [pattern(PART, 1), pattern(100, 2), pattern(100, 3)])
    with Refused("EntityTooSmall", 400):
        complete(s3, bucket, number, parts)
    with Refused("InvalidPartOrder", 400):
        complete(s3, bucket, number, [parts[1], parts[0]])
    with Refused("InvalidPart", 400):
        complete(s3, bucket, number, [parts[0], {"PartNumber": 9, "ETag": parts[1]["ETag"]}])
    with Refused("InvalidPart", 400):
        complete(s3, bucket, number, [parts[0], {"PartNumber": 2, "ETag": parts[0]["ETag"]}])
    with Refused("MalformedXML", 400):
        complete(s3, bucket, number, [])
    with Refused("NoSuchKey", 404):
        s3.head_object(Bucket=bucket, Key="k")
    complete(s3, bucket, number, parts[:2])
    assert s3.head_object(Bucket=bucket, Key="k")["ContentLength"] == PART + 100


def test_unknown_uploads_and_part_numbers(s3, bucket):
    for call in (lambda: s3.upload_part(Bucket=bucket, Key="k", UploadId="nonsense", PartNumber=1, Body=b"x"),
                 lambda: s3.list_parts(Bucket=bucket, Key="k", UploadId="nonsense"),
                 lambda: s3.abort_multipart_upload(Bucket=bucket, Key="k", UploadId="nonsense"),
                 lambda: complete(s3, bucket, "nonsense", [{"PartNumber": 1, "ETag": '"x"'}])):
        with Refused("NoSuchUpload", 404):
            call()
    number, _ = upload(s3, bucket, [])
    for part in (0, 10001):
        with Refused("InvalidArgument", 400):
            s3.upload_part(Bucket=bucket, Key="k", UploadId=number, PartNumber=part, Body=b"x")
    with Refused("NoSuchUpload", 404):
        s3.upload_part(Bucket=bucket, Key="another", UploadId=number, PartNumber=1, Body=b"x")


def test_lists_and_abort(s3, bucket):
    number, parts = upload(s3, bucket, [pattern(1000 + n, n) for n in range(5)], key="a/b")
    other, _ = upload(s3, bucket, [], key="c")
    answer = s3.list_multipart_uploads(Bucket=bucket)
    assert [(one["Key"], one["UploadId"]) for one in answer["Uploads"]] == [("a/b", number), ("c", other)]
    assert [one["Key"] for one in s3.list_multipart_uploads(Bucket=bucket, Prefix="a/")["Uploads"]] == ["a/b"]
    answer = s3.list_parts(Bucket=bucket, Key="a/b", UploadId=number)
    assert [(one["PartNumber"], one["ETag"], one["Size"]) for one in answer["Parts"]] == \
        [(n, part["ETag"], 1000 + n - 1) for n, part in enumerate(parts, 1)]
    pages = s3.get_paginator("list_parts").paginate(Bucket=bucket, Key="a/b", UploadId=number,
                                                    PaginationConfig={"PageSize": 2})
    assert [one["PartNumber"] for page in pages for one in page["Parts"]] == [1, 2, 3, 4, 5]
    s3.abort_multipart_upload(Bucket=bucket, Key="a/b", UploadId=number)
    with Refused("NoSuchUpload", 404):
        s3.list_parts(Bucket=bucket, Key="a/b", UploadId=number)
    assert [one["Key"] for one in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]] == ["c"]
    s3.abort_multipart_upload(Bucket=bucket, Key="c", UploadId=other)
    s3.delete_bucket(Bucket=bucket)


def test_the_transfer_manager(s3, bucket, tmp_path):
    data = pattern(23 * MIB + 5)
    (tmp_path / "file").write_bytes(data)
    config = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART, max_concurrency=4)
    s3.upload_file(str(tmp_path / "file"), bucket, "k", Config=config)
    s3.download_file(bucket, "k", str(tmp_path / "back"), Config=config)
    assert (tmp_path / "back").read_bytes() == data
    s3.upload_fileobj(io.BytesIO(data), bucket, "k2", Config=config, ExtraArgs={"ChecksumAlgorithm": "SHA256"})
    into = io.BytesIO()
    s3.download_fileobj(bucket, "k2", into, Config=config)
    assert into.getvalue() == data
    s3.copy({"Bucket": bucket, "Key": "k"}, bucket, "k3", Config=config)
    assert s3.get_object(Bucket=bucket, Key="k3")["Body"].read() == data


def test_parts_that_are_copied(s3, bucket):
    data = pattern(12 * MIB)
    s3.put_object(Bucket=bucket, Key="from", Body=data)
    number = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    parts = []
    for n, (first, last) in enumerate([(0, PART - 1), (3 * MIB + 1, 9 * MIB), (7, 7)], 1):
        done = s3.upload_part_copy(Bucket=bucket, Key="k", UploadId=number, PartNumber=n,
                                   CopySource={"Bucket": bucket, "Key": "from"}, CopySourceRange=f"bytes={first}-{last}")
        parts.append({"PartNumber": n, "ETag": done["CopyPartResult"]["ETag"]})
    for wanted in ("bytes=0-12582912", "bytes=5-", "bytes=-5", "nonsense"):
        with pytest.raises(botocore.exceptions.ClientError) as failure:
            s3.upload_part_copy(Bucket=bucket, Key="k", UploadId=number, PartNumber=4,
                                CopySource={"Bucket": bucket, "Key": "from"}, CopySourceRange=wanted)
        assert failure.value.response["Error"]["Code"] in ("InvalidArgument", "InvalidRange", "InvalidRequest")
    complete(s3, bucket, number, parts)
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == data[:PART] + data[3 * MIB + 1:9 * MIB + 1] + data[7:8]


def test_composite_checksum(s3, bucket):
    data = [pattern(PART, 1), pattern(10, 2)]
    number = s3.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm="SHA256")["UploadId"]
    parts = []
    for n, part in enumerate(data, 1):
        done = s3.upload_part(Bucket=bucket, Key="k", UploadId=number, PartNumber=n, Body=part, ChecksumAlgorithm="SHA256")
        parts.append({"PartNumber": n, "ETag": done["ETag"], "ChecksumSHA256": done["ChecksumSHA256"]})
    done = complete(s3, bucket, number, parts)
    whole = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in data)).digest()
    assert done["ChecksumSHA256"] == base64.b64encode(whole).decode() + "-2"
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert head["ChecksumSHA256"] == done["ChecksumSHA256"]
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"".join(data)


@pytest.mark.skipif(not NEW_BOTO, reason="this boto3 does not know checksum types")
def test_full_object_checksum(s3, bucket):
    import zlib
    data = [pattern(PART, 1), pattern(PART, 2), pattern(10, 3)]
    value = base64.b64encode(zlib.crc32(b"".join(data)).to_bytes(4, "big")).decode()
    for asked, refused in ((value, False), ("AAAAAA==", True)):
        number = s3.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm="CRC32",
                                            ChecksumType="FULL_OBJECT")["UploadId"]
        parts = []
        for n, part in enumerate(data, 1):
            done = s3.upload_part(Bucket=bucket, Key="k", UploadId=number, PartNumber=n, Body=part, ChecksumAlgorithm="CRC32")
            parts.append({"PartNumber": n, "ETag": done["ETag"], "ChecksumCRC32": done["ChecksumCRC32"]})
        if refused:
            with Refused("BadDigest", 400):
                complete(s3, bucket, number, parts, ChecksumCRC32=asked, ChecksumType="FULL_OBJECT")
        else:
            done = complete(s3, bucket, number, parts, ChecksumCRC32=asked, ChecksumType="FULL_OBJECT")
            assert done["ChecksumCRC32"] == value and done["ChecksumType"] == "FULL_OBJECT"
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert head["ChecksumCRC32"] == value and head["ChecksumType"] == "FULL_OBJECT"
