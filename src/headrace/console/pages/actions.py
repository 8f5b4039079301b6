# SPDX-License-Identifier: Apache-2.0
"""Pages that change something: a form, the command line that does the same, and a confirmation.

An action calls the function that the API's handler calls, with the rights of the user.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.console.api.common.body import Body
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import Answer
from headrace.console.http.errors import HttpError, bad_request, of_operation
from headrace.console.http.limits import BODY_BYTES_MAX
from headrace.console.http.routes import Route
from headrace.console.pages.rendering import page
from headrace.exact_json import read_json
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.http.forms import Form
    from headrace.console.pages.details import Charts
    from headrace.console.pages.listings import Link

NOT_FOUND, CONFLICT = 404, 409
COMMAND_MAX = 2000  # Characters of a command that the next page shows.
CONFIRMATION = "confirmation"  # The field in which the user types what will be hit.
Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form."""

    name: str
    label: str
    kind: str = "text"  # text, number, flag, choice, json, area, password or file.
    choices: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)  # Choice -> its text, if another.
    default: str = ""
    help: str = ""
    required: bool = False

    def read(self, form: Form) -> object:
        """Return the value of the field, as its kind says; None for an empty field.

        Raises:
            HttpError: the text is no such value.
        """
        if self.kind == "flag":
            return self.name in form
        text = form.get(self.name).strip() if self.kind != "area" else form.get(self.name)
        if self.kind == "password":
            text = form.get(self.name)
        if not text:
            if self.required:
                raise bad_request(f"{self.label} is missing")
            return None
        if self.kind == "number":
            if not text.lstrip("-").isdecimal() or len(text) > 18:
                raise bad_request(f"{self.label} is not a whole number")
            return int(text)
        if self.kind == "json":
            try:
                found = read_json(text)
            except ValueError as error:
                raise bad_request(f"{self.label} is not valid JSON: {error}") from None
            if not isinstance(found, dict):
                raise bad_request(f"{self.label} is not a JSON object, such as {{}}")
            return found
        if self.kind == "choice" and text not in self.choices:
            raise bad_request(f"{self.label} must be one of {', '.join(self.choices)}")
        return text


@dataclass(frozen=True, slots=True)
class Report:
    """What an action did, where that is more than a sentence."""

    told: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Action:
    """A page that changes something."""

    path: str
    title: str  # May have parameters of the path in braces, which name the object.
    run: Callable[[HttpCall, Body], Awaitable[object]]  # With the values of the form.
    back: Callable[[HttpCall, Values], str]  # Where it leads when it is done.
    done: Callable[[HttpCall, Values], str]  # What the next page tells.
    fields: tuple[Field, ...] = ()
    command: Callable[[HttpCall, Values], str] | None = None
    confirm: Callable[[HttpCall], str] | None = None  # What the user has to type.
    hits: Callable[[HttpCall], Awaitable[str]] | None = None  # What it will hit, in a sentence.
    parent: tuple[str, str] = ("Overview", "/")
    button: str = "Save"
    danger: bool = False
    tag: str = MANAGEMENT
    values: Callable[[HttpCall], Awaitable[Mapping[str, str]]] | None = None  # What is set now.
    links: Callable[[HttpCall], list[Link]] | None = None
    charts: Callable[[HttpCall], Awaitable[Charts]] | None = None
    body_max: int = BODY_BYTES_MAX

    def routes(self) -> tuple[Route, Route]:
        """Return the routes of the form and of its sending."""
        summary = f"{self.title}."
        return (
            Route("GET", self.path, self.show, self.tag, "", summary, page=True),
            Route(
                "POST",
                self.path,
                self.do,
                self.tag,
                "",
                summary,
                page=True,
                body_max=self.body_max,
            ),
        )

    async def show(self, call: HttpCall) -> object:
        """Return the form. The query may fill its fields, so that other pages can lead to it."""
        given = {one.name: call.query.get(one.name, one.default) for one in self.fields}
        if self.values is not None:
            given |= await self.values(call)
        return await self._form(call, given)

    async def _form(
        self,
        call: HttpCall,
        given: Mapping[str, str],
        said: str = "",
        status: int = 200,
        report: Report | None = None,
    ) -> object:
        values: dict[str, object] = dict(given)
        return page(
            call,
            "action.html",
            self.title.format_map(call.path),
            status=status,
            action=self,
            given=given,
            said=said,
            report=report,
            confirm="" if self.confirm is None else self.confirm(call),
            hits="" if self.hits is None else await self.hits(call),
            command="" if self.command is None else self.command(call, values),
            actions=[] if self.links is None else self.links(call),
            charts=() if self.charts is None else await self.charts(call),
            address=call.request.rel_url.raw_path,
        )

    async def do(self, call: HttpCall) -> object:
        """Do it, and lead on; or show the form again with what was wrong."""
        form = await call.form()
        given = {
            one.name: ("true" if one.name in form else "") if one.kind == "flag"
            else "" if one.kind == "password" else form.get(one.name)
            for one in self.fields
        }  # fmt: skip
        try:
            if self.confirm is not None and form.get(CONFIRMATION) != self.confirm(call):
                raise bad_request("to confirm, type the text as it is shown; nothing was changed")
            values = {one.name: one.read(form) for one in self.fields}
            known: Mapping[str, str] = {}  # What the form does not have, for the command.
            if self.command is not None and self.values is not None:
                known = await self.values(call)
            report = await self.run(call, Body(values))
        except (HttpError, OperationRefused) as error:
            refusal = error if isinstance(error, HttpError) else of_operation(error)
            return await self._form(call, given, refusal.reason, refusal.status)
        if isinstance(report, Report):
            return await self._form(call, given, report=report)
        call.notice(self.done(call, values))
        if self.command is not None:
            command = self.command(call, {**known, **values})
            if command and len(command) <= COMMAND_MAX:
                call.notice(f"Equivalent command: {command}")
        return Answer(303, headers={"Location": self.back(call, values)})


async def refuse_known(shown: Awaitable[object], what: str) -> None:
    """Refuse to add what exists: the form does not show what it would replace.

    ``shown`` is the object that would be replaced, or raises the error that there is none.

    Raises:
        HttpError: it exists.
    """
    try:
        await shown
    except (HttpError, OperationRefused) as error:
        refusal = error if isinstance(error, HttpError) else of_operation(error)
        if refusal.status == NOT_FOUND:
            return
        raise
    raise HttpError(CONFLICT, f"{what} already; open the existing entry to change it")
