"""boto3 makes buckets, lists them, copies between them, keeps versions."""
import datetime
import hashlib

import pytest

from stories import MIB, Refused, new_bucket_name, pattern


def keys_of(answer):
    return [one["Key"] for one in answer.get("Contents", [])]


def prefixes_of(answer):
    return [one["Prefix"] for one in answer.get("CommonPrefixes", [])]


def test_life_of_a_bucket(s3):
    name = new_bucket_name()
    with Refused("NoSuchBucket", 404):
        s3.head_bucket(Bucket=name)
    s3.create_bucket(Bucket=name)
    s3.head_bucket(Bucket=name)
    listed = {one["Name"]: one["CreationDate"] for one in s3.list_buckets()["Buckets"]}
    assert abs((listed[name] - datetime.datetime.now(datetime.timezone.utc)).total_seconds()) < 300
    with Refused("BucketAlreadyOwnedByYou", 409):
        s3.create_bucket(Bucket=name)
    s3.put_object(Bucket=name, Key="k", Body=b"x")
    with Refused("BucketNotEmpty", 409):
        s3.delete_bucket(Bucket=name)
    s3.delete_object(Bucket=name, Key="k")
    s3.delete_bucket(Bucket=name)
    for call in (s3.delete_bucket, s3.list_objects_v2, s3.list_object_versions):
        with Refused("NoSuchBucket", 404):
            call(Bucket=name)
    with Refused("NoSuchBucket", 404):
        s3.put_object(Bucket=name, Key="k", Body=b"x")


@pytest.mark.parametrize("name", ["ab", "Upper", "under_score", "-lead", "trail-", "two..dots", "192.168.1.1", "x" * 64])
def test_names_that_are_refused(s3, name):
    with Refused("InvalidBucketName", 400):
        s3.create_bucket(Bucket=name)


@pytest.mark.parametrize("v2", [False, True])
def test_listing(s3, bucket, v2):
    names = ["a", "a/1", "a/2", "a/b/3", "b/", "b/x", "c", "photos/2024/1", "photos/2024/2", "photos/2025/1", "z\u00e4h"]
    for name in names:
        s3.put_object(Bucket=bucket, Key=name, Body=name.encode())
    names.sort(key=lambda one: one.encode())
    call = s3.list_objects_v2 if v2 else s3.list_objects
    answer = call(Bucket=bucket)
    assert keys_of(answer) == names and not answer["IsTruncated"]
    first = answer["Contents"][0]
    assert first["ETag"] == f'"{hashlib.md5(b"a").hexdigest()}"' and first["Size"] == 1 and first["StorageClass"] == "STANDARD"
    answer = call(Bucket=bucket, Delimiter="/")
    assert keys_of(answer) == ["a", "c", "z\u00e4h"] and prefixes_of(answer) == ["a/", "b/", "photos/"]
    answer = call(Bucket=bucket, Delimiter="/", Prefix="photos/")
    assert keys_of(answer) == [] and prefixes_of(answer) == ["photos/2024/", "photos/2025/"]
    answer = call(Bucket=bucket, Delimiter="2")
    assert prefixes_of(answer) == ["a/2", "photos/2"]
    assert keys_of(call(Bucket=bucket, Prefix="a/")) == ["a/1", "a/2", "a/b/3"]
    assert keys_of(call(Bucket=bucket, Prefix="nothing")) == []
    assert keys_of(call(Bucket=bucket, MaxKeys=0)) == []
    after = {"StartAfter": "b/"} if v2 else {"Marker": "b/"}
    assert keys_of(call(Bucket=bucket, **after)) == names[names.index("b/") + 1:]


