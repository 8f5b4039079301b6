# SPDX-License-Identifier: Apache-2.0
"""A query from one stream to another, in a process of its own that can be killed.

    python -m headrace.testing.spark_query '{"uri": …, "source": …, "target": …, …}'

It ends with 0 when standard input ends, and with 1 when the query failed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import headrace

if TYPE_CHECKING:
    from headrace.untyped import Fields


def run(asked: Fields) -> int:
    """Run the query until it fails or is asked to stop."""
    from pyspark.sql import SparkSession

    package = str(Path(headrace.__file__).parent.parent)
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYTHONPATH=package, SPARK_LOCAL_IP="127.0.0.1")
    builder = SparkSession.builder.master(asked["master"]).appName("headrace soak")
    for key, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "700m",
        "spark.executor.memory": "500m",
        "spark.executorEnv.PYTHONPATH": package,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.authenticate.socketTimeout": "300s",
        "spark.task.maxFailures": "8",
        "spark.speculation": str(asked.get("speculation", False)).lower(),
        "spark.local.dir": f"{asked['home']}/local",
        "spark.sql.warehouse.dir": f"{asked['home']}/warehouse",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    query = (
        session.readStream.format("amqp")
        .options(uri=asked["uri"], startingOffsets="earliest", **asked["source"])
        .option("maxRecordsPerTrigger", asked["records_max"])
        .option("minPartitions", 2)
        .load()
        .selectExpr("body")
        .writeStream.format("amqp")
        .options(uri=asked["uri"], exchange="", routingKey=asked["target"])
        .options(**asked.get("sink", {}))
        .option("checkpointLocation", asked["checkpoint"])
        .start()
    )

    def stop_with_input() -> None:
        sys.stdin.read()
        query.stop()

    threading.Thread(target=stop_with_input, daemon=True).start()
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001 - Every error is reported.
        sys.stderr.write(f"the query failed: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    code = run(json.loads(sys.argv[1]))
    sys.stdout.flush()
    os._exit(code)  # Spark's own threads need no goodbye.
