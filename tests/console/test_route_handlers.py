# SPDX-License-Identifier: Apache-2.0
"""Handlers take the parameters of their paths, and the routes of every module are served."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import TYPE_CHECKING, Any

import pytest

from headrace.console import api, pages
from headrace.console.api.openapi import PLACE
from headrace.console.api.routes import ROUTES
from headrace.console.http.routes import Routes
from headrace.console.pages.routes import RESOURCES
from headrace.console.pages.routes import ROUTES as PAGES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from headrace.console.http.routes import Route
    from headrace.console.pages.actions import Action

ACTIONS = [action for resource in RESOURCES for action in resource.actions]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_handler_takes_the_parameters_of_its_path(route: Route) -> None:
    _, *parameters = inspect.signature(route.handler).parameters.values()
    takes = {parameter.name for parameter in parameters}
    needs = {
        parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty
    }
    for path in (route.path, *route.aliases):
        names = set(PLACE.findall(path))
        assert needs <= names, path
        if hasattr(route.handler, "__wrapped__"):  # Added by `Routes`; others read ``call.path``.
            assert names <= takes, path


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_handler_named_by_a_method_is_of_that_method(route: Route) -> None:
    """Names follow the rule in the docstring of ``headrace.console.api``."""
    verb, _, rest = route.handler.__name__.partition("_")
    assert rest
    if verb in ("list", "show"):
        verb = "get"
    if verb in ("get", "put", "post", "delete"):
        assert verb == route.method.lower()
    elif route.method == "GET":
        assert verb in ("check", "pass", "refuse")


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.path)
def test_the_functions_of_an_action_take_the_parameters_of_its_path(action: Action) -> None:
    names = dict.fromkeys(PLACE.findall(action.path), "")
    inspect.signature(action.run).bind("call", "form", **names)
    inspect.signature(action.command).bind("values", **names)
    for function in (action.impact, action.values, action.charts):
        if function is not None:
            inspect.signature(function).bind("call", **names)
    if action.links is not None:
        inspect.signature(action.links).bind(**names)


@pytest.mark.parametrize(("package", "served"), [(api, ROUTES), (pages, PAGES)])
def test_every_route_of_a_module_is_served(package: ModuleType, served: tuple[Route, ...]) -> None:
    names = [name for _, name, _ in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    routes = [route for name in names for route in routes_in(vars(importlib.import_module(name)))]
    assert len(routes) > 100
    declared = {(route.method, route.path) for route in routes}
    assert declared <= {(route.method, route.path) for route in served}


def routes_in(module: dict[str, Any]) -> Iterator[Route]:
    """Yield the routes of a module of the API or of pages."""
    for value in module.values():
        if isinstance(value, Routes):
            yield from value
