# SPDX-License-Identifier: Apache-2.0
"""The table of routes: paths, methods, rights and texts, in one place.

A path is a template of segments, ``/api/queues/{vhost}/{queue}``. Requests are split at "/" before
they are decoded, so that ``%2F`` is part of a name; empty segments do not count, so that trailing
and doubled slashes change nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Concatenate,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
)
from urllib.parse import unquote

from headrace.console.http.errors import HttpError, bad_request, not_found
from headrace.console.http.limits import BODY_BYTES_MAX, SEGMENTS_MAX
from headrace.user_tags import (
    ADMINISTER,
    ADMINISTRATOR,
    LOOK,
    MANAGEMENT,
    MONITOR,
    MONITORING,
    POLICY,
    POLICYMAKER,
    VIEWER,
)

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

    Handler = Callable[[HttpCall], Awaitable[object]]

Names = ParamSpec("Names")
Returned = TypeVar("Returned")
Summaries = Mapping[str, str]  # By path.
NOBODY = ""  # Without login.
ACCESS = "access to the virtual host"  # A permission, in words.
JSON = "application/json"
# Segments of paths that had another name in earlier versions. It still leads there, so that
# programs and bookmarks keep working; only the name of today is documented.
FORMER_SEGMENTS = {"jobs": "errands", "job": "errand"}
OWN = ("/api/headrace/", "/api/openapi.json")  # Beginnings of paths of our own.
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
# The tags of which a user has one, by the tag of the route.
ALLOWED = {
    MANAGEMENT: LOOK,
    POLICYMAKER: POLICY,
    MONITORING: MONITOR,
    ADMINISTRATOR: ADMINISTER,
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query."""

    name: str
    about: str
    kind: str = "string"  # A type of JSON Schema.


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    handler: Handler
    tag: str  # Which the user needs, MANAGEMENT for any; NOBODY for no login.
    permission: str  # Which the broker checks, as for AMQP, in words; empty for none.
    summary: str
    query: tuple[Parameter, ...] = ()
    body: JsonObject | None = None  # JSON Schema of the request's body.
    answer: JsonObject | None = None  # JSON Schema of the answer,
    failure: JsonObject | None = None  # and of one with status 503 that is no error.
    media: str = JSON  # The type of the answer.
    body_max: int = BODY_BYTES_MAX
    paged: bool = False  # The answer is a list with filters, order and pages.
    aliases: tuple[str, ...] = ()
    payloads: bool = False  # It shows messages, which viewers do not see.
    page: bool = False  # For a person with a browser: HTML, and a session instead of a password.
    is_free: bool = False  # Cheap, and needed when all else is too much: its requests do not count.

    @property
    def is_rabbitmqs(self) -> bool:
        """True for a path of RabbitMQ's API: clients of it know its answers."""
        return not self.path.startswith(OWN)

    def allows(self, tags: Iterable[str]) -> bool:
        """Return True if a user with these tags may ask for it.

        Viewers change nothing and see no payloads, so they only read.
        """
        if self.tag == NOBODY:
            return True
        held = set(tags)
        if self.method not in SAFE or self.payloads:
            held.discard(VIEWER)
        return not ALLOWED[self.tag].isdisjoint(held)


def by_path(
    function: Callable[Concatenate[HttpCall, Names], Awaitable[Returned]],
) -> Callable[[HttpCall], Awaitable[Returned]]:
    """Return the handler that gives a function the parameters of the path, by their names.

    The function may have parameters of other names as well, with defaults.
    """

    @wraps(function)
    async def handler(call: HttpCall) -> Returned:
        # A test compares the names of each route's path with those of its function.
        return await function(call, **call.path)  # type: ignore[arg-type, call-arg]

    return handler


class Options(TypedDict, total=False):
    """What else a decorator says of its routes; see :class:`Route`."""

    permission: str
    query: tuple[Parameter, ...]
    body: JsonObject
    answer: JsonObject
    media: str
    body_max: int
    paged: bool
    aliases: tuple[str, ...]
    payloads: bool


class Decorator(Protocol):
    """Puts a handler into a table, and returns it as it is."""

    def __call__(
        self, function: Callable[Concatenate[HttpCall, Names], Awaitable[Returned]], /
    ) -> Callable[Concatenate[HttpCall, Names], Awaitable[Returned]]:
        """Return the handler."""
        ...


