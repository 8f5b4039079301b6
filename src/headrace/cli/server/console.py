# SPDX-License-Identifier: Apache-2.0
"""``headrace console``: RabbitMQ's HTTP API, metrics and pages for a broker of this machine."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import click

from headrace import extras
from headrace.cli.management import management_option
from headrace.server.config.settings import Settings

DEFAULTS = Settings()
NICENESS = 5  # The broker goes first where processors are short.
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@click.command()
@management_option
@click.option(
    "--console-host",
    "host",
    default=DEFAULTS.console_host,
    show_default=True,
    help="Addresses to listen on, separated by commas.",
)
@click.option(
    "--console-port",
    "port",
    type=click.IntRange(0, 65535),
    default=DEFAULTS.console_port,
    show_default=True,
    help="Port of the API and the pages; 0: a free port.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(-1, 65535),
    default=DEFAULTS.metrics_port,
    show_default=True,
    help="Port of the metrics; 0: a free port; -1: no metrics.",
)
@click.option(
    "--console-names",
    "names",
    default="",
    help="Host names that requests may have in their Host header, separated by commas.",
)
@click.option(
    "--console-url",
    "url",
    default="",
    help="Address of the console for browsers behind a proxy, such as https://mq.example.",
)
@click.option("--tls-cert", type=click.Path(path_type=Path), help="Certificate chain, PEM.")
@click.option(
    "--tls-key", type=click.Path(path_type=Path), help="Private key of the certificate, PEM."
)
@click.option(
    "--console-plain-ok",
    "plain_ok",
    is_flag=True,
    help="Serve without TLS on addresses other than loopback.",
)
@click.option(
    "--console-history",
    "history",
    default="",
    help="File of the history; empty: a file beside the socket; none: no file.",
)
@click.option("--oauth-client-id", default="", help="Client id at an authorization server.")
@click.option(
    "--oauth-authorization-endpoint",
    default="",
    help="Authorization endpoint, at which browsers log in.",
)
@click.option(
    "--oauth-token-endpoint", default="", help="Token endpoint, which exchanges codes for tokens."
)
@click.option(
    "--oauth-scopes",
    default=DEFAULTS.console_oauth_scopes,
    show_default=True,
    help="Scopes to request, separated by spaces.",
)
@click.option("--oauth-issuer", default="", help="Issuer that the answers must have.")
@click.option(
    "--oauth-ca",
    type=click.Path(path_type=Path),
    help="Certificate authorities of the token endpoint, PEM.",
)
@click.option(
    "--console-pipelines",
    "pipelines",
    default="",
    help="Directories of pipelines and files of query listeners, separated by commas.",
)
@click.option(
    "--rabbitmq-version", default=DEFAULTS.rabbitmq_version, show_default=True, hidden=True
)
@click.option(
    "--http-fds", default="", hidden=True, help="File descriptors of the port's listening sockets."
)
@click.option(
    "--metrics-fds",
    default="",
    hidden=True,
    help="File descriptors of the metrics port's listening sockets.",
)
@click.option("--with-parent", is_flag=True, hidden=True, help="End when standard input is closed.")
def console(
    socket: Path,
    *,
    host: str,
    port: int,
    metrics_port: int,
    names: str,
    url: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    plain_ok: bool,
    history: str,
    pipelines: str,
    oauth_client_id: str,
    oauth_authorization_endpoint: str,
    oauth_token_endpoint: str,
    oauth_scopes: str,
    oauth_issuer: str,
    oauth_ca: Path | None,
    rabbitmq_version: str,
    http_fds: str,
    metrics_fds: str,
    with_parent: bool,
) -> None:
    """Serve the HTTP API, metrics and pages of the broker, until SIGTERM or SIGINT.

    Prints one line, `headrace console ready {JSON}`, when it accepts connections.
    """
    import asyncio

    os.nice(NICENESS)
    extras.require("aiohttp", "jinja2")
    from headrace.console.listening import ConsoleError
    from headrace.console.run import run
    from headrace.console.settings import ConsoleSettings, OAuthClient

    logging.basicConfig(level=logging.INFO, format=FORMAT)
    settings = ConsoleSettings(
        socket=socket,
        host=host,
        port=port,
        metrics_port=None if metrics_port < 0 else metrics_port,
        http_fds=tuple(int(fd) for fd in http_fds.split(",") if fd),
        metrics_fds=tuple(int(fd) for fd in metrics_fds.split(",") if fd),
        names=tuple(text.strip() for text in names.split(",") if text.strip()),
        url=url,
        tls_cert=tls_cert,
        tls_key=tls_key,
        plain_ok=plain_ok,
        history=history,
        pipelines=tuple(Path(text.strip()) for text in pipelines.split(",") if text.strip()),
        rabbitmq_version=rabbitmq_version,
        oauth=OAuthClient(
            client_id=oauth_client_id,
            authorization_endpoint=oauth_authorization_endpoint,
            token_endpoint=oauth_token_endpoint,
            scopes=oauth_scopes,
            issuer=oauth_issuer,
            authorities=oauth_ca,
        )
        if oauth_client_id
        else None,
    )
    try:
        asyncio.run(run(settings, _print_ready, with_parent=with_parent))
    except ConsoleError as error:
        raise click.ClickException(str(error)) from None


def _print_ready(addresses: dict[str, str]) -> None:
    click.echo(f"headrace console ready {json.dumps(addresses)}")
