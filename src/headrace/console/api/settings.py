# SPDX-License-Identifier: Apache-2.0
"""The settings in effect with their sources, and the paths of RabbitMQ for settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.schemas import FLAG, TEXT, record
from headrace.console.broker.lists import SETTINGS
from headrace.console.http.answers import RowList
from headrace.console.http.routes import Routes
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

SETTING_SCHEMA = record(
    name=TEXT, value={}, default={}, source=TEXT, unit=TEXT, reload=FLAG, help=TEXT
)
RABBITMQS_ROUTES = Routes()  # Paths of RabbitMQ's API, apart from our own.
ROUTES = Routes()


@ROUTES.get_list(
    {"/api/headrace/settings": "The settings in effect, each with its source."},
    rows=SETTING_SCHEMA,
    tag=ADMINISTRATOR,
)
async def list_settings(call: HttpCall) -> RowList:
    """Return the settings in effect, each with its source."""
    return RowList(await call.broker.rows(SETTINGS), ("name",))


@RABBITMQS_ROUTES.get({"/api/version": "The version of the API."}, tag=MANAGEMENT)
async def show_version(call: HttpCall) -> str:
    """Return the version of the API."""
    return call.settings.rabbitmq_version


@RABBITMQS_ROUTES.get(
    {"/api/config/effective": "The settings in effect, by name, without secrets."},
    tag=ADMINISTRATOR,
)
async def show_effective_config(call: HttpCall) -> JsonObject:
    """Return the settings in effect; the broker hides secrets."""
    return {row["name"]: row["value"] for row in await call.broker.rows(SETTINGS)}
