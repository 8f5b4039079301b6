# SPDX-License-Identifier: Apache-2.0
"""``headrace soak`` and ``headrace soak-spark``: kill, restart, and check for lost messages."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click

from headrace import extras


@click.command()
@click.option("--kills", default=20, show_default=True, help="Number of kills of the broker.")
@click.option("--seed", default=1, show_default=True, help="Seed of the random load and moments.")
def soak(kills: int, seed: int) -> None:
    """Kill a broker under load again and again, and check that it lost no confirmed message."""
    import asyncio

    from headrace.testing.soak import Soak

    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as directory:
        run = Soak(Path(directory), seed, click.echo)
        with click.progressbar(length=kills, label="Kills") as bar:
            asyncio.run(run.run(kills, lambda: bar.update(1)))
        click.echo(run.report())
        for text in run.history.broken:
            click.echo(text, err=True)
        if run.history.broken:
            raise SystemExit(1)


@click.command("soak-spark")
@click.option("--kills", default=20, show_default=True, help="Number of kills.")
@click.option(
    "--seed", default=1, show_default=True, help="Seed of the random victims and moments."
)
@click.option(
    "--cluster", is_flag=True, help="Run executors in separate processes, and kill them, too."
)
def soak_spark(kills: int, seed: int, cluster: bool) -> None:
    """Kill a pipeline on Spark again and again, and check that each message arrives once."""
    extras.require("psutil", "pyspark", "pyarrow")
    from headrace.testing.spark_soak import CLUSTER, LOCAL, SoakError, SparkSoak

    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"[{time.monotonic() - began:7.1f} s] {text}", err=True)

    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as directory:
        soak = SparkSoak(Path(directory), seed=seed, master=CLUSTER if cluster else LOCAL, say=say)
        try:
            count = soak.run(kills)
        except SoakError as error:
            raise click.ClickException(str(error)) from None
        killed = ", ".join(f"{number} of {what}" for what, number in soak.kills.items())
        click.echo(f"{count} messages passed once each; kills: {killed}")
