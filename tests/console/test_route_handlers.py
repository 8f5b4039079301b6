# SPDX-License-Identifier: Apache-2.0
"""Handlers of the API take what the paths of their routes have."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from headrace.console.api.table import ROUTES
from headrace.console.http.openapi import PLACE

if TYPE_CHECKING:
    from headrace.console.http.routes import Route


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_handler_takes_the_parameters_of_its_path(route: Route) -> None:
    _, *parameters = inspect.signature(route.handler).parameters.values()
    takes = {one.name for one in parameters}
    needs = {one.name for one in parameters if one.default is inspect.Parameter.empty}
    for path in (route.path, *route.aliases):
        names = set(PLACE.findall(path))
        assert needs <= names, path
        if takes:  # Others read ``call.path``.
            assert names <= takes, path
