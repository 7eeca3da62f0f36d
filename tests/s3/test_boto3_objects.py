"""boto3 puts and gets objects: bytes, names, metadata, ranges, conditions, checksums."""
import base64
import datetime
import hashlib
import io
import threading
import urllib.error
import urllib.parse
import urllib.request
import zlib

import botocore
import pytest

from stories import MIB, Refused, client, pattern, spec_pattern, with_header

NEW_BOTO = tuple(map(int, botocore.__version__.split(".")[:2])) >= (1, 36)  # knows the checksum of every upload
SIZES = [0, 1, 65536, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 10_000_000]


def body_of(answer):
    return answer["Body"].read()


@pytest.mark.parametrize("size", SIZES)
def test_bytes_come_back(s3, bucket, size):
    data = spec_pattern(size)
    put = s3.put_object(Bucket=bucket, Key="k", Body=data)
    etag = f'"{hashlib.md5(data).hexdigest()}"'
    assert put["ETag"] == etag
    got = s3.get_object(Bucket=bucket, Key="k")
    assert body_of(got) == data
    assert got["ETag"] == etag and got["ContentLength"] == size and got["AcceptRanges"] == "bytes"
    head = s3.head_object(Bucket=bucket, Key="k")
    assert head["ETag"] == etag and head["ContentLength"] == size
    assert abs((head["LastModified"] - datetime.datetime.now(datetime.timezone.utc)).total_seconds()) < 300


def test_an_overwrite_replaces_all_of_it(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=pattern(9 * MIB, 1), Metadata={"a": "1"})
    s3.put_object(Bucket=bucket, Key="k", Body=b"short", ContentType="text/x")
    got = s3.get_object(Bucket=bucket, Key="k")
    assert body_of(got) == b"short" and got["Metadata"] == {} and got["ContentType"] == "text/x"


@pytest.mark.parametrize("key", [
    "plain", "a/b/c", "/leading", "trailing/", "double//slash", "with space", "plus+plus", "percent%41", "question?mark",
    "hash#mark", "amp&and=equals", "quote'\"", "semi;colon:at@dollar$comma,", "tilde~star*paren(s)!", "brackets[]{}|\\^`<>",
    "dots/../and/./more", "umlaut-\u00e4\u00f6\u00fc", "\u65e5\u672c\u8a9e", "emoji-\U0001f600", "x" * 1024])
def test_names_of_every_kind(s3, bucket, key):
    data = key.encode()
    s3.put_object(Bucket=bucket, Key=key, Body=data)
    assert body_of(s3.get_object(Bucket=bucket, Key=key)) == data
    listed = s3.list_objects_v2(Bucket=bucket)["Contents"]
    assert [one["Key"] for one in listed] == [key]
    s3.delete_object(Bucket=bucket, Key=key)
    with Refused("NoSuchKey", 404):
        s3.get_object(Bucket=bucket, Key=key)


def test_a_key_that_is_too_long(s3, bucket):
    with Refused("KeyTooLongError", 400):
        s3.put_object(Bucket=bucket, Key="x" * 1025, Body=b"")


def test_metadata_and_headers_are_kept(s3, bucket):
    kept = dict(ContentType="text/plain; charset=utf-8", CacheControl="max-age=60", ContentDisposition="attachment; filename=x",
                ContentEncoding="zz", ContentLanguage="de")
    s3.put_object(Bucket=bucket, Key="k", Body=b"abc", Metadata={"colour": "blue", "two-words": "a  b"}, **kept)
    for answer in (s3.get_object(Bucket=bucket, Key="k"), s3.head_object(Bucket=bucket, Key="k")):
        assert answer["Metadata"] == {"colour": "blue", "two-words": "a  b"}
        assert {name: answer[name] for name in kept} == kept


def test_metadata_has_a_largest_size(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"", Metadata={"a": "x" * 2000})
    with Refused("MetadataTooLarge", 400):
        s3.put_object(Bucket=bucket, Key="k", Body=b"", Metadata={"a": "x" * 2100})


