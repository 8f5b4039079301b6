# SPDX-License-Identifier: Apache-2.0
"""The command `headrace bench`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.output import json_file_option, write_json

if TYPE_CHECKING:
    from headrace.bench.report import Result
    from headrace.bench.workload import Bench, Workload
    from headrace.spec.tables import Version

DEFAULT_URL = "amqp://guest:guest@127.0.0.1:5672/"


@click.command()
@click.argument("url", default="")
@click.option("--compare", metavar="URL", help="Measure this broker too and show ratios.")
@click.option(
    "--serve", is_flag=True, help="Start `headrace serve` and measure it, after the broker at URL."
)
@click.option(
    "--workload",
    "names",
    metavar="NAMES",
    default="",
    help="Workloads, separated by commas, such as W1,W4. [all that can be run]",
)
@click.option(
    "--growth",
    is_flag=True,
    help="Measure how the cost of a message grows, instead of the workloads.",
)
@click.option(
    "--clients", is_flag=True, help="Measure the cost of clients instead: ours, pika and aio-pika."
)
@click.option("--time", "seconds", type=click.FloatRange(0.05), default=8.0, show_default=True)
@click.option("--warm", "warm_s", type=click.FloatRange(0), default=1.0, show_default=True)
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--scale", type=click.FloatRange(0, min_open=True), default=1.0, help="Factor for all counts."
)
@click.option(
    "--pid", type=int, default=0, help="The broker's process id. [found if the broker is local]"
)
@click.option(
    "--restart", metavar="COMMAND", help="For W8: the command that starts the broker at URL again."
)
@click.option("--publish-version", metavar="VERSION", help="Publish by this version of AMQP.")
@click.option("--consume-version", metavar="VERSION", help="Consume by this version of AMQP.")
@json_file_option("Print the results as JSON, one object per line, instead of the table")
def bench(
    url: str,
    compare: str | None,
    serve: bool,
    names: str,
    growth: bool,
    clients: bool,
    seconds: float,
    warm_s: float,
    runs: int,
    scale: float,
    pid: int,
    restart: str | None,
    publish_version: str | None,
    consume_version: str | None,
    json_path: Path | None,
) -> None:
    """Measure the broker at URL, or compare two.

    Publishers and consumers speak AMQP 0-9-1, or what the URL says (?version=0-10), or each what
    its option says. W3, W7 and W8 are measured by 0-9-1 only.

    With two brokers the ratio says how many times better the second one is.
    """
    from headrace.bench.growth import GROWTH
    from headrace.bench.load import meter
    from headrace.bench.load.link import BenchError
    from headrace.bench.served import BenchBroker, RestartedBroker
    from headrace.bench.usage import Usage
    from headrace.bench.workload import WORKLOADS
    from headrace.client.errors import InvalidUrl

    if not meter.is_compiled():
        click.echo("headrace is not compiled: the load generator limits the rates", err=True)
    if clients:
        _measure_clients(url, serve, runs, scale, json_path)
        return
    choices = GROWTH if growth else WORKLOADS
    workloads = _select(choices, names)
    try:
        with ExitStack() as stack:
            urls = [address for address in (url, compare) if address]
            benches = [_make_bench(address, seconds, warm_s, scale) for address in urls]
            if serve:
                served = BenchBroker()
                stack.callback(served.close)
                benches.append(_make_bench(served.url, seconds, warm_s, scale))
                benches[-1].restartable = served
            if not benches:
                benches = [_make_bench(DEFAULT_URL, seconds, warm_s, scale)]
            if restart:
                benches[0].restartable = RestartedBroker(benches[0].settings, restart)
            if pid:
                benches[0].usage = Usage(pid)
            for broker_bench in benches:
                if publish_version:
                    broker_bench.publish_version = _parse_version(publish_version)
                if consume_version:
                    broker_bench.consume_version = _parse_version(consume_version)
            if len(benches) > 2:
                raise click.UsageError("give two brokers at most, by URL, --compare or --serve")
            if not names:  # W8 needs a broker that can be restarted.
                may_restart = any(broker_bench.restartable for broker_bench in benches)
                workloads = [
                    workload for workload in workloads if workload.name != "W8" or may_restart
                ]
            results = _measure(benches, workloads, runs)
    except (BenchError, InvalidUrl) as error:
        raise click.ClickException(str(error)) from None
    _report(results, json_path)


def _report(results: list[list[Result]], json_path: Path | None) -> None:
    """Print the results, or write them as JSON; exit with 1 if a workload had problems."""
    from headrace.bench.report import format_table

    all_results = [result for broker_results in results for result in broker_results]
    if not write_json(json_path, [result.as_json() for result in all_results]):
        click.echo(format_table(*results))
    if any(result.problems() for result in all_results):
        sys.exit(1)


def _measure_clients(
    url: str, serve: bool, runs: int, scale: float, json_path: Path | None
) -> None:
    """Measure the processor time of clients on a broker, and print or write it."""
    from headrace.bench.clients import clients
    from headrace.bench.load.link import BenchError
    from headrace.bench.served import BenchBroker

    if url and serve:
        raise click.UsageError("--clients measures one broker: give URL or --serve")
    for client in clients.find_missing():
        click.echo(f"{client} is not installed, and not measured", err=True)
    try:
        with ExitStack() as stack:
            if serve:
                served = BenchBroker()
                stack.callback(served.close)
                url = served.url
            costs = clients.measure(
                url or DEFAULT_URL, runs, scale, lambda text: click.echo(text, err=True)
            )
    except BenchError as error:
        raise click.ClickException(str(error)) from None
    if not write_json(json_path, [cost.as_json() for cost in costs]):
        click.echo(clients.format_table(costs))


def _make_bench(url: str, seconds: float, warm_s: float, scale: float) -> Bench:
    from headrace.bench.usage import Usage, find_listener
    from headrace.bench.workload import Bench
    from headrace.client.url import parse_url

    settings = parse_url(url)
    usage = Usage(find_listener(settings.host, settings.port))
    version = settings.version
    return Bench(
        settings,
        usage,
        seconds,
        warm_s,
        scale,
        publish_version=version,
        consume_version=version,
    )


def _parse_version(label: str) -> Version:
    from headrace.spec.tables import Version

    for version in Version:
        if version.label == label:
            return version
    labels = ", ".join(version.label for version in Version)
    raise click.BadParameter(f"{label!r} is not one of {labels}")


def _select(choices: dict[str, Workload], names: str) -> list[Workload]:
    chosen = [name.strip() for name in names.split(",")] if names else list(choices)
    for name in chosen:
        if name not in choices:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(choices)}")
    return [choices[name] for name in chosen]


def _measure(benches: list[Bench], workloads: list[Workload], runs: int) -> list[list[Result]]:
    """Measure the workloads; the runs of a workload on both brokers follow each other."""
    from headrace.bench.load.link import BenchError
    from headrace.bench.report import Result

    results: list[list[Result]] = [[] for _ in benches]
    for workload in workloads:
        for broker_results, broker_bench in zip(results, benches, strict=True):
            address = f"{broker_bench.settings.host}:{broker_bench.settings.port}"
            result = Result(workload.name, workload.text, address)
            broker_results.append(result)
            for number in range(runs):
                click.echo(f"{workload.name} on {address}, run {number + 1} of {runs}", err=True)
                try:
                    result.samples.append(workload.measure(broker_bench))
                except BenchError as error:
                    result.error = str(error)
                    click.echo(f"  {error}", err=True)
                    break
    return results
