# SPDX-License-Identifier: Apache-2.0
"""The console's pages, as a browser without scripts gets them."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import json
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pytest

from headrace.client import Message, blocking, connect
from headrace.client.blocking_pipeline import Groups, Requests, Sink, Stage
from headrace.client.lease import Lease
from headrace.console.http.routes import ALLOWED, NOBODY, SAFE, Route
from headrace.console.pages import assets
from headrace.console.pages.charts.series import seconds_since
from headrace.console.pages.columns import Column
from headrace.console.pages.exports import csv_field
from headrace.console.pages.routes import RESOURCES, ROUTES
from headrace.console.pages.texts import (
    duration,
    job_state,
    moment,
    pluralize,
    rate,
    safe_text,
    size,
)
from headrace.user_tags import TAGS, VIEWER
from support.console_browser import FORM, OWN, Browser, fields_of, is_page
from support.console_objects import SECRET, populate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.console import LocalConsole

LISTS = [page for resource in RESOURCES for page in resource.lists]
ACTIONS = [action for resource in RESOURCES for action in resource.actions]
PAGE_READS = [route for route in ROUTES if route.method in SAFE and route.tag != NOBODY]
PAGE_WRITES = [route for route in ROUTES if route.method not in SAFE and route.tag != NOBODY]
#: Pages of objects with a form: viewers, who may not send the form, get the page without it.
PAGES_FOR_VIEWERS = ("/groups/{vhost}/{stream}/{group}", "/leases/{vhost}/{queue}/{group}")
FORM_PATHS = {route.path for route in PAGE_WRITES} - {*PAGES_FOR_VIEWERS}


@pytest.fixture(scope="module")
def browser(console: LocalConsole) -> Browser:
    return Browser(console)


@pytest.fixture(scope="module", autouse=True)
def objects(console: LocalConsole) -> Iterator[None]:
    """Objects of all kinds, and a user of each tag."""
    link: Any = console.console.link  # type: ignore[union-attr]
    for tag in TAGS:
        console.run(link.ask("put user", name=tag, password=SECRET, tags=[tag]))
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        console.run(link.ask("put permission", user=tag, vhost="/", **everything))
    with populate(console):
        yield


# --- Login ---------------------------------------------------------------------------------------


def test_a_page_leads_to_the_login_and_back(console: LocalConsole) -> None:
    answer = console.ask("GET", "/queues/%2F/a%2Fb?x=1", user=None)
    assert answer.status == 303
    location = answer.headers["Location"]
    assert location == "/login?next=/queues/%252F/a%252Fb%3Fx%3D1"
    html = console.ask("GET", location, user=None).body.decode()
    assert 'name="next" value="/queues/%2F/a%2Fb?x=1"' in html


def test_a_wrong_login_is_told(console: LocalConsole) -> None:
    form = urlencode({"username": "guest", "password": "wrong", "next": "//evil.example"})
    answer = console.ask("POST", "/login", form.encode(), user=None, headers=FORM)
    assert answer.status == 401
    assert b"The user name or the password is wrong." in answer.body
    assert b"evil.example" not in answer.body
    assert "Set-Cookie" not in answer.headers


def test_pages_take_no_password_by_header(console: LocalConsole) -> None:
    assert console.ask("GET", "/queues").status == 303


def test_a_logout_ends_the_session(console: LocalConsole) -> None:
    browser = Browser(console)
    html = browser.text("/")
    (token,) = re.findall(
        r'action="/logout"><input type="hidden" name="csrf" value="([^"]+)"', html
    )
    headers = browser.headers | FORM | OWN
    answer = console.ask("POST", "/logout", b"csrf=wrong", user=None, headers=headers)
    assert answer.status == 403
    body = urlencode({"csrf": token}).encode()
    answer = console.ask("POST", "/logout", body, user=None, headers=headers)
    assert (answer.status, answer.headers["Location"]) == (303, "/login")
    assert browser.get("/").status == 303


def test_only_a_page_without_a_session_links_to_the_login(console: LocalConsole) -> None:
    """With a session the login leads back to the page that the user may not open."""
    link = b'<a href="/login">'
    unknown = console.ask("GET", "/no-such-page", user=None)
    assert (unknown.status, link in unknown.body) == (404, True)
    refused = Browser(console, VIEWER, SECRET).get("/users")
    assert (refused.status, link in refused.body) == (401, False)


def test_a_user_who_loses_its_tag_gets_the_login(console: LocalConsole) -> None:
    ask: Any = console.console.link.ask  # type: ignore[union-attr]
    console.run(ask("put user", name="eve", password=SECRET, tags=["policymaker"]))
    eve = Browser(console, "eve", SECRET)
    assert eve.get("/policies").status == 200
    console.run(ask("put user", name="eve", keep_password=True, tags=[]))
    assert eve.get("/policies").headers["Location"] == "/login?next=/policies"
    assert b'<form method="post" action="/login"' in eve.get("/login?next=/policies").body


# --- Every page ----------------------------------------------------------------------------------


class PageScan(HTMLParser):
    """The scripts of a page, and the elements and attributes that a page may not have."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.forbidden: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        source = str(attributes.get("src"))
        if tag == "script":
            self.scripts.append(source)
        if tag in ("img", "iframe", "object", "embed") and "icon" not in source:
            self.forbidden.append(tag)
        self.forbidden += [name for name in attributes if name.startswith("on") or name == "style"]


def test_every_page_that_a_page_leads_to_can_be_opened(browser: Browser) -> None:
    """The test walks the whole console from its first page; some objects have hostile names."""
    addresses = set[str]()
    for address, answer in browser.walk(13):
        addresses.add(address)
        assert answer.status == 200, (address, answer.status, answer.body[-800:])
        if not is_page(answer):
            continue
        html = answer.body.decode()
        scan = PageScan(html)
        assert not scan.forbidden, (address, scan.forbidden)
        assert all(script.startswith("/assets/") for script in scan.scripts), address
        assert not re.search("[\u202e\u2066\x00\x1b]", html), address
    lists = {page.path for page in LISTS}
    assert lists <= {address.partition("?")[0] for address in addresses}
    assert len(addresses) > 150