@pytest.mark.parametrize("page", [1, 2, 3, 1000])
@pytest.mark.parametrize("v2", [False, True])
def test_pages(s3, bucket, v2, page):
    names = sorted(f"{'abc'[n % 3]}/{n:02d}" for n in range(12)) + ["d", "e"]
    for name in names:
        s3.put_object(Bucket=bucket, Key=name, Body=b"")
    pages = s3.get_paginator("list_objects_v2" if v2 else "list_objects")
    options = {"PaginationConfig": {"PageSize": page}}
    assert [key for one in pages.paginate(Bucket=bucket, **options) for key in keys_of(one)] == names
    found, prefixes = [], []
    for one in pages.paginate(Bucket=bucket, Delimiter="/", **options):
        assert len(keys_of(one)) + len(prefixes_of(one)) <= page
        found += keys_of(one)
        prefixes += prefixes_of(one)
    assert (found, prefixes) == (["d", "e"], ["a/", "b/", "c/"])


def test_a_thousand_and_more(s3, bucket):
    from concurrent.futures import ThreadPoolExecutor
    names = [f"n{n:05d}" for n in range(1100)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: s3.put_object(Bucket=bucket, Key=name, Body=b""), names))
    answer = s3.list_objects_v2(Bucket=bucket)
    assert len(keys_of(answer)) == 1000 and answer["IsTruncated"] and answer["KeyCount"] == 1000
    rest = s3.list_objects_v2(Bucket=bucket, ContinuationToken=answer["NextContinuationToken"])
    assert keys_of(answer) + keys_of(rest) == names
    with Refused("InvalidArgument", 400):
        s3.list_objects_v2(Bucket=bucket, ContinuationToken="nonsense")


def test_a_bucket_without_versions_lists_them_too(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"1")
    s3.put_object(Bucket=bucket, Key="a", Body=b"22")
    s3.put_object(Bucket=bucket, Key="b/c", Body=b"")
    answer = s3.list_object_versions(Bucket=bucket)
    assert [(one["Key"], one["VersionId"], one["IsLatest"], one["Size"]) for one in answer["Versions"]] == \
        [("a", "null", True, 2), ("b/c", "null", True, 0)]
    answer = s3.list_object_versions(Bucket=bucket, Delimiter="/")
    assert [one["Key"] for one in answer["Versions"]] == ["a"] and prefixes_of(answer) == ["b/"]
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
    assert s3.get_object(Bucket=bucket, Key="a", VersionId="null")["Body"].read() == b"22"


def test_versions(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"before")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    ids = [s3.put_object(Bucket=bucket, Key="k", Body=b"v%d" % n)["VersionId"] for n in range(3)]
    assert len(set(ids)) == 3
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"v2"
    for number, version in enumerate(ids):
        got = s3.get_object(Bucket=bucket, Key="k", VersionId=version)
        assert got["Body"].read() == b"v%d" % number and got["VersionId"] == version
    assert s3.get_object(Bucket=bucket, Key="k", VersionId="null")["Body"].read() == b"before"
    marker = s3.delete_object(Bucket=bucket, Key="k")
    assert marker["DeleteMarker"]
    with Refused("NoSuchKey", 404) as refused:
        s3.get_object(Bucket=bucket, Key="k")
    assert refused.response["ResponseMetadata"]["HTTPHeaders"]["x-amz-delete-marker"] == "true"
    with Refused("MethodNotAllowed", 405):
        s3.get_object(Bucket=bucket, Key="k", VersionId=marker["VersionId"])
    assert keys_of(s3.list_objects_v2(Bucket=bucket)) == []
    answer = s3.list_object_versions(Bucket=bucket)
    assert [one["VersionId"] for one in answer["Versions"]] == ids[::-1] + ["null"]
    assert [(one["VersionId"], one["IsLatest"]) for one in answer["DeleteMarkers"]] == [(marker["VersionId"], True)]
    with Refused("BucketNotEmpty", 409):
        s3.delete_bucket(Bucket=bucket)
    gone = s3.delete_object(Bucket=bucket, Key="k", VersionId=marker["VersionId"])
    assert gone["DeleteMarker"] and gone["VersionId"] == marker["VersionId"]
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"v2"
    s3.delete_object(Bucket=bucket, Key="k", VersionId=ids[2])
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"v1"
    with Refused("NoSuchVersion", 404):
        s3.get_object(Bucket=bucket, Key="k", VersionId=ids[2])


