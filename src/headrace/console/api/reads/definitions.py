# SPDX-License-Identifier: Apache-2.0
"""``GET /api/definitions``: everything that was declared, as RabbitMQ's JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import __version__
from headrace.console.http.answers import Answer
from headrace.console.http.errors import bad_request
from headrace.console.http.routes import Parameter, Route
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

SECTIONS = (  # In the order in which the broker imports them.
    "vhosts",
    "users",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "policies",
    "exchanges",
    "queues",
    "bindings",
)
OF_VHOST = ("parameters", "policies", "exchanges", "queues", "bindings")
FOR_RABBITMQ = "for_rabbitmq"
NAME_MAX = 255  # Characters of a file's name.


async def export(call: HttpCall) -> object:
    """Return the definitions of all, or of one virtual host."""
    vhost = call.path.get("vhost")
    document: JsonObject = {
        "rabbit_version": call.settings.rabbitmq_version,
        "rabbitmq_version": call.settings.rabbitmq_version,
        "product_name": "Headrace",
        "product_version": __version__,
        **{section: [] for section in (SECTIONS if vhost is None else OF_VHOST)},
    }
    async for item in call.items(
        "export definitions", vhost=vhost, for_rabbitmq=call.query.get(FOR_RABBITMQ) == "true"
    ):
        document.setdefault(item["section"], []).append(item["value"])
    name = call.query.get("download")
    if not name:
        return document
    if len(name) > NAME_MAX or not name.isprintable() or set(name) & set('"\\/;'):
        raise bad_request("'download' is not a file name")
    shown = name.encode("ascii", "replace").decode()
    return Answer(200, document, {"Content-Disposition": f'attachment; filename="{shown}"'})


PARAMETERS = (
    Parameter("download", "Name of the file that browsers save."),
    Parameter(FOR_RABBITMQ, "Leave out hashes that RabbitMQ cannot read.", "boolean"),
)
ROUTES = (
    Route(
        "GET",
        "/api/definitions",
        export,
        ADMINISTRATOR,
        "",
        "All definitions as one document.",
        PARAMETERS,
        aliases=("/api/all-configuration",),
    ),
    Route(
        "GET",
        "/api/definitions/{vhost}",
        export,
        ADMINISTRATOR,
        "",
        "The definitions of one virtual host.",
        PARAMETERS,
    ),
)
