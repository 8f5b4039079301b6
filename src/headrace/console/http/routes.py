# SPDX-License-Identifier: Apache-2.0
"""Routes, each with path, method, rights and handler, and the router that finds one by a path.

Modules put their handlers into a :class:`Routes` by decorators; ``api/routes.py`` and
``pages/routes.py`` join them. A path is a template of segments, such as
``/api/queues/{vhost}/{queue}``. The path of a request is split at "/" before it is decoded, so that
``%2F`` is part of a name. Empty segments do not count, so trailing and doubled slashes are ignored.
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

from headrace.console.http.limits import BODY_BYTES_MAX, SEGMENTS_MAX
from headrace.console.http.paging import list_schema
from headrace.console.http_errors import HttpError, bad_request, not_found
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

PathParameters = ParamSpec("PathParameters")
Returned = TypeVar("Returned")
Summaries = Mapping[str, str]  # The summary of each path.
NOBODY = ""  # The tag of a route without login.
ACCESS = "access to the virtual host"  # A permission, for the documentation.
JSON = "application/json"
# The names that segments of paths had in earlier versions. Programs and bookmarks may still use
# the former names; only the present ones are documented.
FORMER_SEGMENTS = {"jobs": "errands", "job": "errand"}
OWN_PATHS = ("/api/headrace/", "/api/openapi.json")  # Prefixes of paths that RabbitMQ lacks.
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))  # Methods that change nothing.
# The tags that satisfy the tag of a route; a user needs one of them.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    handler: Handler
    summary: str  # One sentence for the documentation.
    tag: str  # A tag that the user needs: MANAGEMENT is any tag, NOBODY is no login.
    # For the documentation: the permission that the broker checks, or the handler by
    # ``Identity.sees_vhost``. The router checks only the tag.
    permission: str = ""
    query: tuple[Parameter, ...] = ()
    body: JsonObject | None = None  # JSON Schema of the request's body.
    answer: JsonObject | None = None  # JSON Schema of the answer.
    failure: JsonObject | None = None  # JSON Schema of an answer 503 of a failed check.
    media: str = JSON  # The content type of the answer.
    body_max: int = BODY_BYTES_MAX  # Bytes.
    paged: bool = False  # The answer is a list with filter, order and pages.
    aliases: tuple[str, ...] = ()  # Other paths with the same handler.
    shows_payloads: bool = False  # Viewers may not see them.
    is_form: bool = False  # A form that changes something: viewers cannot send it.
    page: bool = False  # HTML for a browser, which has a session instead of a password.
    is_free: bool = False  # No limit counts its requests: they are cheap, as a health check is.

    @property
    def is_rabbitmqs(self) -> bool:
        """True for a path of RabbitMQ's API, whose errors have RabbitMQ's texts."""
        return not self.path.startswith(OWN_PATHS)

    @property
    def required_fields(self) -> tuple[str, ...]:
        """The fields that the request's body must contain, in the order of their checks."""
        return () if self.body is None else tuple(self.body.get("required", ()))

    @property
    def changes(self) -> bool:
        """True if a request changes something, or shows the form for a change."""
        return self.method not in SAFE or self.is_form

    def allows(self, tags: Iterable[str]) -> bool:
        """Return True if a user with these tags may request the route.

        Viewers may not change anything, nor see payloads.
        """
        if self.tag == NOBODY:
            return True
        return suffices(tags, self.tag, without_viewers=self.changes or self.shows_payloads)


def suffices(tags: Iterable[str], tag: str, *, without_viewers: bool) -> bool:
    """Return True if one of a user's tags satisfies ``tag``; ``without_viewers`` ignores VIEWER."""
    effective_tags = set(tags)
    if without_viewers:
        effective_tags.discard(VIEWER)
    return not ALLOWED[tag].isdisjoint(effective_tags)


def by_path(
    function: Callable[Concatenate[HttpCall, PathParameters], Awaitable[Returned]],
) -> Callable[[HttpCall], Awaitable[Returned]]:
    """Return a handler that calls a function with the parameters of the path, by their names.

    The function may have other parameters with defaults.
    """

    @wraps(function)
    async def handler(call: HttpCall) -> Returned:
        # A test checks that each function has the parameters of its paths.
        return await function(call, **call.path)  # type: ignore[arg-type, call-arg]

    return handler


class Options(TypedDict, total=False):
    """Optional fields of a route; see :class:`Route`."""

    permission: str
    query: tuple[Parameter, ...]
    body: JsonObject
    answer: JsonObject
    failure: JsonObject
    media: str
    body_max: int
    paged: bool
    aliases: tuple[str, ...]
    shows_payloads: bool
    is_form: bool
    page: bool
    is_free: bool


class Decorator(Protocol):
    """Adds a handler to the routes of a module, and returns it unchanged."""

    def __call__(
        self, function: Callable[Concatenate[HttpCall, PathParameters], Awaitable[Returned]], /
    ) -> Callable[Concatenate[HttpCall, PathParameters], Awaitable[Returned]]:
        """Return the handler."""
        ...