def test_every_column_has_a_key_that_the_api_sends(
    console: LocalConsole, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column whose key no row has would always be empty."""
    read, filled = set[tuple[str, str]](), set[tuple[str, str]]()

    def value(self: Column, row: Mapping[str, object]) -> object:
        key, value = (self.title, self.path), row
        read.add(key)
        for name in self.path.split("."):
            if not isinstance(value, dict) or name not in value:
                return None
            value = value[name]
        filled.add(key)
        return value

    monkeypatch.setattr(Column, "value", value)
    for listing in LISTS:
        html = browser.text(listing.path)
        for row in html.split("<tr id=")[1:]:
            if link := re.search(r'<td><a href="(/[^"]+)"', row):
                browser.get(unescape(link[1]))
    browser.text("/")
    assert read - filled == set()


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("route", PAGE_READS, ids=lambda route: route.path)
def test_every_page_by_every_tag(sessions: Mapping[str, Browser], route: Route, tag: str) -> None:
    path = re.sub(r"\{\w+\}", "none", route.path)
    answer = sessions[tag].get(path)
    withheld = route.shows_payloads or route.path in FORM_PATHS
    allowed = tag in ALLOWED[route.tag] and not (withheld and tag == VIEWER)
    assert (answer.status != 401) is allowed, answer.body[-500:]


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("route", PAGE_WRITES, ids=lambda route: route.path)
def test_every_action_by_every_tag(sessions: Mapping[str, Browser], route: Route, tag: str) -> None:
    """Each form is sent without the token, so nothing is changed."""
    if route.path == "/logout":
        return
    browser = sessions[tag]
    path = re.sub(r"\{\w+\}", "none", route.path)
    headers = browser.headers | FORM | OWN
    answer = browser.console.ask("POST", path, b"", user=None, headers=headers)
    allowed = tag in ALLOWED[route.tag] and tag != VIEWER
    assert answer.status == (403 if allowed else 401), answer.body[-500:]


@pytest.fixture(scope="module")
def sessions(console: LocalConsole) -> dict[str, Browser]:
    """A session of a user of each tag."""
    return {tag: Browser(console, tag, SECRET) for tag in TAGS}


def test_a_viewer_is_offered_no_action(sessions: Mapping[str, Browser]) -> None:
    html = sessions[VIEWER].text("/queues/%2F/many.01")
    assert "/purge" not in html
    assert "/purge" in sessions["management"].text("/queues/%2F/many.01")


@pytest.mark.parametrize("tag", TAGS)
def test_no_page_offers_what_its_user_may_not_open(
    sessions: Mapping[str, Browser], tag: str
) -> None:
    """Buttons, rows and cells lead only to pages and forms that the user's tag opens."""
    answers = dict(sessions[tag].walk(3))
    assert "/policies" in answers
    assert not [address for address, answer in answers.items() if answer.status == 401]


@pytest.mark.parametrize("path", ["/queues/%2F/many.01/purge", "/queues/new", "/queues/%2F/q/job"])
def test_a_form_is_refused_as_its_sending_is(sessions: Mapping[str, Browser], path: str) -> None:
    viewer = sessions[VIEWER]
    form = viewer.get(path)
    sent = viewer.console.ask("POST", path, b"", user=None, headers=viewer.headers | FORM | OWN)
    assert (form.status, sent.status) == (401, 401)
    assert b"You may view, not change" in form.body
    assert form.body == sent.body


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("/groups/%2F/events/seen", "Group seen"),
        ("/leases/%2F/many.01/seen", "Lease of seen on many.01"),
    ],
)
def test_a_viewer_gets_the_page_of_an_object_without_its_form(
    sessions: Mapping[str, Browser], path: str, title: str
) -> None:
    html = sessions[VIEWER].text(path)
    assert f"<h1><bdi>{title}</bdi></h1>" in html
    assert 'class="card"' not in html
    assert "/delete" not in html
    assert "data-copy" not in html
    assert 'class="card"' in sessions["management"].text(path)


def test_a_user_without_a_virtual_host_has_a_first_page(console: LocalConsole) -> None:
    link: Any = console.console.link  # type: ignore[union-attr]
    console.run(link.ask("put user", name="nowhere", password=SECRET, tags=["management"]))
    assert "Overview" in Browser(console, "nowhere", SECRET).text("/")
    console.run(link.ask("delete user", name="nowhere"))


def test_errors_are_pages(browser: Browser) -> None:
    answer = browser.get("/queues/%2F/absent%3Cb%3E")
    assert answer.status == 404
    assert b"no queue &#39;absent&lt;b&gt;&#39;" in answer.body
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    answer = browser.get("/no-such-page")
    assert answer.status == 404
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


# --- Lists ---------------------------------------------------------------------------------------


def row_ids(html: str) -> list[str]:
    return re.findall(r'<tr id="(row-[0-9a-f]+)">', html)


def test_lists_are_paged_sorted_and_filtered(browser: Browser) -> None:
    first = browser.text("/queues?name=many.")
    assert len(row_ids(first)) == 50
    assert "60 of 66" in first
    second = browser.text("/queues?name=many.&page=2")
    assert len(row_ids(second)) == 10
    assert not set(row_ids(first)) & set(row_ids(second))
    backwards = browser.text("/queues?name=many.&sort=name&sort_reverse=true")
    assert 'aria-sort="descending"' in backwards
    assert row_ids(backwards)[0] == row_ids(second)[-1], "a row's identity is the object's"
    pattern = browser.text(f"/queues?use_regex=true&name={quote('^many.0[0-4]$')}")
    assert len(row_ids(pattern)) == 5


