# SPDX-License-Identifier: Apache-2.0
"""The JSON Schemas of the answers of the HTTP API, as its routes declare them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.compatibility import EMPTY_LIST_SCHEMA
from headrace.console.api.routes import ROUTES

if TYPE_CHECKING:
    from headrace.untyped import JsonObject

__all__ = ["EMPTY_LIST_SCHEMA", "OWN", "OWN_SCHEMAS", "SCHEMAS"]

OWN = "/api/headrace"
HEALTH = "/api/health"  # Paths of checks, whose answers have tests of their own.
#: The schemas of RabbitMQ's paths for GET, by path.
SCHEMAS: dict[str, JsonObject] = {
    route.path: route.answer
    for route in ROUTES
    if route.answer and route.is_rabbitmqs and route.method == "GET"
    if not route.path.startswith(HEALTH)
}
#: The schemas of our own paths, by method and path.
OWN_SCHEMAS: dict[str, JsonObject] = {
    f"{route.method} {route.path}": route.answer
    for route in ROUTES
    if route.answer and not route.is_rabbitmqs
}
