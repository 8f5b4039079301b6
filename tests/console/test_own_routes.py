# SPDX-License-Identifier: Apache-2.0
"""Browsing, jobs and dead letters by the API."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from headrace.console.api import browse, dead_letters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.console import LocalConsole

SECRET = "a-password-of-tests"
QUEUE = "/api/headrace/queues/%2F"


@pytest.fixture(autouse=True)
def queues(console: LocalConsole) -> Iterator[None]:
    """A queue with seven messages, one that is empty, and one of dead letters."""
    link: Any = console.console.link  # type: ignore[union-attr]
    for name in ("full", "empty", "dead"):
        console.run(link.ask("declare queue", name=name))
    dies = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    for name in ("a", "b'c"):
        console.run(link.ask("declare queue", name=name, arguments=dies))
    for at in range(7):
        publish(console, "full", str(at), {"n": at, "odd": bool(at % 2)})
    yield
    for name in ("full", "empty", "dead", "a", "b'c"):
        console.run(link.ask("delete queue", name=name))


def publish(console: LocalConsole, queue: str, text: str, headers: object = None) -> None:
    body = {"routing_key": queue, "payload": text, "properties": {"headers": headers or {}}}
    answer = console.ask("POST", "/api/exchanges/%2F/amq.default/publish", body)
    assert answer.json == {"routed": True}


def messages(console: LocalConsole, query: str = "") -> list[dict[str, Any]]:
    found = console.get(f"{QUEUE}/full/messages?{query}")["messages"]
    assert isinstance(found, list)
    return found


def ready(console: LocalConsole, queue: str) -> int:
    return int(console.get(f"/api/queues/%2F/{queue}")["messages_ready"])


# --- Browsing ------------------------------------------------------------------------------------


def test_messages_are_shown_without_a_trace(console: LocalConsole) -> None:
    found = messages(console)
    assert [one["body"] for one in found] == list("0123456")
    assert [one["redelivered"] for one in messages(console)] == [False] * 7
    assert found[3]["headers"] == {"n": 3, "odd": True}
    assert ready(console, "full") == 7


def test_a_selector_chooses(console: LocalConsole) -> None:
    found = messages(console, "selector=n%20%3E%202%20AND%20odd%20%3D%20TRUE")
    assert [one["body"] for one in found] == ["3", "5"]


def test_pages_follow_by_position(console: LocalConsole) -> None:
    first = console.get(f"{QUEUE}/full/messages?count=3&from=first")
    second = console.get(f"{QUEUE}/full/messages?count=3&from={first['next']}")
    assert [one["body"] for one in first["messages"] + second["messages"]] == list("012345")
    last = console.get(f"{QUEUE}/full/messages?count=3&from={second['next']}")
    assert ([one["body"] for one in last["messages"]], last["next"]) == (["6"], None)


def test_a_body_is_cut_and_downloaded_whole(console: LocalConsole) -> None:
    publish(console, "full", "<script>" * 100)
    (row,) = messages(console, "selector=n%20IS%20NULL&bytes=8")
    assert (row["body"], row["cut"], row["bytes"]) == ("<script>", True, 800)
    answer = console.ask("GET", f"{QUEUE}/full/messages/{row['position']}/body")
    assert (answer.status, answer.body) == (200, b"<script>" * 100)
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers["Content-Security-Policy"].startswith("sandbox")


def test_bytes_that_are_no_text_come_back(console: LocalConsole) -> None:
    sent = {"routing_key": "empty", "payload": base64.b64encode(b"\xff\0").decode()}
    sent["payload_encoding"] = "base64"
    console.ask("POST", "/api/exchanges/%2F/amq.default/publish", sent)
    (row,) = console.get(f"{QUEUE}/empty/messages")["messages"]
    answer = console.ask("GET", f"{QUEUE}/empty/messages/{row['position']}/body")
    assert answer.body == b"\xff\0"


def test_a_stream_is_shown_from_an_offset_or_a_time(console: LocalConsole) -> None:
    link: Any = console.console.link  # type: ignore[union-attr]
    console.run(link.ask("declare queue", name="log", arguments={"x-queue-type": "stream"}))
    for at in range(5):
        publish(console, "log", str(at))
    found = console.get(f"{QUEUE}/log/messages?from=3&count=2")
    assert [one["body"] for one in found["messages"]] == ["3", "4"]
    assert len(console.get(f"{QUEUE}/log/messages?from=2000-01-01T00:00:00Z")["messages"]) == 5
    assert len(console.get(f"{QUEUE}/log/messages?from=7D")["messages"]) == 5
    answer = console.ask("GET", f"{QUEUE}/log/messages?from=never")
    assert answer.status == 400
    assert "invalid arg 'from' for queue 'log' in vhost '/': 'never'" in answer.json["reason"]
    console.run(link.ask("delete queue", name="log"))


@pytest.mark.parametrize(
    "query",
    [
        *("count=0", "count=501", "count=x", "count=-1", "bytes=2000000", "bytes=x"),
        *("selector=n%20%3D", "from=never", f"selector={'x' * (browse.SELECTOR_MAX + 1)}"),
    ],
)
def test_a_wrong_question_is_told(console: LocalConsole, query: str) -> None:
    answer = console.ask("GET", f"{QUEUE}/full/messages?{query}")
    assert (answer.status, set(answer.json)) == (400, {"error", "reason"})


@pytest.mark.parametrize("path", ["none/messages", "none/dead-letters", "full/messages/999/body",
                                  "full/messages/x/body", "full/messages/-1/body"])  # fmt: skip
def test_what_does_not_exist_is_not_found(console: LocalConsole, path: str) -> None:
    assert console.ask("GET", f"{QUEUE}/{path}").status == 404


@pytest.mark.parametrize(
    ("eye", "tags", "permission", "status"),
    [
        ("guard", ["viewer"], ".*", 401),
        ("blind", ["management"], "", 401),
        ("reader", ["management"], ".*", 200),
    ],
)
def test_payloads_need_the_permission_to_read(console, eye, tags, permission, status) -> None:
    link: Any = console.console.link
    console.run(link.ask("put user", name=eye, password=SECRET, tags=tags))
    given = {"configure": "", "write": "", "read": permission}
    console.run(link.ask("put permission", user=eye, vhost="/", **given))
    for path in ("messages", "dead-letters"):
        answer = console.ask("GET", f"{QUEUE}/full/{path}", user=(eye, SECRET))
        assert answer.status == status, answer.body


# --- Jobs -------------------------------------------------------------------------------------


def job(console: LocalConsole, queue: str = "full", **body: object) -> dict[str, Any]:
    """Run a job to its end; return its result."""
    answer = console.ask("POST", f"{QUEUE}/{queue}/jobs", body)
    assert answer.status in (200, 202), answer.body
    found: dict[str, Any] = answer.json
    while found["state"] in ("choosing", "moving"):
        found = console.get(f"/api/headrace/jobs/%2F/{found['id']}")
    return found


def test_a_dry_run_counts_and_changes_nothing(console: LocalConsole) -> None:
    found = job(console, do="delete", selector="n > 3", dry_run=True)
    assert found["done"] == 3
    assert ready(console, "full") == 7


@pytest.mark.parametrize(
    ("body", "left", "there"),
    [
        ({"do": "move", "to": "empty", "selector": "odd = TRUE"}, 4, 3),
        ({"do": "copy", "to": "empty", "count": "2"}, 7, 2),
        ({"do": "delete", "selector": "n < 2"}, 5, 0),
    ],
)
def test_messages_are_moved_copied_and_deleted(console, body, left, there) -> None:
    job(console, **body)
    assert (ready(console, "full"), ready(console, "empty")) == (left, there)


def test_a_job_with_a_name_is_done_once(console: LocalConsole) -> None:
    for _ in range(2):
        job(console, do="move", to="empty", count=1, id="once")
    assert ready(console, "empty") == 1


def test_the_end_of_a_job_is_told(console: LocalConsole) -> None:
    found = job(console, do="move", to="empty", id="told")
    assert (found["state"], found["done"]) == ("done", 7)
    assert console.ask("DELETE", "/api/headrace/jobs/%2F/told").status in (204, 400, 404)
    assert console.get("/api/headrace/jobs") == []


def test_jobs_answer_by_the_paths_of_earlier_versions(console: LocalConsole) -> None:
    at = "/api/headrace/errands"
    answer = console.ask("POST", f"{QUEUE}/full/errands", {"do": "copy", "to": "empty", "id": "e"})
    assert answer.status in (200, 202)
    while (found := console.get(f"{at}/%2F/e"))["state"] in ("choosing", "moving"):
        pass
    assert found == console.get("/api/headrace/jobs/%2F/e")
    assert (found["state"], console.get(at)) == ("done", [])
    assert console.ask("DELETE", f"{at}/%2F/e").status == 204
    assert console.ask("DELETE", f"{at}/%2F/none").status == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"do": "burn"}, 400),
        ({"do": "move"}, 400),
        ({"do": "move", "to": "none"}, 404),
        ({"do": "move", "to": "full"}, 400),
        ({"do": "delete", "selector": "n ="}, 400),
        ({"do": "delete", "count": 0}, 400),
        ({"do": "delete", "dry_run": "perhaps"}, 400),
    ],
)
def test_a_wrong_job_changes_nothing(console: LocalConsole, body, status) -> None:
    assert console.ask("POST", f"{QUEUE}/full/jobs", body).status == status
    assert ready(console, "full") == 7
    assert console.ask("GET", "/api/headrace/jobs/%2F/none").status == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "missing"),
    [
        ("POST", "queues/%2F/full/jobs", {"do": "move", "to": "absent"}, "absent"),
        ("POST", "queues/%2F/absent/jobs", {"do": "move", "to": "full"}, "absent"),
        ("GET", "queues/%2F/absent/messages", None, "absent"),
        ("GET", "jobs/%2F/no-such", None, "no-such"),
        ("GET", "queues/absent/full/messages", None, "absent"),
    ],
)
def test_what_is_missing_is_named(console: LocalConsole, method, path, body, missing) -> None:
    answer = console.ask(method, f"/api/headrace/{path}", body)
    assert (answer.status, f"'{missing}'" in answer.json["reason"]) == (404, True), answer.json


def test_a_virtual_host_that_a_user_does_not_see_is_as_one_that_is_absent(console) -> None:
    link: Any = console.console.link
    console.run(link.ask("put vhost", name="unseen"))
    console.run(link.ask("put user", name="outside", password=SECRET, tags=["management"]))
    told = []
    for vhost in ("unseen", "absent"):
        for path in (f"queues/{vhost}/q/messages", f"jobs/{vhost}/e", f"streams/{vhost}/s"):
            answer = console.ask("GET", f"/api/headrace/{path}", user=("outside", SECRET))
            assert answer.status == 404
            told.append(answer.json["reason"].replace(vhost, "VHOST"))
    assert told[:3] == told[3:]
    console.run(link.ask("delete vhost", name="unseen"))


# --- Dead letters --------------------------------------------------------------------------------


def die(console: LocalConsole, queue: str, count: int) -> None:
    """Have messages of a queue rejected."""
    for at in range(count):
        publish(console, queue, str(at))
    wanted = {"count": count, "ackmode": "reject_requeue_false", "encoding": "auto"}
    path = f"/api/queues/%2F/{queue.replace(chr(39), '%27')}/get"
    assert len(console.ask("POST", path, wanted).json) == count


def test_dead_letters_are_grouped_and_requeued_by_group(console: LocalConsole) -> None:
    die(console, "a", 3)
    die(console, "b'c", 2)
    publish(console, "dead", "not one")
    found = console.get(f"{QUEUE}/dead/dead-letters")
    assert (found["looked"], found["is_all"], found["others"]) == (6, True, 1)
    groups = [(one["reason"], one["queue"], one["count"]) for one in found["groups"]]
    assert groups == [("rejected", "a", 3), ("rejected", "b'c", 2)]
    assert sum(one["count"] for one in found["hours"]) == 5
    assert found["groups"][0]["first"] <= found["groups"][0]["last"]
    job(console, "dead", do="requeue", selector=found["groups"][1]["selector"])
    assert (ready(console, "b%27c"), ready(console, "a"), ready(console, "dead")) == (2, 0, 4)


def test_a_letter_that_does_not_say_all_is_chosen_too(console: LocalConsole) -> None:
    publish(console, "full", "strange", {"x-last-death-reason": "expired"})
    (group,) = console.get(f"{QUEUE}/full/dead-letters")["groups"]
    assert (group["reason"], group["queue"]) == ("expired", None)
    assert job(console, do="delete", selector=group["selector"], dry_run=True)["done"] == 1


def test_so_many_messages_are_looked_at(console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "EXAMINED_MAX", 4)
    found = console.get(f"{QUEUE}/full/dead-letters")
    assert (found["looked"], found["is_all"]) == (4, False)
