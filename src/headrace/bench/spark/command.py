# SPDX-License-Identifier: Apache-2.0
"""The command `headrace bench-spark`: measure Spark's data source on this machine.

Broker, JVM and Python workers run on this machine together, as on a laptop.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

import headrace
from headrace import extras
from headrace.cli.output import json_file_option, write_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.bench.served import BenchBroker
    from headrace.bench.spark.parts import BenchContext, Measurement

PARTS = ("stream", "queue", "sink", "latency", "memory")


@click.command("bench-spark")
@click.option("--parts", default="", metavar="NAMES", help=f"Of {', '.join(PARTS)}.")
@click.option("--scale", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True)
@click.option(
    "--minutes",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Time for which memory is watched; 0 omits that part.",
)
@click.option("--cores", type=click.IntRange(1), default=2, show_default=True)
@click.option("--driver-memory", default="2g", show_default=True)
@json_file_option("Print the figures as JSON, instead of the table")
def bench_spark(
    parts: str, scale: float, minutes: float, cores: int, driver_memory: str, json_path: Path | None
) -> None:
    """Measure reading and writing with Spark, on a broker that is started for it.

    Exits with 1 when a bar is missed or a part failed.
    """
    extras.require("psutil", "pyspark", "pyarrow")
    from headrace.bench.load import meter
    from headrace.bench.served import BenchBroker

    if not meter.is_compiled():
        click.echo(
            "headrace is not compiled: the figures are not those of an installed broker", err=True
        )
    names = [name.strip() for name in parts.split(",")] if parts else list(PARTS)
    for name in names:
        if name not in PARTS:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(PARTS)}")
    if minutes == 0:
        names = [name for name in names if name != "memory"]
    began = time.monotonic()

    def report(text: str) -> None:
        click.echo(f"[{time.monotonic() - began:6.1f} s] {text}", err=True)

    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-spark-")))
        report("starting the broker and Spark")
        served = BenchBroker(["--log-level", "error"])
        stack.callback(served.close)
        session = _start_spark(scratch, cores, driver_memory)
        stack.callback(session.stop)
        figures, failures = _measure(session, served, scratch, names, scale, minutes, report)
    if not write_json(json_path, json_path and _as_json(figures, failures, cores)):
        click.echo(_format_table(figures))
    for name, reason in failures.items():
        click.echo(f"{name}: {reason}", err=True)
    if failures or not all(figure.holds for figure in figures):
        sys.exit(1)


def _start_spark(scratch: Path, cores: int, driver_memory: str) -> SparkSession:
    """Return a Spark session whose workers run this Python and this package."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYTHONPATH"] = str(Path(headrace.__file__).parent.parent)
    log = scratch / "log4j2.properties"
    log.write_text(
        "rootLogger.level = error\n"
        "rootLogger.appenderRef.file.ref = file\n"
        "appender.file.type = File\n"
        "appender.file.name = file\n"
        f"appender.file.fileName = {scratch / 'spark.log'}\n"
        "appender.file.layout.type = PatternLayout\n"
        "appender.file.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex\n"
    )
    builder = SparkSession.builder.master(f"local[{cores}]").appName("headrace bench-spark")
    for key, value in {
        "spark.driver.memory": driver_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _measure(
    session: SparkSession,
    served: BenchBroker,
    scratch: Path,
    names: list[str],
    scale: float,
    minutes: float,
    report: Callable[[str], None],
) -> tuple[list[Measurement], dict[str, str]]:
    from headrace.bench.load.link import BenchError
    from headrace.bench.spark import parts as spark_parts
    from headrace.bench.spark.usage import Meter
    from headrace.client.url import parse_url

    url = served.url.replace("amqp://", "amqp://guest:guest@")
    context = spark_parts.BenchContext(
        spark=session,
        settings=parse_url(url),
        url=url,
        meter=Meter(served.process.pid),
        scratch=scratch,
        scale=scale,
        report=report,
    )
    run: dict[str, Callable[[BenchContext], list[Measurement]]] = {
        "stream": spark_parts.stream_rate,
        "queue": spark_parts.queue_rate,
        "sink": spark_parts.sink_rates,
        "latency": spark_parts.latency,
        "memory": lambda context: spark_parts.memory(context, minutes),
    }
    figures: list[Measurement] = []
    failures: dict[str, str] = {}
    for name in names:
        try:
            for figure in run[name](context):
                report(_format_figure(figure))
                figures.append(figure)
        except BenchError as error:
            failures[name] = str(error)
            report(f"{name}: {error}")
        except Exception as error:  # noqa: BLE001 - Spark raises any error; the other parts still run.
            failures[name] = _summarize_error(str(error))
            report(f"{name}: {failures[name]}")
    return figures, failures


def _summarize_error(text: str) -> str:
    """Return the line of a Spark error that has the Python error, else its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.partition(": ")[0].endswith(("Error", "Refused"))]
    return (errors or lines or ["no reason given"])[-1][:500]


def _format_figure(figure: Measurement) -> str:
    value = f"{figure.value:,.0f}" if figure.value >= 1000 else f"{figure.value:g}"
    text = f"{figure.name:<26} {value:>12} {figure.unit}"
    if figure.bar is not None:
        sign = "<=" if figure.at_most else ">="
        text += f"  ({sign} {figure.bar:,g}: {'yes' if figure.holds else 'NO'})"
    return text


def _format_table(figures: list[Measurement]) -> str:
    return "\n".join(map(_format_figure, figures))


def _as_json(figures: list[Measurement], failures: dict[str, str], cores: int) -> dict[str, object]:
    import pyspark

    from headrace.bench.load import meter

    return {
        "headrace": headrace.__version__,
        "compiled": meter.is_compiled(),
        "pyspark": pyspark.__version__,
        "python": platform.python_version(),
        "cores": cores,
        "figures": {
            figure.name: {
                "value": figure.value,
                "unit": figure.unit,
                "bar": figure.bar,
                "holds": figure.holds,
                "details": figure.details,
            }
            for figure in figures
        },
        "failures": failures,
    }


if __name__ == "__main__":
    bench_spark()
