# SPDX-License-Identifier: Apache-2.0
"""``headrace conformance``: check which rules of the standards a broker keeps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.output import json_file_option, write_json

if TYPE_CHECKING:
    from headrace.conformance.check import Check
    from headrace.conformance.run import VersionReport

LABELS = ("0-10", "0-9-1", "0-9", "0-8")  # Of the versions, as headrace.conformance.run has them.


@click.command()
@click.argument("url", metavar="URL")
@click.option(
    "--version",
    "versions",
    multiple=True,
    type=click.Choice(LABELS),
    help="A version of AMQP; may be repeated. [all]",
)
@click.option("--check", "names", multiple=True, metavar="NAME", help="Run only this check.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    metavar="S",
    help="Time limit for an answer, in seconds.",
)
@click.option("--broken", is_flag=True, help="List only broken rules.")
@json_file_option("Print the verdicts as JSON, one object for each version, instead of the lists")
def conformance(
    url: str,
    versions: tuple[str, ...],
    names: tuple[str, ...],
    timeout_s: float,
    broken: bool,
    json_path: Path | None,
) -> None:
    """Check a broker for the rules of AMQP 0-10, 0-9-1, 0-9 and 0-8 that a client can observe.

    It declares queues and exchanges named headrace.conformance.… at URL (amqp:// or amqps://), and
    deletes them again. The exit status is 1 if a rule with MUST is broken.
    """
    from headrace.client.errors import InvalidUrl
    from headrace.client.url import parse_url
    from headrace.conformance.check import CHECKS
    from headrace.conformance.run import VERSIONS, report

    if unknown := [name for name in names if name not in CHECKS]:
        raise click.UsageError(f"unknown check {unknown[0]!r}; checks: {', '.join(sorted(CHECKS))}")
    try:
        settings = replace(parse_url(url), connection_timeout_s=timeout_s)
    except InvalidUrl as error:
        raise click.ClickException(str(error)) from None
    reports = []
    for label in versions or VERSIONS:
        try:
            reports.append(report(settings, VERSIONS[label], names, _progress_printer(label)))
        except OSError as error:
            raise click.ClickException(f"{settings.address}: {error}") from None
    if not write_json(json_path, [_as_data(version_report) for version_report in reports]):
        for version_report in reports:
            if version_report.is_served:
                _print_rules(version_report, broken)
        _print_sums(reports)
    sys.exit(1 if any(verdict.is_must for each in reports for verdict in each.broken) else 0)


def _progress_printer(label: str) -> Callable[[Check], None]:
    """Return a function that prints the running check on a terminal."""

    def print_progress(check: Check) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{label} {check.title[:100]}", nl=False, err=True)

    return print_progress


def _print_rules(version_report: VersionReport, only_broken: bool) -> None:
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    verdicts = version_report.broken if only_broken else version_report.verdicts
    click.echo(f"\nAMQP {version_report.version.label}, {version_report.product}")
    width = max((len(verdict.rule.id) for verdict in verdicts), default=0)
    for verdict in verdicts:
        outcome = f"broken: {verdict.broken}" if verdict.broken else "holds"
        click.echo(f"  {verdict.rule.id:{width}}  {verdict.rule.level:8}  {outcome}")
        if verdict.broken:
            click.echo(f"  {'':{width}}  {'':8}  ({'; '.join(verdict.titles)})")


def _print_sums(reports: list[VersionReport]) -> None:
    click.echo(
        f"\n{'version':8}  {'rules checked':>13}  {'hold':>5}  {'broken':>6}  {'of MUST':>7}"
    )
    for version_report in reports:
        if not version_report.is_served:
            click.echo(f"{version_report.version.label:8}  not served")
            continue
        checked, broken = len(version_report.verdicts), len(version_report.broken)
        must = sum(verdict.is_must for verdict in version_report.broken)
        label = version_report.version.label
        click.echo(f"{label:8}  {checked:13}  {checked - broken:5}  {broken:6}  {must:7}")


def _as_data(version_report: VersionReport) -> dict[str, object]:
    return {
        "version": version_report.version.label,
        "product": version_report.product or None,
        "rules": {
            verdict.rule.id: {
                "level": verdict.rule.level,
                "holds": not verdict.broken,
                "broken": verdict.broken or None,
                "checks": list(verdict.titles),
            }
            for verdict in version_report.verdicts
        },
    }