def test_response_headers_can_be_asked_for(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"abc", ContentType="a/b")
    got = s3.get_object(Bucket=bucket, Key="k", ResponseContentType="c/d", ResponseCacheControl="no-cache",
                        ResponseContentDisposition="inline", ResponseContentLanguage="fr", ResponseContentEncoding="id")
    assert (got["ContentType"], got["CacheControl"], got["ContentDisposition"], got["ContentLanguage"],
            got["ContentEncoding"]) == ("c/d", "no-cache", "inline", "fr", "id")


@pytest.mark.parametrize("wanted, span", [
    ("bytes=0-0", (0, 1)), ("bytes=1000-1999", (1000, 2000)), ("bytes=4194300-4194310", (4194300, 4194311)),
    ("bytes=-100", (9999900, 10000000)), ("bytes=9999900-", (9999900, 10000000)),
    ("bytes=9999900-99999999", (9999900, 10000000)), ("bytes=0-9999999", (0, 10000000))])
def test_ranges(s3, ten_million, wanted, span):
    data = spec_pattern(10_000_000)
    got = s3.get_object(Bucket=ten_million, Key="k", Range=wanted)
    assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert got["ContentRange"] == f"bytes {span[0]}-{span[1] - 1}/10000000"
    assert body_of(got) == data[span[0]:span[1]]
    head = s3.head_object(Bucket=ten_million, Key="k", Range=wanted)
    assert head["ContentLength"] == span[1] - span[0]


@pytest.mark.parametrize("wanted", ["bytes=abc", "bytes=0-0,5-9", "bytes=5-4", "items=0-1"])
def test_ranges_that_are_none_are_ignored(s3, ten_million, wanted):
    got = s3.get_object(Bucket=ten_million, Key="k", Range=wanted)
    assert got["ResponseMetadata"]["HTTPStatusCode"] == 200 and got["ContentLength"] == 10_000_000
    got["Body"].close()


def test_a_range_beyond_the_end(s3, ten_million, bucket):
    with Refused("InvalidRange", 416):
        s3.get_object(Bucket=ten_million, Key="k", Range="bytes=10000000-")
    s3.put_object(Bucket=bucket, Key="empty", Body=b"")
    with Refused("InvalidRange", 416):
        s3.get_object(Bucket=bucket, Key="empty", Range="bytes=0-0")


def test_conditional_reads(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"abc")["ETag"]
    modified = s3.head_object(Bucket=bucket, Key="k")["LastModified"]
    hour = datetime.timedelta(hours=1)
    for read in (s3.get_object, s3.head_object):
        read(Bucket=bucket, Key="k", IfMatch=etag)
        read(Bucket=bucket, Key="k", IfNoneMatch='"other"')
        read(Bucket=bucket, Key="k", IfModifiedSince=modified - hour)
        read(Bucket=bucket, Key="k", IfUnmodifiedSince=modified + hour)
        read(Bucket=bucket, Key="k", IfMatch=etag, IfUnmodifiedSince=modified - hour)  # the first decides
        with Refused("PreconditionFailed", 412):
            read(Bucket=bucket, Key="k", IfMatch='"other"')
        with Refused("PreconditionFailed", 412):
            read(Bucket=bucket, Key="k", IfUnmodifiedSince=modified - hour)
        with Refused("304", 304):
            read(Bucket=bucket, Key="k", IfNoneMatch=etag)
        with Refused("304", 304):
            read(Bucket=bucket, Key="k", IfModifiedSince=modified + datetime.timedelta(seconds=1))


def test_conditional_writes(s3, bucket):
    undo = with_header(s3, "PutObject", "If-None-Match", "*")
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"first")["ETag"]
    with Refused("PreconditionFailed", 412):
        s3.put_object(Bucket=bucket, Key="k", Body=b"second")
    undo()
    undo = with_header(s3, "PutObject", "If-Match", '"0123456789abcdef0123456789abcdef"')
    with Refused("PreconditionFailed", 412):
        s3.put_object(Bucket=bucket, Key="k", Body=b"second")
    with Refused("NoSuchKey", 404):
        s3.put_object(Bucket=bucket, Key="missing", Body=b"second")
    undo()
    assert body_of(s3.get_object(Bucket=bucket, Key="k")) == b"first"
    undo = with_header(s3, "PutObject", "If-Match", etag)
    s3.put_object(Bucket=bucket, Key="k", Body=b"second")
    undo()
    assert body_of(s3.get_object(Bucket=bucket, Key="k")) == b"second"