@pytest.mark.parametrize(
    ("query", "error"),
    [("use_regex=true&name=(", "not a valid regular expression"), ("page=99", "page out of range")],
)
def test_a_wrong_filter_is_told_on_the_page(browser: Browser, query: str, error: str) -> None:
    answer = browser.get(f"/queues?{query}")
    assert answer.status == 400
    assert error in answer.body.decode()
    assert row_ids(answer.body.decode())


def test_every_list_is_a_file_too(browser: Browser) -> None:
    for listing in LISTS:
        answer = browser.get(f"{listing.path}?format=json")
        assert answer.status == 200, listing.path
        assert answer.headers["Content-Disposition"].startswith("attachment")
        rows = json.loads(answer.body)
        table = browser.get(f"{listing.path}?format=csv").body.decode()
        lines = list(csv.reader(io.StringIO(table)))
        assert lines[0] == [column.title for column in listing.columns]
        assert len(lines) == len(rows) + 1
    assert browser.get("/queues?format=xml").status == 400


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx"])
def test_no_cell_of_a_file_is_a_formula(text: str) -> None:
    assert str(csv_field(text)).startswith(("'", "\\u0009"))
    assert csv_field(-1) == -1


# --- Actions -------------------------------------------------------------------------------------


def test_a_queue_is_declared_purged_and_deleted(browser: Browser) -> None:
    name = 'new "<b>"'
    answer = browser.send("/queues/new", vhost="/", name=name, arguments='{"x-max-length": 5}')
    at = f"/queues/%2F/{quote(name, safe='')}"
    assert (answer.status, answer.headers["Location"]) == (303, at)
    html = browser.text(at)
    assert "is declared." in html
    assert "&lt;b&gt;" in html
    assert "is declared." not in browser.text(at), "a notice is shown once"
    assert browser.send(f"{at}/publish", payload="hello").status == 303
    assert "1 ready" in browser.text(f"{at}/purge")
    answer = browser.send(f"{at}/purge", confirmation="wrong")
    assert answer.status == 400
    assert b"nothing was changed" in answer.body
    assert "1 ready" in browser.text(f"{at}/purge")
    assert browser.send(f"{at}/purge", confirmation=name).status == 303
    assert "0 ready" in browser.text(f"{at}/delete")
    assert browser.send(f"{at}/delete", confirmation=name).status == 303
    assert browser.get(at).status == 404


def test_a_refusal_is_told_and_the_form_is_kept(browser: Browser) -> None:
    answer = browser.send("/queues/new", vhost="/", name="kept<", arguments="[1")
    html = answer.body.decode()
    assert answer.status == 400
    assert "Arguments is not valid JSON" in html
    assert 'value="kept&lt;"' in html
    assert "[1</textarea>" in html
    answer = browser.send("/queues/new", vhost="/", name="q", arguments='{"a": 1, "a": 2}')
    assert answer.status == 400
    problem = "Arguments is not valid JSON: the name &#34;a&#34; occurs twice"
    assert problem in answer.body.decode()


def test_rules_and_access_are_set_and_removed(browser: Browser) -> None:
    steps: list[tuple[str, dict[str, str]]] = [
        ("/exchanges/new", {"vhost": "/", "name": "made", "type": "topic"}),
        ("/bindings/new", {"vhost": "/", "source": "made", "kind": "queue",
                           "destination": "many.00", "routing_key": "k"}),
        ("/exchanges/%2F/made/publish", {"routing_key": "k", "payload": "p"}),
        ("/bindings/%2F/made/q/many.00/k", {"confirmation": "many.00"}),
        ("/exchanges/%2F/made/delete", {"confirmation": "made"}),
        ("/policies/new", {"vhost": "/", "name": "p", "pattern": "^x", "apply-to": "queues",
                           "priority": "1", "definition": '{"max-length": 9}'}),
        ("/policies/%2F/p", {"pattern": "^y", "apply-to": "all", "priority": "2",
                             "definition": '{"max-length": 8}'}),
        ("/policies/%2F/p/delete", {"confirmation": "p"}),
        ("/operator-policies/new", {"vhost": "/", "name": "o", "pattern": "^x",
                                    "apply-to": "queues", "definition": '{"max-length": 9}'}),
        ("/operator-policies/%2F/o/delete", {"confirmation": "o"}),
        ("/vhost-limits/new", {"vhost": "/", "name": "max-connections", "value": "99"}),
        ("/vhost-limits/%2F/max-connections/delete", {}),
        ("/users/new", {"name": "ada", "password": SECRET, "tags": "management"}),
        ("/users/ada/edit", {"tags": "monitoring, policymaker"}),
        ("/user-limits/new", {"user": "ada", "name": "max-channels", "value": "9"}),
        ("/user-limits/ada/max-channels/delete", {}),
        ("/permissions/new", {"user": "ada", "vhost": "/", "configure": "", "write": "^a",
                              "read": ".*"}),
        ("/topic-permissions/new", {"user": "ada", "vhost": "/", "exchange": "amq.topic",
                                    "write": "^a", "read": ".*"}),
        ("/permissions/%2F/ada/edit", {"configure": "", "write": "^b", "read": ".*"}),
        ("/topic-permissions/%2F/ada/amq.topic/edit", {"write": "^b", "read": ".*"}),
        ("/topic-permissions/%2F/ada/amq.topic", {"confirmation": "ada"}),
        ("/permissions/%2F/ada", {"confirmation": "ada"}),
        ("/users/ada/delete", {"confirmation": "ada"}),
        ("/vhosts/new", {"name": "made", "description": "d", "tags": "a, b",
                         "default_queue_type": "quorum"}),
        ("/vhosts/made/edit", {"description": "", "default_queue_type": "classic"}),
        ("/vhosts/made/delete", {"confirmation": "made"}),
    ]  # fmt: skip
    done = set()
    for path, fields in steps:
        answer = browser.send(path, **fields)
        assert answer.status == 303, (path, answer.body.decode()[-3000:])
        done.add(path)
    assert len(done) == len(steps)
    for path in ("/exchanges/%2F/made", "/users/ada", "/vhosts/made", "/policies/%2F/p"):
        assert browser.get(path).status == 404, path