class Routes:
    """The routes of a module, which its handlers are decorated with.

    A decorator has the paths of a handler, each with its summary. The handler gets the parameters
    of the path by their names; pages call it as any function.
    """

    def __init__(self) -> None:
        self._routes: list[Route] = []

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def get(self, paths: Summaries, *, tag: str, **options: Unpack[Options]) -> Decorator:
        """Have a function answer GET."""
        return self._decorator("GET", paths, tag, options)

    def put(self, paths: Summaries, *, tag: str, **options: Unpack[Options]) -> Decorator:
        """Have a function answer PUT."""
        return self._decorator("PUT", paths, tag, options)

    def post(self, paths: Summaries, *, tag: str, **options: Unpack[Options]) -> Decorator:
        """Have a function answer POST."""
        return self._decorator("POST", paths, tag, options)

    def delete(self, paths: Summaries, *, tag: str, **options: Unpack[Options]) -> Decorator:
        """Have a function answer DELETE."""
        return self._decorator("DELETE", paths, tag, options)

    def _decorator(self, method: str, paths: Summaries, tag: str, options: Options) -> Decorator:
        options.setdefault("permission", "")
        place = len(self._routes)  # Decorators of one function are evaluated from the top.

        def decorate(
            function: Callable[Concatenate[HttpCall, Names], Awaitable[Returned]], /
        ) -> Callable[Concatenate[HttpCall, Names], Awaitable[Returned]]:
            handler = by_path(function)
            self._routes[place:place] = [
                Route(method, path, handler, tag, summary=summary, **options)
                for path, summary in paths.items()
            ]
            return function

        return decorate


@dataclass(slots=True)
class Node:
    """What follows a segment of paths."""

    names: dict[str, Node] = field(default_factory=dict)
    parameter: Node | None = None
    routes: dict[str, Route] = field(default_factory=dict)  # By method.
    parameters: tuple[str, ...] = ()


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._root = Node()
        for route in self.routes:
            for path in (route.path, *route.aliases):
                self._add(path, route)

    def _add(self, path: str, route: Route) -> None:
        node, parameters = self._root, []
        for segment in path.split("/"):
            if segment.startswith("{"):
                parameters.append(segment.strip("{}"))
                node.parameter = node = node.parameter or Node()
            elif segment:
                names, node = node.names, node.names.setdefault(segment, Node())
                if segment in FORMER_SEGMENTS:
                    names[FORMER_SEGMENTS[segment]] = node
        if route.method in node.routes:
            raise ValueError(f"{route.method} {path} is in the table twice")
        if node.routes and node.parameters != tuple(parameters):
            raise ValueError(f"{path} has other names for its parameters elsewhere")
        node.routes[route.method] = route
        node.parameters = tuple(parameters)

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """Return the route of a request, with the decoded parameters of its path.

        Raises:
            HttpError: there is no such path, or not this method of it.
        """
        node, values = self._node(path)
        route = node.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            raise HttpError(
                405, f"the methods here are {methods_of(node)}", headers={"Allow": methods_of(node)}
            )
        return route, dict(zip(node.parameters, values, strict=True))

    def methods(self, path: str) -> str:
        """Return the methods of a path, for OPTIONS.

        Raises:
            HttpError: there is no such path.
        """
        return methods_of(self._node(path)[0])

    def _node(self, path: str) -> tuple[Node, list[str]]:
        segments = segments_of(path)
        found = walk(self._root, segments, [])
        if found is None:
            raise not_found("Not Found")
        return found


def walk(node: Node, segments: list[str], values: list[str]) -> tuple[Node, list[str]] | None:
    """Return the node at the end of a path; names win over parameters."""
    if not segments:
        return (node, values) if node.routes else None
    first, rest = segments[0], segments[1:]
    if first in node.names:
        found = walk(node.names[first], rest, values)
        if found is not None:
            return found
    if node.parameter is None:
        return None
    return walk(node.parameter, rest, [*values, first])


def segments_of(path: str) -> list[str]:
    """Return the decoded segments of a raw path.

    Raises:
        HttpError: a segment is no UTF-8, or there are too many.
    """
    raw = [one for one in path.split("/") if one]
    if len(raw) > SEGMENTS_MAX:
        raise not_found("Not Found")
    try:
        return [unquote(one, errors="strict") for one in raw]
    except UnicodeDecodeError:
        raise bad_request("the path is not UTF-8") from None


def methods_of(node: Node) -> str:
    """Return the value of an Allow header."""
    some = {*node.routes, "OPTIONS"}
    if "GET" in some:
        some.add("HEAD")
    return ", ".join(sorted(some))
