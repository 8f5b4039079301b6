# SPDX-License-Identifier: Apache-2.0
"""Definitions, down and up."""

from __future__ import annotations

from headrace.console.api.writes import definitions as writes
from headrace.console.http.routes import ADMINISTRATOR
from headrace.console.pages.actions import Action, Field
from headrace.console.pages.commands import line
from headrace.console.pages.listings import Link

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
        ),
        command=lambda call, values: line("definitions", "import", "FILE"),
        button="Import",
        tag=ADMINISTRATOR,
        links=lambda call: [
            Link("Export all", "/api/definitions?download=definitions.json", ADMINISTRATOR)
        ],
        body_max=writes.DEFINITIONS_BYTES_MAX,
    ),
)
