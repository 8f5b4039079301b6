# SPDX-License-Identifier: Apache-2.0
"""The pages of a resource: lists, pages of one object, actions, and other pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, Unpack

from headrace.console.api.common.body import Body
from headrace.console.http.routes import Routes
from headrace.console.pages.actions import Action
from headrace.console.pages.listings import ListPage

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.http.routes import Decorator, Options, Route, Summaries
    from headrace.console.pages.actions import ActionOptions, Values
    from headrace.console.pages.details import DetailPage
    from headrace.console.pages.links import Charts, Link

PathParameters = ParamSpec("PathParameters")  # The parameters of a path.
Result = TypeVar("Result")
Run = Callable[Concatenate["HttpCall", Body, PathParameters], Awaitable[Result]]


class ResourcePages(Routes):
    """The pages of a module.

    Lists and pages of one object are added by :meth:`add`, actions by the decorator :meth:`action`.
    Other pages have handlers below the decorators of :class:`Routes`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lists: list[ListPage] = []
        self.details: list[DetailPage] = []
        self.actions: list[Action] = []

    def __iter__(self) -> Iterator[Route]:
        """Yield the routes of all pages."""
        yield from super().__iter__()
        yield from (page.route() for page in self.lists)
        yield from (page.route() for page in self.details)
        for action in self.actions:
            yield from action.routes()

    def decorator_for(self, method: str, paths: Summaries, tag: str, options: Options) -> Decorator:
        """Return a decorator for a method; the route is a page."""
        return super().decorator_for(method, paths, tag, {**options, "page": True})

    def add(self, *pages: ListPage | DetailPage) -> None:
        """Add lists and pages of one object."""
        for page in pages:
            if isinstance(page, ListPage):
                self.lists.append(page)
            else:
                self.details.append(page)

    def action(
        self,
        path: str,
        title: str,
        *,
        back: str,
        notice: str,
        command: Callable[Concatenate[Values, PathParameters], str],
        impact: Callable[Concatenate[HttpCall, PathParameters], Awaitable[str]] | None = None,
        values: Callable[Concatenate[HttpCall, PathParameters], Awaitable[Mapping[str, str]]]
        | None = None,
        links: Callable[PathParameters, list[Link]] | None = None,
        charts: Callable[Concatenate[HttpCall, PathParameters], Awaitable[Charts]] | None = None,
        **options: Unpack[ActionOptions],
    ) -> Callable[[Run[PathParameters, Result]], Run[PathParameters, Result]]:
        """Return a decorator: the function runs the action; see :class:`.actions.Action`."""

        def decorate(run: Run[PathParameters, Result]) -> Run[PathParameters, Result]:
            action = Action(
                path=path,
                title=title,
                run=run,
                back=back,
                notice=notice,
                command=command,
                impact=impact,
                values=values,
                links=links,
                charts=charts,
                **options,
            )
            self.actions.append(action)
            return run

        return decorate
