# SPDX-License-Identifier: Apache-2.0
"""Who may ask for what: every route by every tag, and the virtual hosts of others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from headrace.client import blocking
from headrace.console.api.events import MEDIA as EVENTS
from headrace.console.api.routes import ROUTES
from headrace.console.http.routes import ALLOWED, NOBODY, Route
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT, MONITORING, POLICYMAKER, TAGS, VIEWER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.console import LocalConsole

SECRET = "a-password-of-tests"
PUT_BACK = "ack_requeue_true"
VALUES = {
    "vhost": "%2F",
    "queue": "mine",
    "exchange": "amq.topic",
    "source": "amq.topic",
    "kind": "q",
    "destination": "mine",
    "user": "guest",
    "username": "guest",
    "port": "1",
    "protocols": "amqp",
    "within": "1",
    "unit": "days",
}
READ = [route for route in ROUTES if route.method == "GET"]
WRITE = [route for route in ROUTES if route.method != "GET" and route.tag != NOBODY]
ABSENT = dict.fromkeys(VALUES, "absent") | {"kind": "q"}


@pytest.fixture(scope="module", autouse=True)
def users(console: LocalConsole) -> None:
    """A user of each tag, and of none, with permissions in / only; queues here and elsewhere."""
    link: Any = console.console.link
    console.run(link.ask("put vhost", name="other"))
    for name in (*TAGS, "nothing"):
        tags = [] if name == "nothing" else [name]
        console.run(link.ask("put user", name=name, password=SECRET, tags=tags))
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        console.run(link.ask("put permission", user=name, vhost="/", **everything))
    console.run(
        link.ask("put permission", user="guest", vhost="other", configure=".*", write="", read="")
    )
    for vhost, name in (("/", "mine"), ("other", "theirs")):
        with blocking.connect(console.broker.url_of(vhost=vhost)) as connection:
            connection.channel().declare_queue(name)
    # One with every tag that reads, and with a permission that allows nothing.
    console.run(link.ask("put user", name="bare", password=SECRET, tags=["monitoring"]))
    nothing = {"configure": "", "write": "", "read": ""}
    console.run(link.ask("put permission", user="bare", vhost="/", **nothing))
    console.run(link.ask("declare exchange", name="made"))
    console.run(link.ask("bind", source="amq.topic", destination="mine", routing_key="kept"))


def path_of(route: Route, values: Mapping[str, str] = VALUES) -> str:
    """Return a path of a route."""
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], "none"), route.path)


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("route", READ, ids=lambda route: route.path)
def test_every_route_by_every_tag(console: LocalConsole, route: Route, tag: str) -> None:
    method = "HEAD" if route.media == EVENTS else "GET"  # A stream of events does not end.
    answer = console.ask(method, path_of(route), user=(tag, SECRET))
    allowed = route.tag == NOBODY or tag in ALLOWED[route.tag]
    if route.shows_payloads and tag == VIEWER:
        allowed = False
    assert (answer.status != 401) is allowed, answer.body
    if not allowed:
        assert answer.json["error"] == "not_authorised"


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("route", WRITE, ids=lambda route: f"{route.method} {route.path}")
def test_every_write_by_every_tag(console: LocalConsole, route: Route, tag: str) -> None:
    """Each names what does not exist, or lacks its body, so nothing is changed."""
    path = path_of(route, ABSENT)
    answer = console.ask(route.method, path, b"[]", user=(tag, SECRET))
    allowed = tag in ALLOWED[route.tag] and tag != VIEWER
    assert (answer.status != 401) is allowed, answer.body
    if not allowed:
        assert answer.json["error"] == "not_authorised"


@pytest.mark.parametrize("route", WRITE, ids=lambda route: f"{route.method} {route.path}")
def test_no_write_without_login(console: LocalConsole, route: Route) -> None:
    assert console.ask(route.method, path_of(route, ABSENT), b"[]", user=None).status == 401


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "queues/%2F/new", {}),
        ("DELETE", "queues/%2F/mine", None),
        ("DELETE", "queues/%2F/mine/contents", None),
        ("POST", "queues/%2F/mine/get", {"count": 1, "ackmode": PUT_BACK}),
        ("PUT", "exchanges/%2F/new", {}),
        ("DELETE", "exchanges/%2F/made", None),
        ("POST", "exchanges/%2F/amq.topic/publish", {"routing_key": "k", "payload": ""}),
        ("POST", "bindings/%2F/e/amq.topic/q/mine", {"routing_key": "k"}),
        ("DELETE", "bindings/%2F/e/amq.topic/q/mine/kept", None),
    ],
)
def test_tags_do_not_stand_in_for_permissions(console: LocalConsole, method, path, body) -> None:
    answer = console.ask(method, f"/api/{path}", body, user=("bare", SECRET))
    assert (answer.status, answer.json["error"]) == (401, "not_authorised"), answer.body
    assert "bare" in answer.json["reason"]


@pytest.mark.parametrize("path", ["queues/other/theirs", "vhost-limits/other/max-queues"])
def test_what_a_user_does_not_see_it_does_not_change(console: LocalConsole, path) -> None:
    answer = console.ask("DELETE", f"/api/{path}", user=(MANAGEMENT, SECRET))
    assert answer.status in (401, 404)
    assert console.get("/api/queues/other/theirs")["name"] == "theirs"


def test_only_owner_and_administrator_close_a_connection(console: LocalConsole) -> None:
    with blocking.connect(console.broker.url):
        (row,) = console.get("/api/connections")
        path = f"/api/connections/{quote(row['name'], safe='')}"
        for tag, status in ((MANAGEMENT, 404), (MONITORING, 401), (VIEWER, 401)):
            assert console.ask("DELETE", path, user=(tag, SECRET)).status == status, tag
        assert len(console.get("/api/connections")) == 1


@pytest.mark.parametrize("route", READ, ids=lambda route: route.path)
def test_without_login_only_probes_answer(console: LocalConsole, route: Route) -> None:
    answer = console.ask("GET", path_of(route), user=None)
    assert (answer.status == 401) is (route.tag != NOBODY)


def test_the_table_of_tags() -> None:
    assert ALLOWED[MANAGEMENT] == set(TAGS)
    assert ALLOWED[POLICYMAKER] == {POLICYMAKER, ADMINISTRATOR}
    assert ALLOWED[MONITORING] == {MONITORING, ADMINISTRATOR, VIEWER}
    assert ALLOWED[ADMINISTRATOR] == {ADMINISTRATOR}


def test_a_viewer_changes_nothing() -> None:
    for method in ("PUT", "POST", "DELETE"):
        route = Route(method=method, path="/", handler=READ[0].handler, summary="", tag=MANAGEMENT)
        assert not route.allows((VIEWER,))
        assert route.allows((VIEWER, MANAGEMENT))


@pytest.mark.parametrize(
    ("method", "path", "reason"),
    [
        ("DELETE", "/api/queues/%2F/q/contents", "You may view, not change"),
        (
            "GET",
            "/api/headrace/queues/%2F/q/messages",
            "You may not view the payloads of messages",
        ),
        ("PUT", "/api/users/new", "Not administrator user"),
    ],
)
def test_a_viewer_reads_why_a_request_is_refused(console, method, path, reason) -> None:
    answer = console.ask(method, path, user=(VIEWER, SECRET))
    assert (answer.status, answer.json["reason"]) == (401, reason)


def test_only_browsing_shows_payloads() -> None:
    shown = {route.path for route in ROUTES if route.shows_payloads}
    start = "/api/headrace/queues/{vhost}/{queue}"
    browsing = {f"{start}/messages", f"{start}/messages/{{position}}/body"}
    assert shown == {*browsing, f"{start}/dead-letters"}


def test_a_user_without_tags_is_no_user_of_the_console(console: LocalConsole) -> None:
    answer = console.ask("GET", "/api/whoami", user=("nothing", SECRET))
    assert (answer.status, answer.json["reason"]) == (401, "Not management user")


@pytest.mark.parametrize(
    ("tag", "seen"),
    [(MANAGEMENT, ["mine"]), (POLICYMAKER, ["mine"]), (MONITORING, ["mine", "theirs"])],
)
def test_users_see_the_virtual_hosts_that_they_may_open(console: LocalConsole, tag, seen) -> None:
    user = (tag, SECRET)
    rows = console.get("/api/queues?sort=name", user=user)
    assert [row["name"] for row in rows] == seen
    status = 200 if len(seen) == 2 else 404
    for path in ("queues/other", "queues/other/theirs", "vhosts/other", "bindings/other"):
        assert console.ask("GET", f"/api/{path}", user=user).status == status, path
    found = console.get("/api/overview", user=user)
    assert found["object_totals"]["queues"] == len(seen)


def test_only_administrators_and_monitors_see_connections_of_others(console: LocalConsole) -> None:
    with blocking.connect(console.broker.url):
        assert console.get("/api/connections", user=(MANAGEMENT, SECRET)) == []
        (row,) = console.get("/api/connections", user=(VIEWER, SECRET))
        path = f"/api/connections/{row['name'].replace(' ', '%20')}"
        assert console.ask("GET", path, user=(MANAGEMENT, SECRET)).status == 404
