# SPDX-License-Identifier: Apache-2.0
"""``headrace trace``: copy published and delivered messages to ``amq.rabbitmq.trace``."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.management import ask, management_option
from headrace.cli.output import json_flag, print_facts

SWITCH = {"on": True, "off": False, "status": None}


@click.command()
@management_option
@click.option("--vhost", help="The virtual host. [the default one]")
@json_flag
@click.argument("what", type=click.Choice(list(SWITCH)), default="status")
def trace(socket: Path, vhost: str | None, as_json: bool, what: str) -> None:
    """Switch tracing of a virtual host on or off, or print its state.

    Tracing copies each published message to the exchange amq.rabbitmq.trace with the routing key
    publish.EXCHANGE, and each delivered one with deliver.QUEUE. It stays on over restarts.
    """
    answer = ask(socket, "trace", vhost=vhost, on=SWITCH[what])
    if as_json:
        print_facts(answer, "json")
        return
    state = "on" if answer["on"] else "off"
    lost = f"; {answer['lost']} messages could not be copied" if answer["lost"] else ""
    click.echo(f"vhost '{answer['vhost']}': tracing is {state}{lost}")
