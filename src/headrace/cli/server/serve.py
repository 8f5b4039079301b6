# SPDX-License-Identifier: Apache-2.0
"""``headrace serve``: a broker in the foreground."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from headrace import __version__, extras
from headrace.server.config.settings import (
    SETTINGS,
    SettingError,
    Settings,
    flag_name,
    former_names,
    load,
    unknown_variables,
)

if TYPE_CHECKING:
    from headrace.server.broker import Broker
    from headrace.server.config.logs import Logs
    from headrace.server.systemd import Supervisor

log = logging.getLogger(__name__)

Function = TypeVar("Function", bound=Callable[..., object])


def setting_options(function: Function) -> Function:
    """Add a flag for every setting. Values are checked with those of other sources."""
    for row in reversed(SETTINGS):
        about = row.help if row.default in (None, "", False) else f"{row.help} [{row.default}]"
        if row.kind is bool:
            flag = f"{row.flag}/--no-{row.name.replace('_', '-')}"
            function = click.option(flag, row.name, default=None, help=about)(function)
        else:
            metavar = (row.unit or row.kind.__name__).upper()
            function = click.option(
                row.flag, row.name, metavar=metavar, help=about, multiple=row.many
            )(function)
        if row.former:
            flag = flag_name(row.former)
            function = click.option(flag, row.former, multiple=row.many, hidden=True)(function)
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
    import asyncio

    from headrace.heap import return_large_blocks
    from headrace.server.config.logs import LogError, Logs
    from headrace.server.config.process import collect_rarely, raise_open_files
    from headrace.server.net.hot_sockets import HotLoop

    def read_settings() -> Settings:
        return load(flags, os.environ, config)

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # Until the loop handles it.
    try:
        settings = read_settings()
        logs = Logs(settings)
    except (SettingError, LogError) as error:
        raise click.ClickException(str(error)) from None
    if settings.console:
        extras.require("aiohttp", "jinja2")  # Before the broker opens anything.
    if settings.cluster:
        extras.require("psycopg")
    for text in (*unknown_variables(os.environ), *former_names(flags, os.environ, config)):
        log.warning("%s", text)
    raise_open_files()
    return_large_blocks()
    collect_rarely()
    with asyncio.Runner(loop_factory=HotLoop) as runner:
        runner.run(run(settings, read_settings, logs))


async def run(settings: Settings, read_settings: Callable[[], Settings], logs: Logs) -> None:
    """Serve until SIGTERM or SIGINT."""
    import asyncio

    from headrace.cli.server.console_child import ConsoleChild
    from headrace.server.broker import Broker
    from headrace.server.config.process import settle_garbage_collector
    from headrace.server.config.settings import StartError
    from headrace.server.management.socket import socket_path
    from headrace.server.systemd import Supervisor

    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    supervisor = Supervisor(os.environ)
    failures: list[str] = []

    def fail(why: str) -> None:
        failures.append(why)
        over.set()

    broker = Broker(settings, read_settings=read_settings, logs=logs, on_failure=fail)
    loop.add_signal_handler(signal.SIGHUP, reload_on_hangup, broker, logs, supervisor)
    try:
        addresses = await broker.start()
    except StartError as error:
        raise click.ClickException(str(error)) from None
    console = None
    if settings.console:
        path = socket_path(settings.management_socket, settings.data)
        assert path is not None  # The settings were checked together.
        console = ConsoleChild(settings, path)
        addresses = {**addresses, **await console.start()}
    processes: dict[str, object] = {"pid": os.getpid()}
    if broker.relay_processes is not None:
        processes["relays"] = broker.relay_processes.pids
    try:
        click.echo(f"headrace ready {json.dumps({**addresses, **processes})}")
    except OSError as error:  # Serve even if standard output is closed.
        log.warning("cannot print the ready line: %s", error)
    log.info("headrace %s listens on %s", __version__, ", ".join(addresses.values()))
    settle_garbage_collector()
    supervisor.ready(f"listening on {', '.join(addresses.values())}")
    watching = loop.create_task(supervisor.watch())
    await over.wait()
    log.info("stopping")
    supervisor.stopping()
    if console is not None:
        await console.stop()
    await broker.stop()
    watching.cancel()
    log.info("stopped")
    if failures:
        raise click.ClickException(failures[0])


def reload_on_hangup(broker: Broker, logs: Logs, supervisor: Supervisor) -> None:
    """Reopen the log files and read the settings again, on SIGHUP."""
    from headrace.server.config.logs import LogError
    from headrace.server.config.settings import StartError
    from headrace.server.net.tls import TlsError

    try:  # First: the settings may be wrong, and yet the file was renamed.
        logs.reopen()
        broker.audit.reopen()
    except LogError as error:
        log.error("%s", error)
    if not broker.is_started:
        return  # It is still starting.
    supervisor.reloading()
    status = "reloaded"
    try:
        broker.reload()
    except (SettingError, LogError, StartError, TlsError) as error:
        status = f"nothing is reloaded: {error}"
    finally:
        supervisor.ready(status)
