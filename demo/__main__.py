# SPDX-License-Identifier: Apache-2.0
"""Run the demo: `python -m demo`, or `make demo`. See docs/guides/demo.md."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo import broker, chart, check, pipeline
from demo.flights import read_flights
from demo.programs import Program

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.25  # The pause between two updates of the progress bars.
STALLED_S_MAX = 180.0  # The demo fails after this time without progress.
TITLES = {
    "archive": "archived to Parquet",
    "delays": "in windows of a day",
    "alerts": "searched for alerts",
    "unreadable": "searched for bad ones",
}


@dataclass
class Run:
    """The measurements of one run."""

    total: int  # The number of flights.
    started_s: float = field(default_factory=time.monotonic)
    publish_s: float = 0.0
    spark_s: dict[str, float] = field(default_factory=dict)  # By query.
    counts: dict[str, int] = field(default_factory=dict)  # Numbers of messages to check.
    elapsed_s: float = 0.0


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("build/demo"),
    show_default=True,
    help="Where the archive, the windows, the chart and report.json are left; emptied first.",
)
@click.option(
    "--url", help="A broker to use instead of one of our own; flights and alerts there are deleted."
)
def main(out: Path, url: str | None) -> None:
    """A year of flights through the broker and Spark, and a check of every one of them."""
    console = Console()
    places = _prepare_places(out)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-demo-")))
        if url is None:
            url, pages = stack.enter_context(broker.run_broker(scratch))
            if pages:  # The console may take longer to start than the broker waits for it.
                console.print(
                    f"look at the broker meanwhile: {pages}  (user guest, password guest)"
                )
        else:
            broker.delete(url)
            stack.callback(broker.delete, url)
        broker.declare(url)
        run = _run(console, stack, scratch, url, places)
    passed = _report(console, run, places, out)
    sys.exit(0 if passed else 1)


def _prepare_places(out: Path) -> pipeline.Places:
    """Remove the results and the state of an earlier run; return the directories of this run."""
    for name in ("lake", "state"):
        shutil.rmtree(out / name, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    out = out.resolve()
    return pipeline.Places(out / "lake", out / "state")


def _run(
    console: Console, stack: ExitStack, scratch: Path, url: str, places: pipeline.Places
) -> Run:
    """Publish, process and count at the same time; return the measurements."""
    run = Run(total=len(read_flights()))
    publisher = Program("demo.publish", url, broker.FLIGHTS)
    stack.callback(publisher.kill)
    counter = Program("demo.count_alerts", url, broker.ALERT_QUEUE)
    stack.callback(counter.kill)
    with _make_bars(console) as progress, ThreadPoolExecutor(1) as pool:
        starting = pool.submit(_start_queries, stack, scratch, url, places)
        _watch(progress, run, publisher, counter, starting)
    run.counts["queued"] = broker.count_ready(url, broker.QUEUE)
    run.elapsed_s = time.monotonic() - run.started_s
    return run


def _start_queries(
    stack: ExitStack, scratch: Path, url: str, places: pipeline.Places
) -> dict[str, StreamingQuery]:
    spark = pipeline.start_session(scratch)
    stack.callback(spark.stop)
    return pipeline.start_queries(stack, spark, url, places)


def _make_bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<22}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>14}"),
        TimeElapsedColumn(),
        console=console,
    )


def _watch(
    progress: Progress,
    run: Run,
    publisher: Program,
    counter: Program,
    starting: Future[dict[str, StreamingQuery]],
) -> None:
    """Show the progress until all queries have processed all flights; then stop the queries."""
    publish_bar = progress.add_task("published, confirmed", total=run.total, rate="")
    bars = {
        name: progress.add_task(title, total=run.total, rate="Spark starts")
        for name, title in TITLES.items()
    }
    alert_bar = progress.add_task("alerts received", total=None, rate="")
    queries_started_s = last_progress_s = time.monotonic()
    last_sum = -1
    while True:
        publisher.check()
        counter.check()
        queries = starting.result() if starting.done() else {}
        confirmed = run.counts["confirmed"] = _count_confirmed(publisher)
        run.publish_s = _measure_publish_s(publisher)
        progress.update(
            publish_bar, completed=confirmed, rate=_format_rate(confirmed, run.publish_s)
        )
        now_s = time.monotonic()
        if not queries:
            queries_started_s = now_s
        reached = {name: _read_position(query) for name, query in queries.items()}
        for name, position in reached.items():
            if position < run.total:
                run.spark_s[name] = now_s - queries_started_s
            rate = _format_rate(position, run.spark_s.get(name, 0.0))
            progress.update(bars[name], completed=position, rate=rate)
        progress.update(alert_bar, completed=_count_alerts(counter))
        if queries and min(reached.values()) >= run.total and confirmed == run.total:
            break
        if confirmed + sum(reached.values()) != last_sum:
            last_progress_s, last_sum = now_s, confirmed + sum(reached.values())
        elif now_s - last_progress_s > STALLED_S_MAX:
            raise SystemExit(f"nothing moved for {STALLED_S_MAX:.0f} s: {confirmed=} {reached=}")
        time.sleep(POLL_S)
    publisher.wait()
    for query in queries.values():
        query.processAllAvailable()  # Waits for the last batch, which has no records.
        query.stop()
    counter.finish()
    run.counts |= json.loads(counter.last)
    progress.update(alert_bar, completed=run.counts["alerts"], total=run.counts["alerts"])


def _count_confirmed(publisher: Program) -> int:
    """Return the number of confirmed messages that the publisher has reported."""
    return int(publisher.last) if publisher.last.isdigit() else 0


def _count_alerts(counter: Program) -> int:
    """Return the number of alerts that the counter has reported."""
    count: int = json.loads(counter.last)["alerts"] if counter.last else 0
    return count


def _measure_publish_s(publisher: Program) -> float:
    """Return the time from the publisher's first line, `ready`, to its last one."""
    ready_s = [line_s for line_s, line in publisher.lines[:1] if line == "ready"]
    return publisher.lines[-1][0] - ready_s[0] if ready_s else 0.0