def field_texts(html: str) -> dict[str, str]:
    """Return the texts in the fields of a form."""
    fields = re.findall(r'<input id="field-(\w+)" name="\w+" value="([^"]*)"', html)
    return {name: unescape(value) for name, value in fields}


def test_a_form_changes_only_what_is_changed_in_it(browser: Browser) -> None:
    """Permissions and topic permissions start with what the user has."""
    console = browser.console
    browser.send("/users/new", name="cyd", password=SECRET)
    patterns = {"configure": "", "write": "^own<", "read": "^r"}
    browser.send("/permissions/new", user="cyd", vhost="/", **patterns)
    edit = "/permissions/%2F/cyd/edit"
    assert f'href="{edit}"' in browser.text("/users/cyd")
    assert field_texts(browser.text(edit)) == patterns
    assert browser.send(edit, **{**field_texts(browser.text(edit)), "read": "^s"}).status == 303
    (row,) = console.get("/api/users/cyd/permissions")
    assert {name: row[name] for name in patterns} == {**patterns, "read": "^s"}
    topic = {"write": "^a", "read": ""}
    key = {"user": "cyd", "vhost": "/", "exchange": "amq.topic"}
    browser.send("/topic-permissions/new", **key, **topic)
    edit = "/topic-permissions/%2F/cyd/amq.topic/edit"
    assert field_texts(browser.text(edit)) == topic
    assert browser.send(edit, **{**field_texts(browser.text(edit)), "read": "^b"}).status == 303
    (row,) = console.get("/api/users/cyd/topic-permissions")
    assert {name: row[name] for name in topic} == {"write": "^a", "read": "^b"}
    browser.send("/users/cyd/delete", confirmation="cyd")


@pytest.mark.parametrize(
    ("path", "fields", "kept"),
    [
        ("/users/new", {"name": "dan", "password": "other"}, "/api/users/dan"),
        ("/vhosts/new", {"name": "dan", "description": "other"}, "/api/vhosts/dan"),
        ("/permissions/new", {"user": "dan", "vhost": "dan"}, "/api/permissions/dan/dan"),
        ("/topic-permissions/new", {"user": "dan", "vhost": "dan", "exchange": "amq.topic"},
         "/api/topic-permissions/dan/dan"),
        ("/policies/new", {"vhost": "dan", "name": "dan", "pattern": "^",
                           "definition": '{"max-length": 1}'}, "/api/policies/dan/dan"),
        ("/operator-policies/new", {"vhost": "dan", "name": "dan", "pattern": "^",
                                    "definition": '{"max-length": 1}'},
         "/api/operator-policies/dan/dan"),
    ],
)  # fmt: skip
def test_a_form_that_adds_replaces_nothing(
    browser: Browser, path: str, fields: dict[str, str], kept: str
) -> None:
    console = browser.console
    link: Any = console.console.link  # type: ignore[union-attr]
    definition = {"pattern": "^never$", "definition": {"max-length": 9}}
    console.run(link.ask("put user", name="dan", password=SECRET, tags=["management"]))
    console.run(link.ask("put vhost", name="dan", description="first"))
    narrow = {"user": "dan", "vhost": "dan", "write": "^a", "read": "^b"}
    console.run(link.ask("put permission", configure="^c", **narrow))
    console.run(link.ask("put topic permission", exchange="amq.topic", **narrow))
    console.run(link.ask("put policy", vhost="dan", name="dan", **definition))
    console.run(link.ask("put operator policy", vhost="dan", name="dan", **definition))
    before = console.get(kept)
    answer = browser.send(path, **fields)
    refused = b"already; open the existing entry" in answer.body
    assert (answer.status, refused) == (409, True), answer.body[-900:]
    assert console.get(kept) == before
    console.run(link.ask("delete user", name="dan"))
    console.run(link.ask("delete vhost", name="dan"))


def test_a_users_password_stays_unless_it_is_given(browser: Browser) -> None:
    console = browser.console
    browser.send("/users/new", name="bob", password=SECRET, tags="management")
    assert browser.send("/users/bob/edit", tags="monitoring").status == 303
    assert console.get("/api/whoami", user=("bob", SECRET))["tags"] == ["monitoring"]
    assert browser.send("/users/bob/edit", tags="management", password="another-one").status == 303
    assert console.get("/api/whoami", user=("bob", "another-one"))["tags"] == ["management"]


def test_definitions_are_imported_by_a_page(browser: Browser) -> None:
    token = fields_of(browser.text("/definitions"))["csrf"]
    document = json.dumps({"vhosts": [{"name": "from-page"}]})
    body = (
        f'--M\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n{token}\r\n'
        f'--M\r\nContent-Disposition: form-data; name="file"; filename="d"\r\n\r\n{document}\r\n'
        "--M--\r\n"
    )
    headers = {**browser.headers, **OWN, "Content-Type": "multipart/form-data; boundary=M"}
    answer = browser.console.ask("POST", "/definitions", body.encode(), user=None, headers=headers)
    assert answer.status == 303, answer.body
    assert browser.get("/vhosts/from-page").status == 200
    shovel = {"component": "shovel", "vhost": "from-page", "name": "s", "value": {}}
    body = body.replace(
        document, json.dumps({"parameters": [shovel], "vhosts": [{"name": "more"}]})
    )
    answer = browser.console.ask("POST", "/definitions", body.encode(), user=None, headers=headers)
    assert (answer.status, b"$.parameters[0]" in answer.body) == (400, True)
    assert b"definitions import FILE --known" in answer.body
    dry = '--M\r\nContent-Disposition: form-data; name="dry_run"\r\n\r\ntrue\r\n' + body
    answer = browser.console.ask("POST", "/definitions", dry.encode(), user=None, headers=headers)
    assert (answer.status, b"Dry run: nothing was changed." in answer.body) == (200, True)
    assert b"Elements: 1 created, 1 without equivalent." in answer.body
    assert browser.get("/vhosts/more").status == 404
    body = '--M\r\nContent-Disposition: form-data; name="lenient"\r\n\r\ntrue\r\n' + body
    answer = browser.console.ask("POST", "/definitions", body.encode(), user=None, headers=headers)
    assert (answer.status, b"Imported. Elements: 1 created, 1 without" in answer.body) == (
        200,
        True,
    )
    assert b"$.parameters[0] " in answer.body
    assert b"without equivalent: unknown parameter component" in answer.body
    assert browser.get("/vhosts/more").status == 200


