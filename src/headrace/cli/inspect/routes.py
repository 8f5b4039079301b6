# SPDX-License-Identifier: Apache-2.0
"""``headrace route``: where a message would go."""

from __future__ import annotations

import json
from pathlib import Path

import click

from headrace.cli.management import ask, management_option
from headrace.cli.output import json_flag


@click.command()
@management_option
@click.option("--vhost", help="The virtual host of the exchange. [the default one]")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE",
    help="A header of the message; a JSON VALUE has its type. May be repeated.",
)  # fmt: skip
@json_flag
@click.argument("exchange")
@click.argument("key", metavar="[KEY]", default="")
def route(
    socket: Path,
    vhost: str | None,
    headers: tuple[str, ...],
    as_json: bool,
    exchange: str,
    key: str,
) -> None:
    """Print the queues that a message to EXCHANGE with the routing key KEY would reach.

    Nothing is published. An empty EXCHANGE is the default one. Headers count at exchanges of type
    headers.
    """
    answer = ask(
        socket,
        "route",
        vhost=vhost,
        exchange=exchange,
        routing_key=key,
        headers=dict(map(parse_header, headers)) or None,
    )
    if as_json:
        click.echo(json.dumps(answer))
        return
    for name in answer["queues"]:
        click.echo(name)
    if not answer["routed"]:
        click.echo("no queue", err=True)
    elif answer["count"] > len(answer["queues"]):
        click.echo(f"and {answer['count'] - len(answer['queues'])} more", err=True)


def parse_header(text: str) -> tuple[str, object]:
    """Return the name and the value of a header.

    Raises:
        BadParameter: the text has no equals sign.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"'{text}' is not NAME=VALUE", param_hint="--header")
    from headrace.exact_json import UnfitValue, read_json

    try:
        return name, read_json(value)
    except UnfitValue as error:
        raise click.BadParameter(f"{name}: {error}", param_hint="--header") from None
    except ValueError:
        return name, value