def test_one_of_many_first_writers_wins(s3, bucket):
    undo = with_header(s3, "PutObject", "If-None-Match", "*")
    outcome = []

    def put(number):
        try:
            s3.put_object(Bucket=bucket, Key="k", Body=pattern(100_000, number))
            outcome.append(number)
        except botocore.exceptions.ClientError as error:
            assert error.response["Error"]["Code"] in ("PreconditionFailed", "ConditionalRequestConflict"), error

    threads = [threading.Thread(target=put, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    undo()
    assert len(outcome) == 1
    assert body_of(s3.get_object(Bucket=bucket, Key="k")) == pattern(100_000, outcome[0])


def test_content_md5(s3, bucket):
    data = b"checked"
    right = base64.b64encode(hashlib.md5(data).digest()).decode()
    s3.put_object(Bucket=bucket, Key="k", Body=data, ContentMD5=right)
    with Refused("BadDigest", 400):
        s3.put_object(Bucket=bucket, Key="other", Body=data, ContentMD5="1B2M2Y8AsgTpgAmY7PhCfg==")
    with Refused("InvalidDigest", 400):
        s3.put_object(Bucket=bucket, Key="other", Body=data, ContentMD5="bm9uc2Vuc2U=")
    with Refused("NoSuchKey", 404):
        s3.get_object(Bucket=bucket, Key="other")


DIGESTS = {"CRC32": lambda d: zlib.crc32(d).to_bytes(4, "big"), "SHA1": lambda d: hashlib.sha1(d).digest(),
           "SHA256": lambda d: hashlib.sha256(d).digest()}


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
def test_additional_checksums(s3, bucket, algorithm):
    data = pattern(5_000_000)
    member = "Checksum" + algorithm
    right = base64.b64encode(DIGESTS[algorithm](data)).decode()
    put = s3.put_object(Bucket=bucket, Key="sent", Body=data, **{member: right})
    assert put[member] == right
    put = s3.put_object(Bucket=bucket, Key="asked", Body=io.BytesIO(data), ChecksumAlgorithm=algorithm)
    assert put[member] == right
    for key in ("sent", "asked"):
        assert s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")[member] == right
        got = s3.get_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        assert got[member] == right and body_of(got) == data  # boto3 checks it, too
        assert member not in s3.head_object(Bucket=bucket, Key=key)
        ranged = s3.get_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED", Range="bytes=0-9")
        assert member not in ranged and body_of(ranged) == data[:10]
    wrong = base64.b64encode(bytes(len(base64.b64decode(right)))).decode()
    with Refused("BadDigest", 400):
        s3.put_object(Bucket=bucket, Key="wrong", Body=data, **{member: wrong})
    with Refused("NoSuchKey", 404):
        s3.head_object(Bucket=bucket, Key="wrong")
    with Refused("InvalidRequest", 400):
        s3.put_object(Bucket=bucket, Key="wrong", Body=data, **{member: "AA=="})


@pytest.mark.skipif(not NEW_BOTO, reason="this boto3 does not send it")
@pytest.mark.parametrize("size, value", [(1, "1dpQR+/shyg="), (4194304, "zWC4PnbWZ04="), (4194305, "k+4CFTvKJig="),
                                         (10_000_000, "hdx9blGL514=")])
def test_crc64nvme_known_answers(s3, bucket, size, value):
    data = spec_pattern(size)
    s3.put_object(Bucket=bucket, Key="k", Body=data, ChecksumCRC64NVME=value)
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert head["ChecksumCRC64NVME"] == value and head["ChecksumType"] == "FULL_OBJECT"
    with Refused("BadDigest", 400):
        s3.put_object(Bucket=bucket, Key="k", Body=data + b"x", ChecksumCRC64NVME=value)


def test_crc32c_by_header(bucket, endpoint, keys):
    s3 = client(endpoint, *keys, **({"request_checksum_calculation": "when_required"} if NEW_BOTO else {}))
    undo = with_header(s3, "PutObject", "x-amz-checksum-crc32c", base64.b64encode(bytes.fromhex("527d5351")).decode())
    s3.put_object(Bucket=bucket, Key="k", Body=spec_pattern(1))
    with Refused("BadDigest", 400):
        s3.put_object(Bucket=bucket, Key="other", Body=b"1")
    undo()


def test_deletes(s3, bucket):
    s3.delete_object(Bucket=bucket, Key="never-there")
    keys = [f"k{n:04d}" for n in range(300)]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": k} for k in keys[:200]] + [{"Key": "none"}]})
    assert sorted(one["Key"] for one in answer["Deleted"]) == sorted(keys[:200] + ["none"]) and not answer.get("Errors")
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": k} for k in keys[200:299]], "Quiet": True})
    assert "Deleted" not in answer and not answer.get("Errors")
    assert [one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]] == keys[299:]
    with Refused("MalformedXML", 400):
        s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": f"{n}"} for n in range(1001)]})


def fetch(url, method="GET", data=None, headers=None):
    request = urllib.request.Request(url, data=data, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_presigned(s3, bucket):
    url = s3.generate_presigned_url("put_object", {"Bucket": bucket, "Key": "a b+c"}, ExpiresIn=60)
    assert fetch(url, "PUT", b"by link")[0] == 200
    url = s3.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "a b+c"}, ExpiresIn=60)
    assert fetch(url) == (200, b"by link")
    status, text = fetch(url.replace("X-Amz-Expires=60", "X-Amz-Expires=61"))
    assert status == 403 and b"SignatureDoesNotMatch" in text
    status, text = fetch(url + "&versionId=x")
    assert status == 403 and b"SignatureDoesNotMatch" in text
    assert fetch(url, "DELETE")[0] == 403
    url = s3.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "a b+c"}, ExpiresIn=1)
    deadline = datetime.datetime.now() + datetime.timedelta(seconds=20)
    while datetime.datetime.now() < deadline:
        status, text = fetch(url)
        if status != 200:
            break
    assert status == 403 and b"AccessDenied" in text and b"xpired" in text