def test_an_import_without_a_file_is_refused(browser: Browser) -> None:
    """A browser sends an empty part for a field without a chosen file."""
    page = browser.text("/definitions")
    assert re.search(r'<input id="field-file"[^>]* type="file" required>', page)
    token = fields_of(page)["csrf"]
    body = (
        f'--M\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n{token}\r\n'
        '--M\r\nContent-Disposition: form-data; name="file"; filename=""\r\n\r\n\r\n--M--\r\n'
    )
    headers = {**browser.headers, **OWN, "Content-Type": "multipart/form-data; boundary=M"}
    answer = browser.console.ask("POST", "/definitions", body.encode(), user=None, headers=headers)
    assert (answer.status, b"Definitions file is missing" in answer.body) == (400, True)


@pytest.mark.parametrize(
    "reason", ["", "maintenance of the disk", "x" * 200], ids=["none", "text", "longest"]
)
def test_a_connection_is_closed(browser: Browser, reason: str) -> None:
    pika = pytest.importorskip("pika")
    client = pika.BlockingConnection(pika.URLParameters(browser.console.broker.url))
    port = client._impl._transport._sock.getsockname()[1]
    rows = browser.console.get("/api/connections")
    (name,) = [row["name"] for row in rows if row["peer_port"] == port]
    path = f"/connections/{quote(name, safe='')}/close"
    refused = browser.send(path, reason="x" * 201)
    assert refused.status == 400
    assert b"&#39;reason&#39; has more than 200 bytes" in refused.body
    assert f'value="{"x" * 201}"'.encode() in refused.body
    reply = reason or "Closed via management plugin"
    assert browser.send(path, reason=reason).status == 303
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        client.channel()
    assert closed.value.reply_text == f"CONNECTION_FORCED - {reply}"


def test_every_dangerous_action_is_confirmed_by_typing() -> None:
    unconfirmed = {action.path for action in ACTIONS if action.danger and action.confirm is None}
    assert unconfirmed == {
        "/jobs/{vhost}/{id}/cancel",
        "/connections/{name}/close",
        "/vhost-limits/{vhost}/{name}/delete",
        "/user-limits/{user}/{name}/delete",
    }


# --- Charts, assets, texts -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("totals/messages", "ready"),
        ("totals/rates", "published"),
        ("totals/clients", "connections"),
        ("node/memory", "memory"),
        ("node/disk", "disk free"),
        ("node/syncs", "journal syncs"),
        ("exchange/%2F/amq.topic", "published"),
        ("vhost/%2F", "ready"),
        ("queue/%2F/many.01", "ready"),
    ],
)
@pytest.mark.parametrize("span", ["1m", "1h", "1d", "30d"])
def test_charts_have_numbers(browser: Browser, path: str, line: str, span: str) -> None:
    chart = browser.get(f"/charts/{path}?span={span}").json
    series = {each["label"]: each["values"] for each in chart["series"]}
    assert line in series
    assert all(len(values) == len(chart["times"]) for values in series.values())
    if span == "1h" and line not in ("published", "journal syncs"):  # Steps of a minute end now.
        assert series[line][-1], series


@pytest.mark.parametrize("path", ["vhost/%2F", "queue/%2F/many.01"])
def test_depths_and_rates_have_charts_of_their_own(browser: Browser, path: str) -> None:
    def labels(of: str) -> list[str]:
        return [line["label"] for line in browser.get(f"/charts/{path}?of={of}").json["series"]]

    assert labels("amounts") == ["ready", "unacked"]
    assert labels("rates") == ["published", "delivered", "acknowledged", "redelivered"]
    assert labels("") == labels("amounts") + labels("rates")
    assert browser.get(f"/charts/{path}?of=all").status == 400
    kind, _, name = path.partition("/")
    html = browser.text(f"/{kind}s/{name}")
    assert all(f'data-chart="/charts/{path}?of={of}"' in html for of in ("amounts", "rates"))


def test_a_channel_has_a_chart(console: LocalConsole, browser: Browser) -> None:
    (row, *_) = console.get("/api/channels")
    chart = browser.get(f"/charts/channel/{quote(row['name'], safe='')}?span=1h").json
    assert [line["label"] for line in chart["series"]] == [
        "unacked",
        "published",
        "delivered",
        "acknowledged",
    ]
    assert (
        f"/charts/channel/{quote(row['name'], safe='')}"
        in browser.get(f"/channels/{quote(row['name'], safe='')}").body.decode()
    )
    assert browser.get("/charts/channel/none").status == 404


def labels_and_units(browser: Browser, address: str) -> list[tuple[str, str]]:
    """Return label and unit of each line of a chart."""
    chart = browser.get(f"{address}?span=1h").json
    assert all(len(line["values"]) == len(chart["times"]) for line in chart["series"])
    return [(line["label"], line["unit"]) for line in chart["series"]]


def last_values(browser: Browser, address: str) -> dict[str, float | None]:
    """Return the last value of each line of a chart of amounts, by label."""
    chart = browser.get(f"{address}?span=1h").json
    return {line["label"]: line["values"][-1] for line in chart["series"]}


