# SPDX-License-Identifier: Apache-2.0
"""The drawing of a topology, the route of a message, and the pages of records."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode
from xml.etree import ElementTree as ET

import pytest

from headrace.console.api.audit_log import audit_line
from headrace.console.api.logs import log_line
from headrace.console.pages import inner_tables
from headrace.console.pages.drawings.topology import arrange_columns, draw_topology
from support.console import LocalConsole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.management_rows import GraphEdge, GraphNode

HOSTILE = "<b>\"'&{{ 7*7 }}"
SECRET = "a-password-of-tests"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalConsole]:
    """A broker with an audit log, and a console."""
    data = tmp_path_factory.mktemp("data")
    with LocalConsole(data, broker={"audit_log": str(data / "audit.log")}) as running:
        link: Any = running.console.link  # type: ignore[union-attr]

        def ask(do: str, **fields: Any) -> None:
            running.run(link.ask(do, **fields))

        ask("declare exchange", name="news", type="topic")
        ask("declare exchange", name=HOSTILE, type="fanout")
        ask("declare queue", name=HOSTILE, arguments={"x-dead-letter-exchange": "news"})
        ask("declare queue", name="plain")
        ask("bind", source="news", destination=HOSTILE, kind="exchange", routing_key="eu.#")
        ask("bind", source=HOSTILE, destination=HOSTILE, routing_key=HOSTILE)
        ask("bind", source="news", destination="plain", routing_key="a\u202e.*")
        ask("put user", name="seer", password=SECRET, tags=["viewer"])
        yield running


@pytest.fixture(scope="module")
def cookie(console: LocalConsole) -> dict[str, str]:
    return log_in(console, "guest", "guest")


def log_in(console: LocalConsole, name: str, password: str) -> dict[str, str]:
    """Log in and return the headers of the session."""
    form = urlencode({"username": name, "password": password, "next": "/"}).encode()
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Sec-Fetch-Site": "same-origin",
    }
    answer = console.ask("POST", "/login", form, user=None, headers=headers)
    return {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}


def page_text(
    console: LocalConsole, path: str, cookie: Mapping[str, str], *, status: int = 200
) -> str:
    answer = console.ask("GET", path, user=None, headers=cookie)
    assert answer.status == status, answer.body[-1500:]
    return answer.body.decode()


def parse_drawing(html: str) -> ET.Element:
    """Return the drawing of a page, which must be well-formed XML."""
    svg = re.search(r"<svg.*</svg>", html, re.DOTALL)
    assert svg is not None
    return ET.fromstring(svg[0])


def read_title(node: ET.Element) -> str | None:
    """Return the title of an object of a drawing."""
    return node.findtext("{http://www.w3.org/2000/svg}title")


def test_the_topology_is_drawn_with_names_escaped(
    console: LocalConsole, cookie: dict[str, str]
) -> None:
    html = page_text(console, "/exchanges/%2F/news/topology", cookie)
    assert HOSTILE not in html
    assert "\u202e" not in html
    picture = parse_drawing(html)
    labels = {read_title(node) for node in picture.iter("{http://www.w3.org/2000/svg}a")}
    assert labels == {
        "exchange news, topic",
        f"exchange {HOSTILE}, fanout",
        f"queue {HOSTILE}, 0 ready",
        "queue plain, 0 ready",
    }
    titles = {title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")}
    assert {"eu.#", "dead-letter", "a\\u202e.*"} <= titles
    for node in picture.iter("{http://www.w3.org/2000/svg}a"):
        address = node.get("href")
        assert address is not None
        page_text(console, address, cookie)


def test_a_route_is_tried_by_an_address(console: LocalConsole, cookie: dict[str, str]) -> None:
    at = "/exchanges/%2F/news/topology"
    html = page_text(console, f"{at}?routing_key=eu.x", cookie)
    assert "It would reach 1 queue:" in html
    nodes = parse_drawing(html).iter()
    reached = [node for node in nodes if "reached" in (node.get("class") or "")]
    assert [read_title(node) for node in reached] == [f"queue {HOSTILE}, 0 ready"]
    assert "It would reach no queue" in page_text(console, f"{at}?routing_key=us", cookie)
    html = page_text(console, f"{at}?routing_key=us&headers=%5B1", cookie, status=400)
    assert "the headers are not valid JSON" in html
    twice = quote('{"a": 1, "a": 2}')
    html = page_text(console, f"{at}?routing_key=us&headers={twice}", cookie, status=400)
    assert "occurs twice" in html
    html = page_text(console, f"{at}?routing_key=us&headers={{%22CC%22:1}}", cookie, status=400)
    assert "is not a list of routing keys" in html
    page_text(console, "/exchanges/%2F/none/topology", cookie, status=404)
    page_text(console, "/queues/%2F/none/topology", cookie, status=404)
    page_text(console, "/exchanges/%2F/amq.default/topology?routing_key=x", cookie)


def test_the_bindings_drawn_are_sorted_filtered_and_a_file(
    console: LocalConsole, cookie: dict[str, str]
) -> None:
    at = "/exchanges/%2F/news/topology"

    def rows(query: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]]
        rows = json.loads(page_text(console, f"{at}?format=json&part=1&{query}", cookie))
        return rows

    keys = [row["routing_key"] for row in rows("sort_1=routing_key&sort_reverse_1=true")]
    assert len(keys) == 4
    assert keys == sorted(keys, reverse=True)
    assert [row["to"] for row in rows("has_1=PLAIN")] == ["queue plain"]
    assert "From,Kind,Routing key" in page_text(console, f"{at}?format=csv&part=1", cookie)
    html = page_text(console, f"{at}?routing_key=eu.x&sort_1=to&has_1=plain", cookie)
    assert 'name="routing_key" value="eu.x"' in html, "the filter keeps what is tried"
    page_text(console, f"{at}?format=json&part=2", cookie, status=404)


def test_the_api_has_the_same(console: LocalConsole) -> None:
    at = "/api/headrace/exchanges/%2F/news"
    assert console.get(f"{at}/route?routing_key=eu.x")["queues"] == [HOSTILE]
    assert console.get(f"{at}/topology?count=1")["cut"] is True
    queue = quote(HOSTILE, safe="")
    assert console.get(f"/api/headrace/queues/%2F/{queue}/topology")["nodes"][0]["name"] == HOSTILE
    assert console.ask("GET", f"{at}/topology?count=x").status == 400
    assert console.ask("GET", f"{at}/route?headers=5").status == 400


def test_a_viewer_sees_the_topology_and_no_settings(console: LocalConsole) -> None:
    seer = log_in(console, "seer", SECRET)
    html = page_text(console, "/exchanges/%2F/news", seer)
    assert "/exchanges/%2F/news/topology" in html
    page_text(console, "/exchanges/%2F/news/topology?routing_key=eu", seer)
    for path in ("/settings", "/log", "/audit"):
        assert f'href="{path}"' not in html
        page_text(console, path, seer, status=401)


def test_settings_and_the_audit_log_are_pages(
    console: LocalConsole, cookie: dict[str, str]
) -> None:
    html = page_text(console, "/settings?name=audit_log", cookie)
    assert "audit.log" in html
    rows = json.loads(page_text(console, "/audit?format=json&name=exchange.created", cookie))
    assert rows
    assert {row["what"] for row in rows} == {"exchange.created"}
    assert rows[0]["number"] < rows[-1]["number"]
    assert "log_file" in page_text(console, "/log", cookie)


def test_lines_of_logs_are_read_in_both_formats() -> None:
    text = "2026-11-23 07:00:00,123 WARNING headrace.server.broker: an operator (x) drains: it"
    record = {"logger": "headrace.server.broker", "message": "an operator (x) drains: it"}
    assert log_line(text) == {"time": "2026-11-23 07:00:00,123", "level": "warning", **record}
    as_json = json.dumps({"time": "t", "level": "warning", **record, "connection": 5})
    assert log_line(as_json) == {"time": "t", "level": "warning", **record}
    assert log_line("  File x")["message"] == "  File x"
    assert log_line("[1]")["message"] == "[1]"
    line = audit_line('{"time": "t", "what": "login", "allowed": false, "mechanism": "PLAIN"}')
    assert line["facts"] == {"mechanism": "PLAIN"}
    assert audit_line("torn {")["what"] == "torn {"


def test_what_leads_to_another_is_left_of_it() -> None:
    edges: list[GraphEdge] = [
        {"from": 0, "to": 1, "what": "binding", "routing_key": "", "arguments": {}},
        {"from": 2, "to": 0, "what": "binding", "routing_key": "", "arguments": {}},
        {"from": 1, "to": 0, "what": "dead-letter", "routing_key": "", "arguments": {}},
        {"from": 0, "to": 0, "what": "alternate", "routing_key": "", "arguments": {}},
    ]
    assert arrange_columns(3, edges) == [[2], [0], [1]]
    assert arrange_columns(1, []) == [[0]]
    only_dead: list[GraphEdge] = [
        {"from": 1, "to": 0, "what": "dead-letter", "routing_key": "", "arguments": {}},
        {"from": 2, "to": 1, "what": "binding", "routing_key": "", "arguments": {}},
    ]
    assert arrange_columns(3, only_dead) == [[2], [1], [0]]
    node: GraphNode = {"kind": "exchange", "name": "x" * 255, "type": "topic", "ready": 0}
    picture = draw_topology("/", [node] * 3, edges, frozenset())
    assert len(picture.curves) == 4
    assert all(0 <= box.x < picture.width and 0 <= box.y < picture.height for box in picture.boxes)
    assert len(picture.boxes[0].name) < 30


def test_the_style_stays_small() -> None:
    style = Path(draw_topology.__code__.co_filename).parents[1] / "assets" / "console.css"
    assert style.stat().st_size < 14_000


FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}


def send(
    console: LocalConsole, path: str, cookie: Mapping[str, str], **fields: str
) -> tuple[int, str]:
    """Send the form of a page; return the status, and the address of the redirect or the page."""
    html = page_text(console, path, cookie)
    tokens = re.findall(r'name="csrf" value="([^"]+)"', html)
    form = urlencode({"csrf": tokens[0], **fields}).encode()
    answer = console.ask("POST", path, form, user=None, headers={**cookie, **FORM})
    return answer.status, answer.headers.get("Location") or answer.body.decode()


def test_the_position_of_a_group_is_set_and_deleted(
    console: LocalConsole, cookie: dict[str, str]
) -> None:
    link: Any = console.console.link  # type: ignore[union-attr]
    stream = {"x-queue-type": "stream"}
    console.run(link.ask("declare queue", name="log", arguments=stream))
    console.run(link.ask("publish", routing_key="log", payload="m"))
    console.run(link.ask("set group", stream="log", group="<etl>", position=0))
    html = page_text(console, "/groups", cookie)
    assert "&lt;etl&gt;" in html
    assert "<etl>" not in html
    at = "/groups/%2F/log/%3Cetl%3E"
    assert at in html
    assert "1 message behind" in page_text(console, at, cookie)
    assert send(console, at, cookie, position="soon")[0] == 400
    assert send(console, at, cookie, position="next") == (303, "/groups")
    assert "headrace groups set log" in page_text(console, at, cookie)
    assert "No rows match the filter." in page_text(console, "/groups?name=absent", cookie)
    assert send(console, f"{at}/delete", cookie, confirmation="etl")[0] == 400
    assert send(console, f"{at}/delete", cookie, confirmation="<etl>") == (303, "/groups")
    assert "No groups." in page_text(console, "/groups", cookie)


def test_a_long_table_within_a_page_names_its_limit(
    console: LocalConsole, cookie: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert console.ask("PUT", "/api/queues/%2F/bound").status == 201
    assert console.ask("POST", "/api/bindings/%2F/e/amq.topic/q/bound", {}).status == 201
    limit = "The first 1 rows; the files have all."
    assert limit not in page_text(console, "/queues/%2F/bound", cookie)
    monkeypatch.setattr(inner_tables, "ROWS_MAX", 1)
    assert limit in page_text(console, "/queues/%2F/bound", cookie)
    assert console.ask("DELETE", "/api/queues/%2F/bound").status == 204


def test_a_decision_on_nothing_is_told(console: LocalConsole, cookie: dict[str, str]) -> None:
    for path, fields, status in (
        ("/transactions/%2F/x", {"confirmation": "x", "what": "commit"}, 404),
        ("/leases/%2F/plain/g", {"confirmation": "g", "force": "true"}, 404),
    ):
        kind = path.split("/")[1].removesuffix("s")
        assert f"The {kind} no longer exists." in page_text(console, path, cookie)
        assert send(console, path, cookie, **fields)[0] == status
