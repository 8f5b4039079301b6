# SPDX-License-Identifier: Apache-2.0
"""Makes the archive of classes that Spark's Java machines start from in the tests.

    python tools/spark_classes.py build/spark.jsa

A session of Spark reads and checks ten thousand classes, which takes it longer than what most tests
have it do. Java keeps them in an archive when a machine ends (class data sharing), and takes them
from there when one with the same classes starts; another Java machine goes without. The archive is
for this machine only: tests/conftest.py tells Java of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    import pyarrow as pa

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # As tests/conftest.py has it.
QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # It tells of each class that it does not keep.
END_S = 200.0  # Of a machine that is busy otherwise; some 10 s are needed.


def use(home: Path, options: str) -> None:
    """Have Spark do what tests have it do: queries, streams, files, Python in its workers.

    Its Java machine has such options.
    """
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.extraJavaOptions", options)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.local.dir", str(home / "local"))
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .getOrCreate()
    )
    rows = spark.createDataFrame([(1, "one"), (2, "two")], "a INT, b STRING")
    numbers = spark.range(100).selectExpr("id % 7 AS a", "id", "current_timestamp() AS moment")
    joined = numbers.groupBy("a").count().join(rows, "a").orderBy("a")
    for kind in "parquet", "json":
        joined.write.mode("overwrite").format(kind).save(str(home / kind))
        spark.read.format(kind).load(str(home / kind)).selectExpr("to_json(struct(*))").collect()

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    def each(batch: DataFrame, _: int) -> None:
        batch.mapInArrow(same, batch.schema).write.mode("append").parquet(str(home / "out"))

    source = spark.readStream.schema(joined.schema).parquet(str(home / "parquet"))
    query = (
        source.writeStream.foreachBatch(each)
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def end() -> None:
    """End the Java machine, which writes the archive then."""
    gateway = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        status = gateway.proc.wait(END_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        raise
    if status:
        raise OSError(f"Java ended with status {status}")  # The disk is full, perhaps.


def main(target: Path) -> None:
    """Make the archive. To have none is no failure: of a Spark that fails, tests tell better."""
    target.parent.mkdir(parents=True, exist_ok=True)
    made = target.with_suffix(".new")
    made.unlink(missing_ok=True)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["JDK_JAVA_OPTIONS"] = f"{QUICK} {QUIET}"
    failed = ""
    with tempfile.TemporaryDirectory(prefix="headrace-classes-") as home:
        try:
            use(Path(home), f'"-XX:ArchiveClassesAtExit={made.absolute()}"')
            end()
        except (PySparkException, Py4JError, OSError, subprocess.SubprocessError) as error:
            failed = f" ({error})"
    if made.exists() and not failed:
        made.rename(target)  # Whole: a part of one would crash who reads it.
    else:
        sys.stderr.write(f"headrace: no archive of Spark's classes{failed}; tests take longer\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
