# SPDX-License-Identifier: Apache-2.0
"""A process that runs a Spark query from one stream to another, for ``headrace soak-spark``.

    python -m headrace.testing.spark_query '{"uri": …, "source": …, "target": …, …}'

The exit status is 0 after the end of standard input, and 1 after an error of the query.
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


def run(arguments: Fields) -> int:
    """Run the query until it fails or standard input ends; return the exit status."""
    from pyspark.sql import SparkSession

    package = str(Path(headrace.__file__).parent.parent)
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYTHONPATH=package, SPARK_LOCAL_IP="127.0.0.1")
    builder = SparkSession.builder.master(arguments["master"]).appName("headrace soak")
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
        "spark.speculation": str(arguments.get("speculation", False)).lower(),
        "spark.local.dir": f"{arguments['home']}/local",
        "spark.sql.warehouse.dir": f"{arguments['home']}/warehouse",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    query = (
        session.readStream.format("amqp")
        .options(uri=arguments["uri"], startingOffsets="earliest", **arguments["source"])
        .option("maxRecordsPerTrigger", arguments["records_max"])
        .option("minPartitions", 2)
        .load()
        .selectExpr("body")
        .writeStream.format("amqp")
        .options(uri=arguments["uri"], exchange="", routingKey=arguments["target"])
        .options(**arguments.get("sink", {}))
        .option("checkpointLocation", arguments["checkpoint"])
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
    os._exit(code)  # An ordinary exit would wait for Spark's threads.