class Routes:
    """The routes of a module, added by decorators of its handlers.

    A decorator gives the paths of a handler, each with its summary. The handler receives the
    parameters of the path by their names, and stays an ordinary function for pages to call.
    """

    def __init__(self) -> None:
        self._routes: list[Route] = []

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def get(self, paths: Summaries, *, tag: str, **options: Unpack[Options]) -> Decorator:
        """Return a decorator: the function handles GET."""
        return self.decorator_for("GET", paths, tag, options)

    def get_list(
        self, paths: Summaries, *, rows: JsonObject, tag: str, **options: Unpack[Options]
    ) -> Decorator:
        """Return a decorator: the function handles GET with a list of ``rows``, a JSON Schema.

        The query may filter and order the list, and select a page of it.
        """
        list_options: Options = {**options, "paged": True, "answer": list_schema(rows)}
        return self.decorator_for("GET", paths, tag, list_options)

    def put(self, paths: Summaries, *, tag: str, **options: Unpack[Options]) -> Decorator:
        """Return a decorator: the function handles PUT."""
        return self.decorator_for("PUT", paths, tag, options)

    def post(self, paths: Summaries, *, tag: str, **options: Unpack[Options]) -> Decorator:
        """Return a decorator: the function handles POST."""
        return self.decorator_for("POST", paths, tag, options)

    def delete(self, paths: Summaries, *, tag: str, **options: Unpack[Options]) -> Decorator:
        """Return a decorator: the function handles DELETE."""
        return self.decorator_for("DELETE", paths, tag, options)

    def decorator_for(self, method: str, paths: Summaries, tag: str, options: Options) -> Decorator:
        """Return a decorator for a method; subclasses may add options."""
        # Python evaluates the decorators of a function from the top and applies them from the
        # bottom; the routes are in the order from the top.
        index = len(self._routes)

        def decorate(
            function: Callable[Concatenate[HttpCall, PathParameters], Awaitable[Returned]], /
        ) -> Callable[Concatenate[HttpCall, PathParameters], Awaitable[Returned]]:
            handler = by_path(function)
            self._routes[index:index] = [
                Route(
                    method=method, path=path, handler=handler, tag=tag, summary=summary, **options
                )
                for path, summary in paths.items()
            ]
            return function

        return decorate


@dataclass(slots=True)
class PathNode:
    """A node of the tree of paths: the segments that may follow, and the routes of this path."""

    names: dict[str, PathNode] = field(default_factory=dict)
    parameter: PathNode | None = None
    routes: dict[str, Route] = field(default_factory=dict)  # The routes by method.
    parameters: tuple[str, ...] = ()  # The names of the path's parameters, in order.


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._root = PathNode()
        for route in self.routes:
            for path in (route.path, *route.aliases):
                self._add(path, route)

    def _add(self, path: str, route: Route) -> None:
        node, parameters = self._root, []
        for segment in path.split("/"):
            if segment.startswith("{"):
                parameters.append(segment.strip("{}"))
                node.parameter = node = node.parameter or PathNode()
            elif segment:
                names, node = node.names, node.names.setdefault(segment, PathNode())
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
            HttpError: 404 for an unknown path, 405 for another method.
        """
        node, values = self._node(path)
        route = node.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            methods = allowed_methods(node)
            raise HttpError(405, f"the methods here are {methods}", headers={"Allow": methods})
        return route, dict(zip(node.parameters, values, strict=True))

    def methods(self, path: str) -> str:
        """Return the methods of a path, for OPTIONS.

        Raises:
            HttpError: the path is unknown.
        """
        return allowed_methods(self._node(path)[0])

    def _node(self, path: str) -> tuple[PathNode, list[str]]:
        segments = split_path(path)
        match = find_node(self._root, segments, [])
        if match is None:
            raise not_found("Not Found")
        return match


def find_node(
    node: PathNode, segments: list[str], values: list[str]
) -> tuple[PathNode, list[str]] | None:
    """Return the node of a path and the values of its parameters; None for an unknown path.

    A fixed name takes precedence over a parameter.
    """
    if not segments:
        return (node, values) if node.routes else None
    segment, following = segments[0], segments[1:]
    if segment in node.names:
        match = find_node(node.names[segment], following, values)
        if match is not None:
            return match
    if node.parameter is None:
        return None
    return find_node(node.parameter, following, [*values, segment])


def split_path(path: str) -> list[str]:
    """Return the decoded segments of a raw path.

    Raises:
        HttpError: a segment is not UTF-8, or there are too many segments.
    """
    raw = [segment for segment in path.split("/") if segment]
    if len(raw) > SEGMENTS_MAX:
        raise not_found("Not Found")
    try:
        return [unquote(segment, errors="strict") for segment in raw]
    except UnicodeDecodeError:
        raise bad_request("the path is not UTF-8") from None


def allowed_methods(node: PathNode) -> str:
    """Return the value of an Allow header."""
    methods = {*node.routes, "OPTIONS"}
    if "GET" in methods:
        methods.add("HEAD")
    return ", ".join(sorted(methods))