def test_a_group_has_charts(console: LocalConsole, browser: Browser) -> None:
    console.get("/api/queues")  # Take a sample first: later samples show only what follows.
    with blocking.connect(console.broker.url) as connection, Requests(connection) as requests:
        channel = connection.channel()
        channel.declare_queue("charted", arguments={"x-queue-type": "stream"})
        channel.publish_many([b"m"] * 9, "charted")
        group = Groups(requests, "a/b")
        group.begin({"charted": 0})
        console.get("/api/queues")
        at = "/charts/group/%2F/charted/a%2Fb"
        assert last_values(browser, f"{at}/lag") == {"lag": 9}
        assert last_values(browser, f"{at}/age") == {"since the last commit": None}
        group.claim(["charted"], "reader")
        group.commit({"charted": 5}, owner="reader")
        assert last_values(browser, f"{at}/lag") == {"lag": 4}
        assert last_values(browser, f"{at}/claimed") == {"claimed": 1}
        age = last_values(browser, f"{at}/age")["since the last commit"]
        assert age is not None
        assert 0 <= age < 60
        size = last_values(browser, f"{at}/bytes")["lag"]
        assert size is not None
        assert size > 0
    assert labels_and_units(browser, f"{at}/bytes") == [("lag", "B")]
    assert labels_and_units(browser, f"{at}/age") == [("since the last commit", "s")]
    assert labels_and_units(browser, f"{at}/rates") == [("published", "/s"), ("committed", "/s")]
    html = browser.text("/groups/%2F/charted/a%2Fb")
    for what in ("lag", "bytes", "rates", "age", "claimed"):
        assert f'data-chart="{at}/{what}"' in html
        assert browser.get(f"/charts/group/%2F/charted/none/{what}").status == 404
        assert browser.get(f"/charts/group/%2F/none/a%2Fb/{what}").status == 404
        assert browser.get(f"/charts/group/none/charted/a%2Fb/{what}").status == 404
    assert browser.get(f"{at}/none").status == 404
    assert browser.get(f"{at}/lag?span=1y").status == 400
    for without in ("a%2Fb/delete", "none"):
        assert "data-chart" not in browser.text(f"/groups/%2F/charted/{without}")


def test_a_lease_has_charts(console: LocalConsole, browser: Browser) -> None:
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        channel.declare_queue("leased")
        channel.publish_many([b"m"] * 9, "leased")
    asyncio.run(lease_messages(console.broker.url))
    at = "/charts/lease/%2F/leased/etl"
    assert last_values(browser, f"{at}/messages") == {"leased": 3, "ready": 5}
    assert last_values(browser, f"{at}/owned") == {"owned": 1}
    size = last_values(browser, f"{at}/bytes")["leased"]
    assert size is not None
    assert size > 0
    assert labels_and_units(browser, f"{at}/bytes") == [("leased", "B")]
    assert labels_and_units(browser, f"{at}/rates") == [("taken", "/s"), ("settled", "/s")]
    html = browser.text("/leases/%2F/leased/etl")
    for what in ("messages", "bytes", "rates", "owned"):
        assert f'data-chart="{at}/{what}"' in html
        assert browser.get(f"/charts/lease/%2F/leased/none/{what}").status == 404
    assert browser.get(f"{at}/none").status == 404


def test_an_age_is_counted_from_a_moment_on() -> None:
    moments: list[float | None] = [None, 0, 103_000, 103_500, 200_000]
    assert seconds_since([90, 95, 105, 110, 115], moments) == [None, None, 2, 6.5, 0]


async def lease_messages(url: str) -> None:
    """Lease four messages of a queue for a group, and settle one."""
    async with connect(url) as connection:
        async with Lease(connection, "leased", group="etl") as lease:
            await lease.claim()
            await lease.take(messages=4)
            await lease.settle(1)


def test_charts_of_groups_and_leases_are_those_of_lists_that_a_user_has(
    console: LocalConsole, browser: Browser
) -> None:
    link: Any = console.console.link  # type: ignore[union-attr]
    console.run(link.ask("put vhost", name="hidden"))
    stream = {"name": "events", "arguments": {"x-queue-type": "stream"}}
    console.run(link.ask("declare queue", vhost="hidden", **stream))
    place = {"vhost": "hidden", "stream": "events", "group": "g"}
    console.run(link.ask("set group", **place, position=0))
    console.run(link.ask("declare queue", vhost="hidden", name="leased"))
    console.run(link.ask("publish", vhost="hidden", routing_key="leased", payload="m" * 4))
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    console.run(link.ask("put permission", vhost="hidden", user="guest", **everything))
    asyncio.run(lease_messages(console.broker.url_of(vhost="hidden")))
    addresses = ("/charts/group/hidden/events/g/lag", "/charts/lease/hidden/leased/etl/messages")
    page = "/groups/hidden/events/g"
    assert "data-chart" in browser.text(page)
    assert b"data-chart" not in Browser(console, "management", SECRET).get(page).body
    for address in addresses:
        assert Browser(console, "management", SECRET).get(address).status == 404
        for tag in ("monitoring", "viewer"):  # They see every virtual host.
            assert Browser(console, tag, SECRET).get(address).status == 200
        assert browser.get(address).status == 200


