"""Tokens where no transport is configured: declined, never ignored."""
import urllib.error
import urllib.request

import pytest

from stories import Refused, with_header

TOKEN = "000073967e5ff000:00400000:01f2e973:0000:007a03:1:00000000000000000000ffff0f0f0fdf"


def declined(refused):
    return refused.response["ResponseMetadata"]["HTTPHeaders"].get("x-amz-rdma-reply") == "501"


@pytest.mark.parametrize("token", [TOKEN, "malformed"])
def test_S063_S064_get_put_and_part_are_declined(s3, bucket, token):
    s3.put_object(Bucket=bucket, Key="k", Body=b"old")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="m")["UploadId"]
    undo = [with_header(s3, event, "x-amz-rdma-token", token) for event in ("GetObject", "PutObject", "UploadPart")]
    with Refused("NotImplemented", 501) as refused:
        s3.get_object(Bucket=bucket, Key="k")
    assert declined(refused)
    for key in ("k", "new"):
        with Refused("NotImplemented", 501) as refused:
            s3.put_object(Bucket=bucket, Key=key, Body=b"")
        assert declined(refused) and "etag" not in refused.response["ResponseMetadata"]["HTTPHeaders"]
    with Refused("NotImplemented", 501) as refused:
        s3.upload_part(Bucket=bucket, Key="m", UploadId=upload, PartNumber=1, Body=b"")
    assert declined(refused)
    for one in undo:
        one()
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"old"
    with Refused("NoSuchKey", 404):
        s3.head_object(Bucket=bucket, Key="new")
    assert "Parts" not in s3.list_parts(Bucket=bucket, Key="m", UploadId=upload)


def test_S029_head_with_a_token(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"12345")
    undo = with_header(s3, "HeadObject", "x-amz-rdma-token", TOKEN)
    head = s3.head_object(Bucket=bucket, Key="k")
    undo()
    assert head["ContentLength"] == 5
    assert not any(name.startswith("x-amz-rdma") for name in head["ResponseMetadata"]["HTTPHeaders"])


def test_S061_copy_with_a_stray_token(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"12345")
    undo = with_header(s3, "CopyObject", "x-amz-rdma-token", TOKEN)
    done = s3.copy_object(Bucket=bucket, Key="to", CopySource={"Bucket": bucket, "Key": "k"})
    undo()
    assert not any(name.startswith("x-amz-rdma") for name in done["ResponseMetadata"]["HTTPHeaders"])
    assert s3.get_object(Bucket=bucket, Key="to")["Body"].read() == b"12345"


@pytest.mark.parametrize("field", ["x-rdma-info", "x-cuobj-rdma-descr", "x-amz-rdma-client-endpoint", "x-amz-rdma-client-descriptor"])
def test_other_families_are_declined(s3, bucket, field):
    undo = with_header(s3, "PutObject", field, TOKEN)
    with Refused("NotImplemented", 501) as refused:
        s3.put_object(Bucket=bucket, Key="k", Body=b"")
    undo()
    assert declined(refused)
    with Refused("NoSuchKey", 404):
        s3.head_object(Bucket=bucket, Key="k")


def test_S066_a_token_that_was_not_signed(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"12345")
    url = s3.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "k"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, headers={"x-amz-rdma-token": TOKEN}), timeout=30)
    assert refused.value.code == 403 and b"AccessDenied" in refused.value.read()


def test_S072_the_control_requests_of_another_family(endpoint):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/.hipobj-rc/prepare", method="POST", data=b""), timeout=30)
    assert refused.value.code == 501 and refused.value.headers["x-amz-rdma-protocol-status"] == "unsupported"
