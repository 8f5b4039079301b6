# SPDX-License-Identifier: Apache-2.0
"""Pages that change something: a form, the equivalent command line, and a typed confirmation.

The decorator :meth:`.resource_pages.ResourcePages.action` turns a function into such a page. The
function calls what the API's handler calls, with the rights of the user. GET shows the form. POST
checks the confirmation and the fields, runs the function, and redirects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypedDict

from headrace.console.api.common.body import Body
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.limits import BODY_BYTES_MAX
from headrace.console.http.routes import Route, suffices
from headrace.console.http_errors import HttpError, bad_request, refusal_error
from headrace.console.pages.links import links_for
from headrace.console.pages.rendering import page, redirect
from headrace.console.pages.texts import escape_hidden, segment
from headrace.exact_json import read_json
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.answers import Answer, Text
    from headrace.console.http.call import HttpCall
    from headrace.console.http.forms import Form
    from headrace.console.pages.links import Charts, Link
    from headrace.untyped import PathFunction

NOT_FOUND, CONFLICT = 404, 409
COMMAND_MAX = 2000  # Characters of a command line that the next page shows.
CONFIRMATION = "confirmation"  # The field of the typed confirmation.
Values = Mapping[str, object]  # The values of a form's fields, by name.
FieldKind = Literal["text", "number", "flag", "choice", "json", "area", "password", "file"]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form."""

    name: str
    label: str
    kind: FieldKind = "text"
    choices: tuple[str, ...] = ()
    choice_labels: Mapping[str, str] = field(default_factory=dict)  # Where they are not the values.
    default: str = ""
    help: str = ""
    required: bool = False

    def read(self, form: Form) -> object:
        """Return the value of the field by its kind; None for an empty field and for a file.

        Raises:
            HttpError: the text is not a value of the kind, or is missing.
        """
        if self.kind == "flag":
            return self.name in form
        if self.kind == "file":
            if self.required and not form.files.get(self.name):
                raise bad_request(f"{self.label} is missing")
            return None  # The action takes the file from the form: values are filled into texts.
        text = form.get(self.name)
        if self.kind not in ("area", "password"):
            text = text.strip()
        if not text:
            if self.required:
                raise bad_request(f"{self.label} is missing")
            return None
        if self.kind == "number":
            if not text.removeprefix("-").isdecimal() or len(text) > 18:
                raise bad_request(f"{self.label} is not a whole number")
            return int(text)
        if self.kind == "json":
            return self._json_object(text)
        if self.kind == "choice" and text not in self.choices:
            raise bad_request(f"{self.label} must be one of {', '.join(self.choices)}")
        return text

    def _json_object(self, text: str) -> object:
        try:
            value = read_json(text)
        except ValueError as error:
            raise bad_request(f"{self.label} is not valid JSON: {error}") from None
        if not isinstance(value, dict):
            raise bad_request(f"{self.label} is not a JSON object, such as {{}}")
        return value

    def text_to_repeat(self, form: Form) -> str:
        """Return the text that the form shows again after an error; none for a password."""
        if self.kind == "flag":
            return "true" if self.name in form else ""
        return "" if self.kind == "password" else form.get(self.name)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an action that needs more than a notice; the page shows it above the form."""

    summary: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A page that changes something.

    ``title``, ``view_title``, ``confirm``, ``back`` and ``notice`` are templates: names in braces
    stand for parameters of the path, and in ``back`` and ``notice`` for fields of the form, too.
    The functions take the parameters of the path by their names, after the arguments in the
    annotations of :meth:`.resource_pages.ResourcePages.action`. A test compares these names with
    those of the path.
    """

    path: str
    title: str
    run: PathFunction[Awaitable[object]]  # Takes the values of the form.
    back: str  # The path of the page after the action.
    notice: str  # The text on that page.
    command: PathFunction[str]  # Returns the equivalent command line.
    fields: tuple[Field, ...] = ()
    confirm: str | None = None  # The text that the user must type.
    impact: PathFunction[Awaitable[str]] | None = None  # Describes the affected objects.
    # The title for viewers, who see the page without its form. Empty: they do not see the page.
    view_title: str = ""
    parent: tuple[str, str] = ("Overview", "/")  # Title and path.
    button: str = "Save"
    danger: bool = False
    tag: str = MANAGEMENT
    # Returns present values, for the fields and the command line.
    values: PathFunction[Awaitable[Mapping[str, str]]] | None = None
    links: PathFunction[list[Link]] | None = None
    charts: PathFunction[Awaitable[Charts]] | None = None
    body_max: int = BODY_BYTES_MAX  # Bytes.

    def routes(self) -> tuple[Route, Route]:
        """Return the routes that show the form and that run the action."""
        summary = f"{self.title}."
        return (
            Route(
                method="GET",
                path=self.path,
                handler=self.show,
                summary=summary,
                tag=self.tag,
                is_form=not self.view_title,
                page=True,
            ),
            Route(
                method="POST",
                path=self.path,
                handler=self.submit,
                summary=summary,
                tag=self.tag,
                page=True,
                body_max=self.body_max,
            ),
        )

    async def show(self, call: HttpCall) -> Text:
        """Return the form; the query may set its fields, so that other pages can link to it."""
        texts = {each.name: call.query.get(each.name, each.default) for each in self.fields}
        if self.values is not None:
            texts |= await self.values(call, **call.path)
        return await self._render(call, texts)

    async def _render(
        self,
        call: HttpCall,
        texts: Mapping[str, str],
        problem: str = "",
        status: int = 200,
        report: Report | None = None,
    ) -> Text:
        may_send = suffices(call.identity.tags, self.tag, without_viewers=True)
        title = self.title if may_send else self.view_title
        return page(
            call,
            "action.html",
            title.format_map(call.path),
            status=status,
            action=self,
            may_send=may_send,
            texts=texts,
            problem=problem,
            report=report,
            confirm=self._confirmation(call),
            impact="" if self.impact is None else await self.impact(call, **call.path),
            command=self.command(texts, **call.path),
            actions=[] if self.links is None else links_for(call, self.links(**call.path)),
            charts=() if self.charts is None else await self.charts(call, **call.path),
        )

    def _confirmation(self, call: HttpCall) -> str:
        """Return the text that the user must type; empty for none."""
        return "" if self.confirm is None else fill_template(self.confirm, call, {}, escape_hidden)

    async def submit(self, call: HttpCall) -> Text | Answer:
        """Run the action and redirect; after an error show the form again, with the reason."""
        form = await call.body.form()
        texts = {each.name: each.text_to_repeat(form) for each in self.fields}
        try:
            if self.confirm is not None and form.get(CONFIRMATION) != self._confirmation(call):
                raise bad_request("to confirm, type the text as it is shown; nothing was changed")
            values = {each.name: each.read(form) for each in self.fields}
            # Read before the change; the command line may need values that the form does not have.
            current = {} if self.values is None else await self.values(call, **call.path)
            result = await self.run(call, Body(values), **call.path)
        except (HttpError, OperationRefused) as error:
            refusal = refusal_error(error)
            return await self._render(call, texts, refusal.reason, refusal.status)
        if isinstance(result, Report):
            return await self._render(call, texts, report=result)
        call.notice(fill_template(self.notice, call, values, escape_hidden))
        command = self.command({**current, **values}, **call.path)
        if command and len(command) <= COMMAND_MAX:
            call.notice(f"Equivalent command: {command}")
        return redirect(fill_template(self.back, call, values, segment))


def fill_template(
    template: str, call: HttpCall, values: Values, encode: Callable[[str], str]
) -> str:
    """Return a template with the encoded parameters of the path and values of the form."""
    names = {**call.path, **values}
    return template.format_map({name: encode(str(value)) for name, value in names.items()})


class ActionOptions(TypedDict, total=False):
    """Optional fields of an action that do not depend on its path; see :class:`Action`."""

    view_title: str
    fields: tuple[Field, ...]
    confirm: str
    parent: tuple[str, str]
    button: str
    danger: bool
    tag: str
    body_max: int


async def refuse_existing(lookup: Awaitable[object], reason: str) -> None:
    """Raise an error if an object exists, as the form that adds it does not show what it replaces.

    ``lookup`` raises an error 404 without the object. ``reason`` begins the text of the refusal.

    Raises:
        HttpError: the object exists.
    """
    try:
        await lookup
    except (HttpError, OperationRefused) as error:
        refusal = refusal_error(error)
        if refusal.status == NOT_FOUND:
            return
        raise
    raise HttpError(CONFLICT, f"{reason} already; open the existing entry to change it")
