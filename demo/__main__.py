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
from demo.flights import flights
from demo.programs import Program

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.25
STALLED_S_MAX = 180.0
TITLES = {
    "archive": "archived to Parquet",
    "delays": "in windows of a day",
    "alerts": "searched for alerts",
    "unreadable": "searched for bad ones",
}


@dataclass
class Run:
    """What a run has measured."""

    total: int
    started: float = field(default_factory=time.monotonic)
    publish_s: float = 0.0
    spark_s: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
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
    places = _places(out)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-demo-")))
        if url is None:
            url, pages = stack.enter_context(broker.serving(scratch))
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


def _places(out: Path) -> pipeline.Places:
    for name in ("lake", "state"):
        shutil.rmtree(out / name, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    out = out.resolve()
    return pipeline.Places(out / "lake", out / "state")


def _run(
    console: Console, stack: ExitStack, scratch: Path, url: str, places: pipeline.Places
) -> Run:
    """Publish, process and count, all at the same time."""
    run = Run(total=len(flights()))
    publisher = Program("demo.publish", url, broker.FLIGHTS)
    stack.callback(publisher.kill)
    counter = Program("demo.count_alerts", url, broker.ALERT_QUEUE)
    stack.callback(counter.kill)
    with _bars(console) as progress, ThreadPoolExecutor(1) as pool:
        starting = pool.submit(_start, stack, scratch, url, places)
        _watch(progress, run, publisher, counter, starting)
    run.counts["queued"] = broker.depth(url, broker.QUEUE)
    run.elapsed_s = time.monotonic() - run.started
    return run


def _start(
    stack: ExitStack, scratch: Path, url: str, places: pipeline.Places
) -> dict[str, StreamingQuery]:
    spark = pipeline.session(scratch)
    stack.callback(spark.stop)
    return pipeline.start(stack, spark, url, places)


def _bars(console: Console) -> Progress:
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
    """Show how far everything is until all flights went through all queries, and stop those."""
    published = progress.add_task("published, confirmed", total=run.total, rate="")
    bars = {
        name: progress.add_task(title, total=run.total, rate="Spark starts")
        for name, title in TITLES.items()
    }
    alerts = progress.add_task("alerts received", total=None, rate="")
    begun = moved = time.monotonic()
    sum_before = -1
    while True:
        publisher.check()
        counter.check()
        queries = starting.result() if starting.done() else {}
        confirmed = run.counts["confirmed"] = _confirmed(publisher)
        run.publish_s = _publish_s(publisher)
        progress.update(published, completed=confirmed, rate=_rate(confirmed, run.publish_s))
        now = time.monotonic()
        if not queries:
            begun = now
        reached = {name: _reached(query) for name, query in queries.items()}
        for name, position in reached.items():
            if position < run.total:
                run.spark_s[name] = now - begun
            rate = _rate(position, run.spark_s.get(name, 0.0))
            progress.update(bars[name], completed=position, rate=rate)
        progress.update(alerts, completed=_alerts(counter))
        if queries and min(reached.values()) >= run.total and confirmed == run.total:
            break
        if confirmed + sum(reached.values()) != sum_before:
            moved, sum_before = now, confirmed + sum(reached.values())
        elif now - moved > STALLED_S_MAX:
            raise SystemExit(f"nothing moved for {STALLED_S_MAX:.0f} s: {confirmed=} {reached=}")
        time.sleep(POLL_S)
    publisher.wait()
    for query in queries.values():
        query.processAllAvailable()  # Lets the last batch, one without records, end.
        query.stop()
    counter.finish()
    run.counts |= json.loads(counter.last)
    progress.update(alerts, completed=run.counts["alerts"], total=run.counts["alerts"])


def _confirmed(publisher: Program) -> int:
    """How many messages the publisher has been confirmed."""
    return int(publisher.last) if publisher.last.isdigit() else 0


def _alerts(counter: Program) -> int:
    """How many alerts the counter has seen."""
    count: int = json.loads(counter.last)["alerts"] if counter.last else 0
    return count


def _publish_s(publisher: Program) -> float:
    """How long the publisher has been publishing."""
    ready = [at for at, line in publisher.lines[:1] if line == "ready"]
    return publisher.lines[-1][0] - ready[0] if ready else 0.0


def _reached(query: StreamingQuery) -> int:
    """Up to which offset a query has done its work."""
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


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f}/s" if seconds > 0 and count else ""


def _report(console: Console, run: Run, places: pipeline.Places, out: Path) -> bool:
    """The tables, the chart and report.json; whether every check passed."""
    with console.status("checking against the package's data"):
        frame = flights()
        archived = check.archive(places.archive)
        windows = check.windows(places.delays)
        checked = list(check.checks(frame, archived, windows, run.counts))
        late = archived[archived.dep_delay > pipeline.ALERT_MINUTES]
        late = late.assign(day=late.departure.dt.tz_localize(None).dt.normalize())
        chart.draw(windows, late, out / "delays.png")
    console.print(_by_origin(windows, late))
    console.print(_figures(run, places))
    table = Table(title="Checks against the package's data, computed with pandas")
    for heading in ("", "expected", "found", ""):
        table.add_column(heading, justify="left" if heading == "" else "right")
    for one in checked:
        verdict = "[green]same[/]" if one.passed else "[bold red]DIFFERENT[/]"
        table.add_row(one.name, _shown(one.expected), _shown(one.found), verdict)
    console.print(table)
    passed = all(one.passed for one in checked)
    report = {
        "passed": passed,
        "checks": [vars(one) | {"passed": one.passed} for one in checked],
        "counts": run.counts,
        "seconds": {"publish": run.publish_s, "all": run.elapsed_s, **run.spark_s},
    }
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    console.print(f"chart: {out / 'delays.png'}   archive: {places.archive}")
    if not passed:
        console.print("[bold red]What came out is not what went in.[/]")
    return passed


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _by_origin(windows: pd.DataFrame, late: pd.DataFrame) -> Table:
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


def _figures(run: Run, places: pipeline.Places) -> Table:
    table = Table(title="Throughput, everything running at once")
    for heading in ("", "records", "seconds", "records/s"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    table.add_row(*_figure("published by pika, confirmed", run.total, run.publish_s))
    names = {
        "archive": "joined and archived",
        "delays": "aggregated by window",
        "alerts": "searched for alerts",
        "unreadable": "searched for bad ones",
    }
    for name, seconds in run.spark_s.items():
        table.add_row(*_figure(names[name], run.total, seconds))
    table.add_row(*_figure("all of it, with starting up", run.total, run.elapsed_s))
    octets = sum(path.stat().st_size for path in places.archive.rglob("*.parquet"))
    table.caption = (
        f"archive: {octets / 1e6:.1f} MB of Parquet; alerts delivered: "
        f"{run.counts['delivered']:,}, of them distinct: {run.counts['alerts']:,}"
    )
    return table


def _figure(name: str, count: int, seconds: float) -> tuple[str, str, str, str]:
    return name, f"{count:,}", f"{seconds:.1f}", f"{count / seconds:,.0f}" if seconds else ""


if __name__ == "__main__":
    main()