def test_a_user_has_charts_of_all_its_connections(console: LocalConsole, browser: Browser) -> None:
    console.get("/api/queues")  # Take a sample first: later samples show only what follows.
    for _ in range(2):  # One after the other, as the sums keep the counts of closed connections.
        with blocking.connect(console.broker.url) as connection:
            channel = connection.channel()
            channel.publish_many([Message(b"m")] * 50, routing_key="many.02")
            console.get("/api/queues")
    sums = console.console.state.users  # type: ignore[union-attr]
    slot = sums.table.find("guest")
    assert slot is not None
    assert sums.table.number(slot, "publish") >= 100
    assert sums.table.number(slot, "bytes_received") > 100
    for chart, labels in (
        ("rates", ["published", "delivered", "acknowledged", "redelivered"]),
        ("bytes", ["from client", "to client"]),
    ):
        series = browser.get(f"/charts/user/guest/{chart}?span=1h").json["series"]
        assert [line["label"] for line in series] == labels
        assert any(series[0]["values"]), series
        assert f"/charts/user/guest/{chart}" in browser.text("/users/guest")
    idle = browser.get("/charts/user/management/rates").json
    assert [line["label"] for line in idle["series"]] == [
        "published",
        "delivered",
        "acknowledged",
        "redelivered",
    ]
    assert browser.get("/charts/user/none/rates").status == 404
    assert browser.get("/charts/user/guest/none").status == 404


def test_a_connection_has_charts_of_messages_and_bytes(
    console: LocalConsole, browser: Browser
) -> None:
    (row, *_) = console.get("/api/connections")
    name = quote(row["name"], safe="")
    for chart, label in (("rates", "published"), ("bytes", "from client")):
        series = browser.get(f"/charts/connection/{name}/{chart}?span=1h").json["series"]
        assert series[0]["label"] == label
        assert f"/charts/connection/{name}/{chart}" in browser.text(f"/connections/{name}")


def test_a_consumer_has_the_chart_of_its_channel(console: LocalConsole, browser: Browser) -> None:
    rows = console.get("/api/consumers")
    row = next(row for row in rows if row["queue"]["name"] == "many.00")
    channel = quote(row["channel_details"]["name"], safe="")
    at = f"/consumers/{channel}/{quote(row['consumer_tag'], safe='')}"
    assert at in browser.text("/consumers")
    html = browser.text(at)
    assert f'data-chart="/charts/channel/{channel}?of=rates"' in html
    assert "Messages are counted per channel" in html
    assert 'href="/queues/%2F/many.00"' in html
    assert browser.get(f"/consumers/{channel}/none").status == 404
    assert browser.get("/consumers/none/none").status == 404


def test_a_table_within_a_page_is_sorted_filtered_and_a_file(browser: Browser) -> None:
    path = "/exchanges/%2F/amq.topic"
    query = "format=json&part=1&sort_1=routing_key"
    names = [row["routing_key"] for row in browser.get(f"{path}?{query}").json]
    assert len(set(names)) > 1
    assert names == sorted(names)
    turned = browser.get(f"{path}?{query}&sort_reverse_1=true").json
    assert [row["routing_key"] for row in turned] == sorted(names, reverse=True)
    (*_, last) = sorted(names, key=len)
    kept = browser.get(f"{path}?{query}&{urlencode({'has_1': last.upper()})}").json
    assert [row["routing_key"] for row in kept] == [last]
    assert browser.get(f"{path}?{query}&has_1=no-such-key").json == []
    page = browser.get(f"{path}?sort_1=routing_key")
    assert 'aria-sort="ascending"' in page.body.decode()
    text = browser.get(f"{path}?format=csv&part=1").body.decode()
    assert len(list(csv.reader(io.StringIO(text)))) == len(names) + 1
    assert browser.get(f"{path}?format=csv&part=9").status == 404
    assert browser.get(f"{path}?format=xml&part=1").status == 400


def test_bindings_are_searched_by_source_destination_and_key(browser: Browser) -> None:
    rows = browser.get("/bindings?format=json&name=many.01").json
    assert {(row["source"], row["destination"]) for row in rows} == {("", "many.01")}
    rows = browser.get("/bindings?format=json&name=amq.topic").json
    assert rows
    assert {row["source"] for row in rows} == {"amq.topic"}
    assert "routes to each queue by its name" in browser.text("/exchanges/%2F/amq.default")


def test_the_listeners_of_the_overview_are_a_table_as_others(browser: Browser) -> None:
    protocols = [row["protocol"] for row in browser.get("/?format=json&part=1").json]
    turned = browser.get("/?format=json&part=1&sort_1=protocol&sort_reverse_1=true").json
    assert [row["protocol"] for row in turned] == sorted(protocols, reverse=True)
    assert len(browser.get("/?format=json&part=1&has_1=amqp").json) == 1
    assert browser.get("/?format=csv&part=1").body.startswith(b"Protocol,Address,Port")
    assert 'aria-sort="ascending"' in browser.text("/?sort_1=port")


def test_a_chart_of_no_span_or_object_is_refused(browser: Browser) -> None:
    assert browser.get("/charts/totals/messages?span=2y").status == 400
    assert browser.get("/charts/totals/none").status == 404
    assert browser.get("/charts/queue/%2F/none").status == 404


