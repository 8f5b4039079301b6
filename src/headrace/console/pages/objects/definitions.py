# SPDX-License-Identifier: Apache-2.0
"""Definitions, down and up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.writes import definitions as writes
from headrace.console.http.routes import ADMINISTRATOR
from headrace.console.pages.actions import Action, Field
from headrace.console.pages.commands import line
from headrace.console.pages.listings import Link

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values


def command(call: HttpCall, values: Values) -> str:
    """Return the command line that does the same."""
    options = () if values.get(writes.LENIENT) in (True, "true") else ("--known",)
    return line("definitions", "import", *options, "FILE")


ACTIONS = (
    Action(
        "/definitions",
        "Definitions",
        writes.import_definitions,
        lambda call, values: "/definitions",
        lambda call, values: "The definitions are imported.",
        (
            Field(
                "file",
                "A file of definitions to import",
                "file",
                help="JSON of Headrace or RabbitMQ. What exists and differs stays as it is; "
                "users, permissions and policies take the value of the file.",
            ),
            Field(
                writes.LENIENT,
                "Leave out what has no equivalent here, such as shovels",
                "flag",
                help="Without it nothing is imported from a file with such an element.",
                in_query=True,
            ),
        ),
        command=command,
        button="Import",
        tag=ADMINISTRATOR,
        links=lambda call: [
            Link("Export all", "/api/definitions?download=definitions.json", ADMINISTRATOR)
        ],
        body_max=writes.DEFINITIONS_BYTES_MAX,
    ),
)
