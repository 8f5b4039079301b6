# SPDX-License-Identifier: Apache-2.0
"""``headrace serve``: a broker in the foreground."""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headrace.server.process import (
    raise_open_files,
    return_large_blocks,
    settle_garbage_collector,
)
from headrace.server.settings import SETTINGS, SettingError, Settings, load

Function = TypeVar("Function", bound=Callable[..., Any])

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def setting_options(function: Function) -> Function:
    """Give a command a flag for every setting. Values are checked with those of other sources."""
    for row in reversed(SETTINGS):
        about = row.help if row.default in (None, "", False) else f"{row.help} [{row.default}]"
        if row.kind is bool:
            flag = f"{row.flag}/--no-{row.name.replace('_', '-')}"
            function = click.option(flag, row.name, default=None, help=about)(function)
        else:
            metavar = (row.unit or row.kind.__name__).upper()
            function = click.option(row.flag, row.name, metavar=metavar, help=about)(function)
    return function


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="TOML file with settings; also HEADRACE_CONFIG.",
)
@setting_options
def serve(config: Path | None, **flags: object) -> None:
    """Run a broker until SIGTERM or SIGINT.

    Prints one line, `headrace ready {JSON}`, when it accepts connections, and logs to standard
    error. Every setting is also a variable HEADRACE_… and a key of the TOML file.
    """
    try:
        settings = load(flags, os.environ, config)
    except SettingError as error:
        raise click.ClickException(str(error)) from None
    logging.basicConfig(
        stream=sys.stderr, level=settings.log_level.upper(), format=LOG_FORMAT, force=True
    )
    raise_open_files()
    return_large_blocks()
    asyncio.run(run(settings))


async def run(settings: Settings) -> None:
    """Serve until a signal asks for the end."""
    from headrace.server.broker import Broker, StartError

    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    broker = Broker(settings)
    try:
        addresses = await broker.start()
    except StartError as error:
        raise click.ClickException(str(error)) from None
    try:
        click.echo(f"headrace ready {json.dumps(addresses)}")
    except OSError as error:  # Nobody reads; that is no reason not to serve.
        logging.getLogger(__name__).warning("cannot print the ready line: %s", error)
    settle_garbage_collector()
    await over.wait()
    await broker.stop()
