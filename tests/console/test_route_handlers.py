# SPDX-License-Identifier: Apache-2.0
"""Handlers of the API take what the paths of their routes have."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import TYPE_CHECKING

import pytest

from headrace.console import api
from headrace.console.api.openapi import PLACE
from headrace.console.api.routes import ROUTES
from headrace.console.http.routes import Routes

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
        if hasattr(route.handler, "__wrapped__"):  # By `Routes`; others read ``call.path``.
            assert names <= takes, path


def test_every_route_of_a_module_is_served() -> None:
    names = [name for _, name, _ in pkgutil.iter_modules(api.__path__, f"{api.__name__}.")]
    tables = [vars(importlib.import_module(name)) for name in names]
    routes = {
        (route.method, route.path)
        for table in tables
        for value in table.values()
        if isinstance(value, Routes)
        for route in value
    }
    assert len(routes) > 100
    assert routes <= {(route.method, route.path) for route in ROUTES}