def _read_position(query: StreamingQuery) -> int:
    """Return the end offset of the last finished batch of a query; 0 before the first."""
    failure = query.exception()
    if failure is not None:
        raise SystemExit(f"the query {query.name} failed: {failure}")
    progress = query.lastProgress
    if progress is None:
        return 0
    end = progress["sources"][0]["endOffset"]
    if not end:
        return 0
    position: int = json.loads(end)["pos"][broker.STREAM] if isinstance(end, str) else 0
    return position


def _format_rate(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f}/s" if seconds > 0 and count else ""


def _report(console: Console, run: Run, places: pipeline.Places, out: Path) -> bool:
    """Print the tables, write the chart and report.json, and return True if every check passed."""
    with console.status("checking against the package's data"):
        frame = read_flights()
        archived = check.read_archive(places.archive)
        windows = check.read_windows(places.delays)
        checks = list(check.compare(frame, archived, windows, run.counts))
        late = archived[archived.dep_delay > pipeline.ALERT_MINUTES]
        late = late.assign(day=late.departure.dt.tz_localize(None).dt.normalize())
        chart.draw(windows, late, out / "delays.png")
    console.print(_make_origin_table(windows, late))
    console.print(_make_throughput_table(run, places))
    table = Table(title="Checks against the package's data, computed with pandas")
    for heading in ("", "expected", "found", ""):
        table.add_column(heading, justify="left" if heading == "" else "right")
    for result in checks:
        verdict = "[green]same[/]" if result.passed else "[bold red]DIFFERENT[/]"
        table.add_row(
            result.name, _format_value(result.expected), _format_value(result.found), verdict
        )
    console.print(table)
    passed = all(result.passed for result in checks)
    report = {
        "passed": passed,
        "checks": [vars(result) | {"passed": result.passed} for result in checks],
        "counts": run.counts,
        "seconds": {"publish": run.publish_s, "all": run.elapsed_s, **run.spark_s},
    }
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    console.print(f"chart: {out / 'delays.png'}   archive: {places.archive}")
    if not passed:
        console.print("[bold red]What came out is not what went in.[/]")
    return passed


def _format_value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _make_origin_table(windows: pd.DataFrame, late: pd.DataFrame) -> Table:
    """Return a table of the flights, delays and alerts of each airport."""
    table = Table(title="Departures from New York in 2013")
    table.add_column("origin")
    for heading in ("flights", "departed", "mean delay", "worst day", "mean that day", "alerts"):
        table.add_column(heading, justify="right")
    mean = (windows.minutes / windows.departed).astype(float)
    for origin, rows in windows.groupby(level="origin"):
        worst = mean[rows.index].idxmax()
        table.add_row(
            chart.ORIGINS[origin],
            f"{rows.flights.sum():,}",
            f"{rows.departed.sum():,}",
            f"{rows.minutes.sum() / rows.departed.sum():.1f} min",
            f"{worst[0]:%d %b}",
            f"{mean[worst]:.0f} min",
            f"{(late.origin == origin).sum():,}",
        )
    return table


def _make_throughput_table(run: Run, places: pipeline.Places) -> Table:
    """Return a table of the records, seconds and rates of each part of the demo."""
    table = Table(title="Throughput, everything running at once")
    for heading in ("", "records", "seconds", "records/s"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    table.add_row(*_format_row("published by pika, confirmed", run.total, run.publish_s))
    names = {
        "archive": "joined and archived",
        "delays": "aggregated by window",
        "alerts": "searched for alerts",
        "unreadable": "searched for bad ones",
    }
    for name, seconds in run.spark_s.items():
        table.add_row(*_format_row(names[name], run.total, seconds))
    table.add_row(*_format_row("all of it, with starting up", run.total, run.elapsed_s))
    archive_bytes = sum(path.stat().st_size for path in places.archive.rglob("*.parquet"))
    table.caption = (
        f"archive: {archive_bytes / 1e6:.1f} MB of Parquet; alerts delivered: "
        f"{run.counts['delivered']:,}, of them distinct: {run.counts['alerts']:,}"
    )
    return table


def _format_row(name: str, count: int, seconds: float) -> tuple[str, str, str, str]:
    return name, f"{count:,}", f"{seconds:.1f}", f"{count / seconds:,.0f}" if seconds else ""


if __name__ == "__main__":
    main()
