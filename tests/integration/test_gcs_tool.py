"""The gcs tool, and scripts in buckets: the official clients against an emulator of GCS and a SeaweedFS for S3."""

import base64
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import Scope
from noetl_common.core.values import Value
from noetl_common.errors import NotFound
from noetl_common.store.gcs import GcsObjects
from noetl_common.store.s3 import S3Objects
from services.worker.tools import Call, dispatch
from services.worker.tools import gcs as gcs_tool
from services.worker.tools.python_pool import PythonPool
from services.worker.tools.script_source import read_source
from tests.object_stores import GcsServer, S3Server


class Bucket:
    """A bucket, and the tool called for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.credentials: dict[str, dict[str, Any]] = {"google": {"token": "any-token"}, "odd": {"user": "x"}}

    def call_of(self, kind: str = "gcs", **config: Any) -> Call:
        async def credential(alias: str) -> dict[str, Any]:
            if alias not in self.credentials:
                raise NotFound(f"no credential {alias!r}")
            return {"type": "gcs", "data": self.credentials[alias]}

        return Call(
            kind=kind,
            label="move",
            step="move",
            execution_id=7,
            scope=Scope(load=lambda ref, key: None, workload=Value({}), ctx={}, results={}),
            credential=credential,
            config=config,
            processes=config.pop("processes", None),
            idempotency_key="key-1",
            timeout_s=20.0,
        )

    async def ask(self, **config: Any) -> Outcome:
        return await dispatch(self.call_of(**{"bucket": self.name, "auth": "google", **config}))

    async def good(self, **config: Any) -> Any:
        outcome = await self.ask(**config)
        assert outcome.ok, outcome.error
        return outcome.data


@pytest.fixture
async def bucket(gcs: GcsServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bucket]:
    for name, value in gcs.environ.items():
        monkeypatch.setenv(name, value)
    made = Bucket(f"bucket-{uuid4().hex[:12]}")
    objects = GcsObjects(made.name)
    objects.make_bucket()
    objects.close()
    yield made
    await gcs_tool.close()


@pytest.mark.parametrize(
    ("written", "read", "value", "encoding", "size"),
    [
        ({"data": {"a": [1, "é"]}}, {}, {"a": [1, "é"]}, "json", 14),
        ({"data": "plain é"}, {}, "plain é", "text", 8),
        ({"data": '{"a": 1}'}, {}, '{"a": 1}', "text", 8),
        ({"data": '{"a": 1}'}, {"encoding": "json"}, {"a": 1}, "json", 8),
        ({"data": base64.b64encode(b"\xff\x00").decode(), "encoding": "base64"}, {}, "/wA=", "base64", 2),
        ({"data": "text"}, {"encoding": "base64"}, "dGV4dA==", "base64", 4),
        ({"data": ""}, {}, "", "text", 0),
    ],
)
async def test_what_was_uploaded_comes_back(
    bucket: Bucket, written: dict[str, Any], read: dict[str, Any], value: Any, encoding: str, size: int
) -> None:
    up = await bucket.good(operation="upload", object="a/b c.txt", metadata={"run": 7}, **written)
    assert (up["uri"], up["size"], up["object"]) == (f"gs://{bucket.name}/a/b c.txt", size, "a/b c.txt")
    down = await bucket.good(operation="download", uri=f"gs://{bucket.name}/a/b c.txt", bucket="", **read)
    assert (down["data"], down["encoding"], down["size"]) == (value, encoding, size)
    again = await bucket.good(operation="upload", object="a/b c.txt", **written)
    assert again["size"] == size


async def test_a_file_of_the_worker_is_uploaded_as_older_playbooks_say_it(bucket: Bucket, tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_text("a,b\n1,2\n")
    up = await bucket.good(source=str(path), destination=f"gs://{bucket.name}/reports/", content_type="text/csv")
    assert up["object"] == "reports/" or up["object"] == "report.csv"
    up = await bucket.good(source=str(path), destination=f"gs://{bucket.name}/reports/r.csv", content_type="text/csv")
    assert (up["object"], up["content_type"], up["size"]) == ("reports/r.csv", "text/csv", 8)
    assert (await bucket.good(operation="get", object="reports/r.csv"))["data"] == "a,b\n1,2\n"


async def test_objects_are_listed_by_prefix_and_deleted(bucket: Bucket) -> None:
    for name in ("in/1", "in/2", "in/3", "out/1"):
        await bucket.good(operation="upload", object=name, data=name)
    found = await bucket.good(operation="list", prefix="in/")
    assert [each["object"] for each in found["objects"]] == ["in/1", "in/2", "in/3"]
    assert (found["count"], found["truncated"]) == (3, False)
    found = await bucket.good(operation="list", prefix="in/", max_results=2)
    assert (found["count"], found["truncated"]) == (2, True)
    assert (await bucket.good(operation="delete", object="in/1"))["deleted"] is True
    assert (await bucket.good(operation="delete", object="in/1"))["deleted"] is False
    assert (await bucket.good(operation="list"))["count"] == 3


@pytest.mark.parametrize(
    ("config", "kind", "words"),
    [
        ({"operation": "download", "object": "gone"}, "not_found", "download gs://"),
        ({"operation": "list", "bucket": "no-such-bucket"}, "not_found", "list gs://no-such-bucket/"),
        ({"operation": "move"}, "config", "operation: expected upload, download, list, delete, found 'move'"),
        ({"operation": "upload", "object": "x"}, "config", "data: expected what to upload"),
        ({"operation": "upload", "data": "x"}, "config", "object: expected a name"),
        ({"operation": "list", "bucket": ""}, "config", "bucket: expected a name"),
        ({"operation": "download", "uri": "s3://b/x"}, "config", "uri: expected gs://bucket/object, found 's3://b/x'"),
        ({"operation": "upload", "object": "x", "data": "!", "encoding": "base64"}, "config", "data: expected base64"),
        ({"operation": "upload", "object": "x", "source": "/nowhere"}, "config", "source: expected a file"),
        ({"operation": "list", "max_results": 0}, "config", "max_results: expected 1 to 10000, found 0"),
        ({"operation": "list", "auth": "nobody"}, "config", "no credential 'nobody'"),
        ({"operation": "list", "auth": "odd"}, "config", "expected a credential with service_account_json or token"),
        ({"operation": "list", "auth": None}, "config", "a bucket that NOETL_GCS_BUCKETS lists"),
    ],
)
async def test_an_error_says_what_was_expected(bucket: Bucket, config: dict[str, Any], kind: str, words: str) -> None:
    error = (await bucket.ask(**config)).error
    assert error is not None and error["kind"] == kind, error
    assert words in error["message"]


async def test_the_worker_itself_reaches_buckets_that_the_operator_has_opened(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_GCS_BUCKETS", f"{bucket.name}")
    assert (await bucket.good(operation="list", auth=None))["count"] == 0


async def test_a_server_that_is_not_there_may_be_tried_again(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    call = bucket.call_of(operation="list", bucket=bucket.name, auth="google")
    call.timeout_s = 2.0
    error = (await dispatch(call)).error
    assert error is not None and error["retryable"] is True and error["kind"] in ("connection", "timeout")


async def test_a_script_is_read_from_a_bucket_of_google(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_GCS_BUCKETS", "bucket-*")
    await bucket.good(operation="upload", object="jobs/hello.py", data="result = {'hello': who}")
    pool = PythonPool(1, memory_bytes_max=256 * 1024 * 1024)
    try:
        script = {"uri": f"gs://{bucket.name}/jobs/hello.py", "source": {"type": "gcs"}}
        call = bucket.call_of("python", script=script, processes=pool)
        call.input = {"who": "world"}
        outcome = await dispatch(call)
        assert outcome.ok and outcome.data == {"hello": "world"}, outcome.error
    finally:
        await pool.close()
    script = {"uri": "gone.py", "source": {"type": "gcs", "bucket": bucket.name}}
    with pytest.raises(NotFound, match="expected an object, found none"):
        await read_source(bucket.call_of("python", script=script))


async def test_a_script_is_read_from_a_bucket_of_s3(s3: S3Server) -> None:
    bucket = Bucket(f"bucket-{uuid4().hex[:12]}")
    objects = S3Objects(s3.login, bucket.name)
    objects.make_bucket()
    objects.put("sql/one.sql", io.BytesIO(b"SELECT 1"), 8)
    objects.close()
    login = s3.login
    bucket.credentials["store"] = {
        "endpoint": login.endpoint,
        "aws_access_key_id": login.access_key,
        "aws_secret_access_key": login.secret_key,
        "region": login.region,
    }
    source = {"type": "s3", "auth": "store"}
    for script in (
        {"uri": f"s3://{bucket.name}/sql/one.sql", "source": source},
        {"uri": "sql/one.sql", "source": {**source, "bucket": bucket.name}},
    ):
        assert await read_source(bucket.call_of("postgres", script=script)) == "SELECT 1"
    gone = {"uri": f"s3://{bucket.name}/gone.sql", "source": source}
    with pytest.raises(NotFound, match="expected an object, found none"):
        await read_source(bucket.call_of("postgres", script=gone))
