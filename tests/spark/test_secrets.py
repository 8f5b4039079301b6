# SPDX-License-Identifier: Apache-2.0
"""The password in the URL is seen nowhere but on the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.client import blocking

pytestmark = pytest.mark.spark
Publish = Callable[..., None]


@pytest.fixture
def secret(uri: str) -> str:
    """Return the password of the tests' user."""
    return unquote(urlsplit(uri).password or "")


@pytest.fixture
def logged(spark: SparkSession, spark_log: Path) -> Iterator[Callable[[], str]]:
    """Return a function that reads Spark's log, which is at INFO during the test."""
    size = spark_log.stat().st_size
    spark.sparkContext.setLogLevel("INFO")
    yield lambda: spark_log.read_bytes()[size:].decode()
    spark.sparkContext.setLogLevel("WARN")


def plans(spark: SparkSession) -> str:
    """Return every physical plan that the web interface would show."""
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    return "\n".join(
        executions.apply(index).physicalPlanDescription() for index in range(executions.size())
    )


def test_a_batch_shows_no_secret(
    spark: SparkSession,
    publish: Publish,
    connection: blocking.Connection,
    uri: str,
    secret: str,
    name: str,
    logged: Callable[[], str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    publish(name, "a", "b")
    connection.channel().declare_queue(f"{name}.queue")
    frame = spark.read.format("amqp").option("uri", uri).option("stream", name).load()
    frame.explain(True)
    frame.explain("formatted")
    assert frame.count() == 2
    writer = frame.select("body").write.format("amqp").option("uri", uri)
    writer.option("exchange", "").option("routingKey", f"{name}.queue").mode("append").save()
    shown = "".join(capfd.readouterr())
    assert "amqp" in shown
    assert secret not in shown
    assert "AppendData" in plans(spark)
    assert secret not in plans(spark)
    assert secret not in frame._jdf.queryExecution().toString()
    assert "SparkContext" in logged()
    assert secret not in logged()


def test_a_streaming_query_shows_no_secret(
    spark: SparkSession,
    publish: Publish,
    connection: blocking.Connection,
    uri: str,
    secret: str,
    name: str,
    logged: Callable[[], str],
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    publish(name, "a", "b")
    connection.channel().declare_queue(f"{name}.queue")
    reader = spark.readStream.format("amqp").option("uri", uri).option("stream", name)
    query = (
        reader.option("startingOffsets", "earliest")
        .load()
        .select("body")
        .writeStream.format("amqp")
        .option("uri", uri)
        .option("exchange", "")
        .option("routingKey", f"{name}.queue")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    query.explain(True)
    assert "MicroBatch" in "".join(capfd.readouterr())
    assert secret not in "".join(capfd.readouterr())
    assert secret not in str(query.recentProgress)
    assert secret not in plans(spark)
    assert secret not in logged()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b'"pos"' in path.read_bytes() for path in files)
    assert not any(secret.encode() in path.read_bytes() for path in files)


def test_the_plan_of_a_read_that_is_not_started_can_be_without_secret(
    spark: SparkSession, publish: Publish, uri: str, secret: str, name: str, tmp_path: Path
) -> None:
    """Spark shows the options of a read, and redacts URLs only if it is configured to."""
    publish(name, "a")
    (tmp_path / "uri").write_text(uri + "\n")

    def plan(**options: str) -> str:
        frame = spark.readStream.format("amqp").options(stream=name, **options).load()
        return str(frame._jdf.queryExecution().toString())

    assert secret not in plan(uriFile=str(tmp_path / "uri"))
    bare = uri.replace(urlsplit(uri).netloc.rpartition("@")[0], "spark")
    assert secret not in plan(uri=bare, password=secret)
    assert secret in plan(uri=uri)
    spark.conf.set("spark.sql.redaction.options.regex", "(?i)url|uri")
    try:
        assert secret not in plan(uri=uri)
    finally:
        spark.conf.unset("spark.sql.redaction.options.regex")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("@127.0.0.1:", "@127.0.0.1:1"), "option 'uri'"),
        (("@127.0.0.1:", "@nowhere.invalid:"), "nowhere.invalid"),
        (("/pipelines", "/no-such-vhost"), "no-such-vhost"),
        (("spark:", "nobody:"), "ACCESS_REFUSED"),
        (("amqp://", "http://"), "option 'uri'"),
        (("127.0.0.1:", "127.0.0.1:x"), "option 'uri'"),
        (("/pipelines", "/pipelines?heartbeat=often"), "heartbeat"),
    ],
)
def test_an_error_shows_no_secret(
    spark: SparkSession,
    uri: str,
    secret: str,
    logged: Callable[[], str],
    capfd: pytest.CaptureFixture[str],
    change: tuple[str, str],
    text: str,
) -> None:
    assert change[0] in uri
    reader = spark.read.format("amqp").option("uri", uri.replace(*change)).option("stream", "s")
    with pytest.raises(Exception, match=text) as caught:  # Spark wraps ours in many ways.
        reader.load().collect()
    assert secret not in str(caught.value)
    assert secret not in repr(caught.value)
    assert secret not in "".join(capfd.readouterr())
    assert secret not in logged()


def test_a_failing_task_shows_no_secret(
    spark: SparkSession,
    uri: str,
    secret: str,
    logged: Callable[[], str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    frame: DataFrame = spark.createDataFrame([("a",)], "value STRING")
    writer = frame.write.format("amqp").option("uri", uri).option("exchange", "no-such")
    with pytest.raises(Exception, match="no-such") as caught:
        writer.mode("append").save()
    assert secret not in str(caught.value)
    assert secret not in "".join(capfd.readouterr())
    assert secret not in logged()
