# SPDX-License-Identifier: Apache-2.0
"""Pages of messages, jobs and dead letters."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import fastavro
import pytest

from headrace.console.api import jobs
from headrace.console.pages.messages.payload_forms import format_hex, render_payload
from support.console_browser import Browser
from support.console_objects import SECRET

if TYPE_CHECKING:
    from support.console import LocalConsole

AT = "/queues/%2F/letters"


@pytest.fixture(scope="module")
def browser(console: LocalConsole) -> Browser:
    return Browser(console)


@pytest.fixture(autouse=True)
def letters(console: LocalConsole) -> None:
    """A queue with five messages, one of them hostile, and an empty queue."""
    link: Any = console.console.link  # type: ignore[union-attr]
    for name in ("letters", "others"):
        console.run(link.ask("declare queue", name=name))
        console.run(link.ask("purge queue", name=name))
    for at in range(4):
        body = json.dumps({"n": at})
        publish(console, body, {"content_type": "application/json", "headers": {"n": at}})
    publish(console, "<script>alert(1)</script>\u202e\x1b", {"headers": {"<b>": "\u202e"}})


def publish(console: LocalConsole, payload: str, properties: object) -> None:
    body = {"routing_key": "letters", "payload": payload, "properties": properties}
    assert console.ask("POST", "/api/exchanges/%2F/amq.default/publish", body).json["routed"]


def ready_count(console: LocalConsole, queue: str) -> int:
    return int(console.get(f"/api/queues/%2F/{queue}")["messages_ready"])


def finished_job(browser: Browser, address: str) -> str:
    """Return the page of a job once the job has ended."""
    for _ in range(1000):
        html = browser.text(address)
        if 'id="live" data-live' not in html:
            return html
    pytest.fail("the job does not end")


def read_positions(html: str) -> list[str]:
    return re.findall(r'<li id="message-(\d+)"', html)


def test_messages_are_listed_and_chosen(browser: Browser) -> None:
    html = browser.text(f"{AT}/messages")
    assert len(read_positions(html)) == 5
    assert "&lt;script&gt;" in html
    assert "<script>alert" not in html
    assert not re.search("[\u202e\x1b]", html)
    assert "&#34;n&#34;: 3" in html, "JSON has indents"
    html = browser.text(f"{AT}/messages?{urlencode({'selector': 'n > 1'})}")
    assert len(read_positions(html)) == 2
    assert "headrace peek letters" in html
    first = browser.text(f"{AT}/messages?count=2")
    (more,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = browser.text(more.replace("&amp;", "&"))
    assert int(read_positions(second)[0]) == int(read_positions(first)[-1]) + 1


@pytest.mark.parametrize("name", ["messages", "messages-eu", "a/messages"])
def test_links_lead_to_a_queue_whose_name_has_a_part_of_its_address(
    browser: Browser, name: str
) -> None:
    queue = f"/queues/%2F/{quote(name, safe='')}"
    assert browser.console.ask("PUT", f"/api{queue}", {}).status in (201, 204)
    message = {"routing_key": name, "payload": "one", "properties": {}}
    browser.console.ask("POST", "/api/exchanges/%2F/amq.default/publish", message)
    html = browser.text(f"{queue}/messages")
    (position,) = read_positions(html)
    links = [f"{queue}", f"{queue}/job?selector=", f"{queue}/dead-letters"]
    for link in (*links, f"{queue}/messages/{position}"):
        assert f'href="{link}"' in html
        browser.text(link)
    message_page = browser.text(f"{queue}/messages/{position}")
    assert f'href="{queue}"' in message_page


def test_what_is_looked_at_is_a_file_too(browser: Browser) -> None:
    path = "/queues/%2F/letters-as-files/messages"
    ask, queue = browser.console.ask, "/api/queues/%2F/letters-as-files"
    assert ask("PUT", queue, {}).status == 201
    for payload in ("=1+1", '{"n": 1}', "y" * 900):
        message = {"routing_key": "letters-as-files", "payload": payload, "properties": {}}
        ask("POST", "/api/exchanges/%2F/amq.default/publish", message)
    html = browser.text(f"{path}?count=2")
    for form in ("csv", "json"):
        assert f'href="{path}?count=2&amp;format={form}"' in html
    answer = browser.get(f"{path}?format=csv")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="messages.csv"'
    title, *rows = list(csv.reader(io.StringIO(answer.body.decode())))
    assert title[0] == "Position"
    assert [row[-1] for row in rows] == ["'=1+1", '{"n": 1}', "y" * 900], "no formula, and whole"
    messages = json.loads(browser.get(f"{path}?format=json&count=2").body)
    assert [row["body"] for row in messages] == ["=1+1", '{"n": 1}']
    assert browser.get(f"{path}?format=xml").status == 400
    assert browser.get(f"{path}?format=csv&selector=%28").status == 400


def test_a_wrong_condition_is_told_beside_the_form(browser: Browser) -> None:
    answer = browser.get(f"{AT}/messages?selector=n+%3D")
    assert answer.status == 400
    assert b'role="alert"' in answer.body
    assert b'value="n ="' in answer.body
    assert browser.get("/queues/%2F/none/messages").status == 404


def test_one_message_in_every_form(browser: Browser) -> None:
    first, *_, last = read_positions(browser.text(f"{AT}/messages"))
    html = browser.text(f"{AT}/messages/{first}")
    assert "application/json" in html
    assert "&#34;n&#34;: 0" in html
    assert "7b 22 6e" in browser.text(f"{AT}/messages/{first}?form=hex")
    html = browser.text(f"{AT}/messages/{last}?form=json")
    assert "&lt;script&gt;" in html
    (link,) = re.findall(r'href="([^"]+)" download', html)
    answer = browser.get(link)
    assert answer.body == "<script>alert(1)</script>\u202e\x1b".encode()
    assert answer.headers["Content-Type"] == "application/octet-stream"
    for position in ("99999", "x", "-1"):
        assert browser.get(f"{AT}/messages/{position}").status == 404


def test_avro_is_read() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    file = io.BytesIO()
    fastavro.writer(file, fastavro.parse_schema(schema), [{"n": 7}])
    row = {"content_type": "avro/binary", "body_base64": ""}
    row["body_base64"] = base64.b64encode(file.getvalue()).decode()
    text, form = render_payload(row, "auto")
    assert (json.loads(text), form) == ([{"n": 7}], "avro")
    row["body_base64"] = row["body_base64"][:40]
    assert render_payload(row, "auto")[1] == "hex"


@pytest.mark.parametrize(
    ("body", "form", "shown"),
    [
        ({"body": "[1]"}, "auto", ("[\n  1\n]", "json")),
        ({"body": "[1"}, "auto", ("[1", "text")),
        ({"body": "[" * 100_000}, "auto", ("[" * 100_000, "text")),
        ({"body": "[1", "cut": True}, "json", ("[1", "text")),
        ({"body_base64": "/w=="}, "text", (format_hex(b"\xff"), "hex")),
        ({"body": ""}, "auto", ("", "text")),
        ({"body": "x"}, "avro", ("x", "text")),
    ],
)
def test_a_payload_that_is_not_of_the_form_is_shown_as_it_is(body, form, shown) -> None:
    assert render_payload(body, form) == shown


def test_a_job_is_counted_confirmed_and_done(console: LocalConsole, browser: Browser) -> None:
    fields = {"do": "move", "to": "others", "selector": "n < 3"}
    html = browser.send(f"{AT}/job", **fields).body.decode()
    assert "3 of 5 ready messages" in html
    assert ">Move 3 messages</button>" in html
    assert "headrace messages move letters others --selector &#39;n &lt; 3&#39;" in html
    assert ready_count(console, "others") == 0
    answer = browser.send(f"{AT}/job", **fields, confirmation="wrong")
    assert (answer.status, b"nothing was changed" in answer.body) == (400, True)
    assert ready_count(console, "others") == 0
    answer = browser.send(f"{AT}/job", **fields, confirmation="letters")
    assert answer.status == 303
    html = finished_job(browser, answer.headers["Location"])
    assert "<bdi>done</bdi>: 3 messages<" in html
    assert ("<dt>Examined</dt>" in html, "looked" in html) == (True, False)
    assert (ready_count(console, "letters"), ready_count(console, "others")) == (2, 3)
    gone = browser.send(f"{answer.headers['Location']}/cancel")
    assert gone.status == 400


def test_a_job_that_failed_says_why(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failed(call: object, vhost: str, id: str) -> dict[str, object]:  # noqa: A002
        error = "queue 'others' was deleted meanwhile"
        job = {"vhost": vhost, "id": id, "state": "failed", "done": 1}
        return {**job, "error_text": error}

    monkeypatch.setattr(jobs, "show_job", failed)
    html = browser.text("/jobs/%2F/some")
    assert ": 1 message<" in html
    assert re.search(r"<dt>Error</dt><dd><bdi>queue &#39;others&#39; was deleted meanwhile<", html)


@pytest.mark.parametrize(("tag", "is_offered"), [("management", True), ("viewer", False)])
def test_only_who_may_cancel_a_job_is_offered_to(
    console: LocalConsole, monkeypatch, tag, is_offered
) -> None:
    async def running(call: object, vhost: str, id: str) -> dict[str, object]:  # noqa: A002 - as in the path.
        return {"vhost": vhost, "id": id, "state": "moving", "done": 1}

    link: Any = console.console.link  # type: ignore[union-attr]
    console.run(link.ask("put user", name=tag, password=SECRET, tags=[tag]))
    monkeypatch.setattr(jobs, "show_job", running)
    html = Browser(console, tag, SECRET).text("/jobs/%2F/some")
    assert ('href="/jobs/%2F/some/cancel"' in html) is is_offered
    assert "1 message" in html


def test_bookmarks_of_jobs_of_earlier_versions_work(browser: Browser) -> None:
    assert "Move messages to another queue" in browser.text(f"{AT}/errand")
    assert "No running jobs." in browser.text("/errands")
    answer = browser.send(f"{AT}/errand", do="delete", count="1", confirmation="letters")
    address = answer.headers["Location"]
    assert address.startswith("/jobs/")
    finished_job(browser, address)
    assert "<bdi>done</bdi>: " in browser.text(address.replace("/jobs/", "/errands/"))


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"do": "move"}, 400),
        ({"do": "move", "to": "none"}, 404),
        ({"do": "burn"}, 400),
        ({"do": "delete", "selector": "n ="}, 400),
        ({"do": "delete", "count": "many"}, 400),
    ],
)
def test_a_wrong_job_is_told(console, browser, fields, status) -> None:
    answer = browser.send(f"{AT}/job", **fields)
    assert answer.status == status
    assert b'role="alert"' in answer.body
    assert ready_count(console, "letters") == 5


def test_dead_letters_are_requeued_by_group(console: LocalConsole, browser: Browser) -> None:
    link: Any = console.console.link  # type: ignore[union-attr]
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "others"}
    console.run(link.ask("declare queue", name="mortal's", arguments=arguments))
    body = {"routing_key": "mortal's", "payload": "p"}
    for _ in range(2):
        console.ask("POST", "/api/exchanges/%2F/amq.default/publish", body)
    rejection = {"count": 2, "ackmode": "reject_requeue_false", "encoding": "auto"}
    console.ask("POST", "/api/queues/%2F/mortal%27s/get", rejection)
    html = browser.text("/queues/%2F/others/dead-letters")
    assert "rejected" in html
    (form,) = re.findall(r'href="([^"]+)">Requeue<', html)
    form = form.replace("&amp;", "&")
    at = "/queues/%2F/others/dead-letters"
    (group,) = browser.get(f"{at}?format=json&part=1").json
    assert (group["reason"], group["count"]) == ("rejected", 2)
    assert f'<time datetime="{group["last"][:19]}Z"' in html, "the exact time, for a script"
    (hour,) = browser.get(f"{at}?format=json&part=2&sort_2=count").json
    assert (hour["count"], hour["share"]) == (2, 1.0)
    assert browser.get(f"{at}?format=json&part=1&has_1=no-such").json == []
    assert b"Reason,Queue,Exchange" in browser.get(f"{at}?format=csv&part=1").body
    html = browser.text(form)
    assert 'value="requeue" selected' in html
    path, _, query = form.partition("?")
    assert query.startswith("do=requeue")
    selector = "\"x-last-death-reason\" = 'rejected'"
    fields = {"do": "requeue", "selector": selector}
    assert b"2 of 2 ready" in browser.send(path, **fields).body
    answer = browser.send(path, **fields, confirmation="others")
    assert answer.status == 303, answer.body
    assert "<bdi>done</bdi>: " in finished_job(browser, answer.headers["Location"])
    assert ready_count(console, "mortal%27s") == 2