def test_assets_are_a_fixed_table(console: LocalConsole) -> None:
    for asset in assets.ASSETS.values():
        answer = console.ask("GET", asset.address, user=None)
        assert (answer.status, answer.body) == (200, asset.body)
        assert "immutable" in answer.headers["Cache-Control"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    for name in ("..%2Ftable.py", "console.css", "VENDORED.md"):
        assert console.ask("GET", f"/assets/{name}", user=None).status == 404


def test_vendored_files_are_those_of_their_packages() -> None:
    folder = Path(assets.__file__).parent / "assets" / "vendor"
    rows = re.findall(
        r"^\| (\S+) \|.*\| ([0-9a-f]{64}) \|$", (folder / "VENDORED.md").read_text(), re.MULTILINE
    )
    assert {name for name, _ in rows} == {
        file.name for file in folder.iterdir() if file.suffix in (".js", ".css")
    }
    for name, digest in rows:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


def test_characters_that_hide_are_shown() -> None:
    assert "\u202e" not in safe_text("a\u202eb")
    assert "\\u202e" in safe_text("a\u202eb")
    assert "&lt;" in safe_text("<")
    assert "\\ud800" in safe_text("\ud800")


def test_numbers_are_for_people() -> None:
    assert (size(0), size(1536), size(5 << 30)) == ("0 B", "1.5 KiB", "5.0 GiB")
    assert (rate(0), rate(0.25), rate(12345)) == ("0/s", "0.2/s", "12,345/s")
    assert '<time datetime="1970-01-01T00:00:01Z" title=' in moment(1000)
    assert "2026-01-31 11:00:00 UTC" in moment("2026-01-31T12:00:00+01:00")
    assert moment("soon") == "<bdi>soon</bdi>"
    assert (duration(5000), duration(7_200_000)) == ("5 s", "2 h")


def test_a_count_has_the_noun_and_the_verb_of_its_number() -> None:
    texts = [pluralize(number, "message") for number in (0, 1, 2000)]
    assert texts == ["0 messages", "1 message", "2,000 messages"]
    assert pluralize(1, "message", "returns", "return") == "1 message returns"
    assert pluralize(2, "message", "returns", "return") == "2 messages return"


def test_a_state_of_a_job_suits_every_kind() -> None:
    states = ("choosing", "moving", "done")
    assert [job_state(state).striptags() for state in states] == ["selecting", "applying", "done"]


def test_headings_name_the_object_and_the_error(browser: Browser) -> None:
    html = browser.text("/queues/%2F/many.01/purge")
    assert "<title>Purge queue many.01 · Headrace</title>" in html
    assert "<h1><bdi>Purge queue many.01</bdi></h1>" in html
    assert b"<h1>404 Not found</h1>" in browser.get("/vhosts/none-such").body


@pytest.mark.parametrize("name", [name for name in assets.FILES if name.endswith(".js")])
def test_scripts_can_be_parsed(name: str) -> None:
    """Node parses each script, so that a syntax error is found without a browser."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node; `make peers` brings it")
    path = Path(assets.__file__).parent / "assets" / name
    done = subprocess.run([node, "--check", path], capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()


def test_every_action_shows_the_command_line_that_does_the_same() -> None:
    assert len(ACTIONS) > 30
    assert [action.path for action in ACTIONS if action.command is None] == []


# --- What rows lead to ---------------------------------------------------------------------------


def test_a_stream_has_its_offsets_groups_and_segments(
    console: LocalConsole, browser: Browser
) -> None:
    with blocking.connect(console.broker.url) as connection, Requests(connection) as requests:
        connection.channel().publish_many([b"m"] * 5, "events")
        Groups(requests, "readers").begin({"events": 2})
    assert 'href="/streams/%2F/events"' in browser.text("/streams")
    assert 'href="/streams/%2F/events"' in browser.text("/queues?name=events")
    html = browser.text("/streams/%2F/events")
    assert 'href="/groups/%2F/events/readers"' in html
    assert 'data-label="Lag">3<' in html
    for title in ("First offset", "Next offset", "Segments"):
        assert title in html
    assert "/purge" not in html, "a stream is not purged"
    assert "/dead-letters" not in html
    assert 'href="/streams/%2F/events"' in browser.text("/groups")
    assert browser.get("/streams/%2F/many.01").status == 404
    assert browser.get("/streams/%2F/none").status == 404


def test_bindings_lead_to_both_ends_and_to_their_removal(browser: Browser) -> None:
    html = browser.text("/bindings?name=many.01")
    assert 'href="/exchanges/%2F/amq.default"><bdi>(default)</bdi></a>' in html
    assert 'href="/queues/%2F/many.01"' in html
    assert 'href="/bindings/%2F/amq.default' not in html, "those of the default one stay"
    html = browser.text("/bindings?name=amq.topic")
    assert 'href="/exchanges/%2F/amq.topic"' in html
    assert 'href="/bindings/%2F/amq.topic/q/' in html
    assert "<bdi>(default)</bdi>" in browser.text("/exchanges?vhost=%2F")


def test_the_oldest_ready_message_is_found(console: LocalConsole, browser: Browser) -> None:
    rows = console.get("/api/queues?sort=headrace.oldest_ready_age_ms&sort_reverse=true")
    ages = [row["headrace"]["oldest_ready_age_ms"] for row in rows]
    waits = [age for age in ages if age is not None]
    assert waits
    assert waits == sorted(waits, reverse=True)
    assert ages[: len(waits)] == waits, "queues without messages are behind"
    assert 'href="/queues?sort=headrace.oldest_ready_age_ms&amp;sort_reverse=true"' in browser.text(
        "/"
    )
    html = browser.text("/queues/%2F/many.01")
    assert "Oldest ready message" in html
    assert "Dead letters: rejected" in html


def test_permissions_are_searched_by_what_they_are_for(browser: Browser) -> None:
    assert "1 of" in browser.text("/permissions?name=gues")
    assert "0 of" in browser.text("/permissions?name=nobody")
    assert "1 of" in browser.text("/topic-permissions?name=amq.topic")
    assert browser.get("/jobs?name=x").status == 200


def test_staged_batches_are_listed(console: LocalConsole, browser: Browser) -> None:
    with blocking.connect(console.broker.url) as connection, Sink(connection, "lake-1") as sink:
        sink.begin("query", "run")
        with Stage(connection, "lake-1", 4, 0, 1, epoch=sink.epoch) as stage:
            stage.publish_many([b"row"] * 3, "many.07")
            stage.prepare()
        html = browser.text("/batches?name=lake")
        assert 'data-label="Messages">3<' in html
        assert "prepared" in browser.text("/transactions")
        assert sink.abort(4) == 1


def test_what_says_nothing_is_marked_for_phones(browser: Browser) -> None:
    html = browser.text("/queues?name=many.02")
    assert '<td class="number" data-label="Consumers">0</td>' in html
    assert '<td class="number nil" data-label="Acknowledged">0/s</td>' in html
    assert '<td class="nil" data-label="Policy">' in html
