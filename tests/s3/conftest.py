"""Stories of real S3 clients against a real stack: volume servers, object service, gateway. See README.md.

FARLIFT_S3_ENDPOINT (with FARLIFT_S3_KEYS=ACCESS:SECRET) runs the plain stories against another server, to see whether a story
asks for what others do, too.
"""
import os

import pytest

import stories


@pytest.fixture(scope="session")
def keys(stack):
    return stack.keys


@pytest.fixture(scope="session")
def endpoint(stack):
    return stack.endpoint


class Elsewhere:
    """A server somebody else started."""

    def __init__(self, endpoint, keys):
        self.endpoint, self.keys = endpoint, tuple(keys.split(":"))


@pytest.fixture(scope="session")
def stack():
    elsewhere = os.environ.get("FARLIFT_S3_ENDPOINT")
    if elsewhere:
        yield Elsewhere(elsewhere, os.environ["FARLIFT_S3_KEYS"])
        return
    from s3_stack import Stack
    with Stack() as one:
        yield one


@pytest.fixture
def s3(stack):
    return stories.client(stack.endpoint, *stack.keys)


def empty(s3, bucket):
    """Deletes a bucket and whatever is in it."""
    for upload in s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []):
        s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        doomed = [{"Key": one["Key"], "VersionId": one["VersionId"]}
                  for kind in ("Versions", "DeleteMarkers") for one in page.get(kind, [])]
        if doomed:
            answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": doomed, "Quiet": True})
            assert not answer.get("Errors"), answer["Errors"]
    s3.delete_bucket(Bucket=bucket)


@pytest.fixture
def bucket(s3):
    name = stories.new_bucket_name()
    s3.create_bucket(Bucket=name)
    yield name
    try:
        empty(s3, name)
    except s3.exceptions.ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucket":  # the story deleted it
            raise


@pytest.fixture(scope="session")
def ten_million(stack):
    """A bucket whose object k has 10 000 000 bytes of the specification's pattern."""
    s3 = stories.client(stack.endpoint, *stack.keys)
    name = stories.new_bucket_name("ten-million")
    s3.create_bucket(Bucket=name)
    s3.put_object(Bucket=name, Key="k", Body=stories.spec_pattern(10_000_000))
    yield name
    empty(s3, name)