def test_a_body_of_unknown_length(s3, bucket, endpoint, keys):
    """Transfer-Encoding: chunked, signed as UNSIGNED-PAYLOAD, no Content-Length."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
    import http.client
    class Unsigned(S3SigV4Auth):
        def payload(self, request):
            return "UNSIGNED-PAYLOAD"

    data = pattern(5 * MIB + 3)
    request = AWSRequest("PUT", f"{endpoint}/{bucket}/k")
    Unsigned(Credentials(*keys), "s3", "us-east-1").add_auth(request)
    headers = {name: value for name, value in request.headers.items() if name.lower() != "content-length"}
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(endpoint).netloc, timeout=30)
    connection.request("PUT", f"/{bucket}/k", body=iter([data[:100], data[100:3 * MIB], data[3 * MIB:]]), headers=headers,
                       encode_chunked=True)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()
    assert body_of(s3.get_object(Bucket=bucket, Key="k")) == data


def test_wrong_keys(s3, bucket, endpoint, keys):
    with Refused("InvalidAccessKeyId", 403):
        client(endpoint, "nobody", keys[1]).list_objects_v2(Bucket=bucket)
    with Refused("SignatureDoesNotMatch", 403):
        client(endpoint, keys[0], "wrong").list_objects_v2(Bucket=bucket)
    assert fetch(f"{endpoint}/{bucket}/k")[0] == 403


def test_readers_see_old_or_new(s3, bucket):
    bodies = [pattern(3 * MIB, n) + pattern(2 * MIB, n + 100) for n in range(4)]
    s3.put_object(Bucket=bucket, Key="k", Body=bodies[0])
    stop, wrong, reads = threading.Event(), [], []

    def read():
        while not stop.is_set():
            data = body_of(s3.get_object(Bucket=bucket, Key="k"))
            reads.append(1)
            if data not in bodies:
                wrong.append(len(data))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(24):
        s3.put_object(Bucket=bucket, Key="k", Body=bodies[turn % 4])
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong and len(reads) >= 3
