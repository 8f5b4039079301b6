# SPDX-License-Identifier: Apache-2.0
"""``/api/openapi.json``: the table of routes for tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import __version__
from headrace.console.api.schemas import SCHEMAS
from headrace.console.http.openapi import document
from headrace.console.http.routes import MANAGEMENT, Route

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall


def with_document(routes: tuple[Route, ...]) -> tuple[Route, ...]:
    """Return a table and the route of its document."""

    async def show(call: HttpCall) -> object:
        return document(whole, SCHEMAS, __version__)

    whole = (
        *routes,
        Route("GET", "/api/openapi.json", show, MANAGEMENT, "", "This table, as OpenAPI 3.1."),
    )
    return whole