def test_versions_suspended(s3, bucket):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    kept = s3.put_object(Bucket=bucket, Key="k", Body=b"kept")["VersionId"]
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    for body in (b"one", b"two"):
        assert s3.put_object(Bucket=bucket, Key="k", Body=body).get("VersionId", "null") == "null"
    assert [(one["VersionId"], one["Size"]) for one in s3.list_object_versions(Bucket=bucket)["Versions"]] == \
        [("null", 3), (kept, 4)]
    marker = s3.delete_object(Bucket=bucket, Key="k")
    assert marker["VersionId"] == "null" and marker["DeleteMarker"]
    assert s3.get_object(Bucket=bucket, Key="k", VersionId=kept)["Body"].read() == b"kept"


def test_pages_of_versions(s3, bucket):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    put = []
    for key in ("a", "b", "c"):
        put += [(key, s3.put_object(Bucket=bucket, Key=key, Body=b"%d" % n)["VersionId"]) for n in range(3)][::-1]
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket, PaginationConfig={"PageSize": 2})
    assert [(one["Key"], one["VersionId"]) for page in pages for one in page["Versions"]] == put


def test_copies(s3, bucket):
    data = pattern(9 * MIB)
    etag = s3.put_object(Bucket=bucket, Key="from \u00e4+/%41", Body=data, Metadata={"a": "1"}, ContentType="x/y")["ETag"]
    source = {"Bucket": bucket, "Key": "from \u00e4+/%41"}
    done = s3.copy_object(Bucket=bucket, Key="to", CopySource=source)
    assert done["CopyObjectResult"]["ETag"] == etag
    got = s3.get_object(Bucket=bucket, Key="to")
    assert got["Body"].read() == data and got["Metadata"] == {"a": "1"} and got["ContentType"] == "x/y"
    s3.copy_object(Bucket=bucket, Key="to", CopySource=source, MetadataDirective="REPLACE", Metadata={"b": "2"},
                   ContentType="z/z")
    s3.delete_object(Bucket=bucket, Key=source["Key"])  # the copy stands by itself
    got = s3.get_object(Bucket=bucket, Key="to")
    assert got["Body"].read() == data and got["Metadata"] == {"b": "2"} and got["ContentType"] == "z/z"
    with Refused("NoSuchKey", 404):
        s3.copy_object(Bucket=bucket, Key="x", CopySource=source)
    with Refused("NoSuchBucket", 404):
        s3.copy_object(Bucket=bucket, Key="x", CopySource={"Bucket": "no-such-bucket-at-all", "Key": "k"})
    to = {"Bucket": bucket, "Key": "to"}
    with Refused("InvalidRequest", 400):
        s3.copy_object(**to, CopySource=to)  # onto itself, nothing changed
    s3.copy_object(**to, CopySource=to, MetadataDirective="REPLACE", Metadata={"c": "3"})
    assert s3.get_object(**to)["Metadata"] == {"c": "3"} and s3.get_object(**to)["Body"].read() == data
    s3.copy_object(Bucket=bucket, Key="x", CopySource=to, CopySourceIfMatch=etag)
    with Refused("PreconditionFailed", 412):
        s3.copy_object(Bucket=bucket, Key="x", CopySource=to, CopySourceIfNoneMatch=etag)


def test_copies_of_versions(s3, bucket):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    old = s3.put_object(Bucket=bucket, Key="k", Body=b"old")["VersionId"]
    s3.put_object(Bucket=bucket, Key="k", Body=b"new")
    done = s3.copy_object(Bucket=bucket, Key="k", CopySource={"Bucket": bucket, "Key": "k", "VersionId": old})
    assert done["CopySourceVersionId"] == old
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"old"


@pytest.mark.parametrize("call", ["get_bucket_policy", "get_bucket_lifecycle_configuration", "get_bucket_encryption",
                                  "get_bucket_website", "get_bucket_replication"])
def test_what_is_not_there_yet_says_so(s3, bucket, call):
    with Refused("NotImplemented", 501):
        getattr(s3, call)(Bucket=bucket)
