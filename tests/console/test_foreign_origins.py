# SPDX-License-Identifier: Apache-2.0
"""A page of another site changes nothing and logs no one in, whatever its browser says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.console import GUEST, LocalConsole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
LOGIN = b"username=guest&password=guest"
#: What a browser says, and whether the request is refused. HERE is the address that it is sent to.
SAID: list[tuple[dict[str, str], bool]] = [
    ({}, False),  # curl, rabbitmqadmin.
    ({"Origin": "http://HERE"}, False),
    ({"Origin": "https://HERE"}, False),  # A proxy ends TLS.
    ({"Referer": "http://HERE/queues?page=1"}, False),
    ({"Origin": "http://evil.example"}, True),
    ({"Origin": "http://evil.example", "Referer": "http://HERE/"}, True),
    ({"Origin": "http://HERE.evil.example"}, True),
    ({"Origin": "http://localhost:1"}, True),
    ({"Origin": "http://evil@HERE"}, False),  # No browser sends it, and the host is ours.
    ({"Origin": "http://HERE@evil.example"}, True),
    ({"Origin": "null"}, True),
    ({"Origin": ""}, True),
    ({"Origin": "http://[::1"}, True),
    ({"Origin": "http://HERE:x"}, True),
    ({"Origin": "ftp://HERE"}, True),
    ({"Referer": "http://evil.example/http://HERE/"}, True),
    ({"Sec-Fetch-Site": "same-origin", "Origin": "null"}, False),
    ({"Sec-Fetch-Site": "none"}, False),
    ({"Sec-Fetch-Site": "same-site", "Origin": "http://HERE"}, True),
    ({"Sec-Fetch-Site": "cross-site"}, True),
    ({"Sec-Fetch-Site": "other"}, True),
]


def here(console: LocalConsole, said: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value.replace("HERE", f"127.0.0.1:{console.port}") for name, value in said.items()
    }


@pytest.mark.parametrize(("said", "refused"), SAID)
def test_changes(console: LocalConsole, said: dict[str, str], refused: bool) -> None:
    headers = here(console, said)
    queue = "/api/queues/%2F/by-another-site"
    requests: list[tuple[str, str, Any, int]] = [
        ("PUT", queue, {}, 201),
        ("POST", "/api/exchanges/%2F/amq.default/publish", publish(), 200),
        ("DELETE", queue, None, 204),
    ]
    for method, path, body, status in requests:
        answer = console.ask(method, path, body, user=GUEST, headers=headers)
        assert answer.status == (403 if refused else status), (method, answer.body)
    assert console.ask("GET", "/api/overview", headers=headers).status == 200  # Nothing changes.


def publish() -> dict[str, Any]:
    return {"properties": {}, "routing_key": "x", "payload": "", "payload_encoding": "string"}


@pytest.mark.parametrize(("said", "refused"), SAID)
def test_logins(console: LocalConsole, said: dict[str, str], refused: bool) -> None:
    """A page of another site cannot have a browser go on as a user of its choice."""
    headers = here(console, said)
    page = console.ask("POST", "/login", LOGIN, user=None, headers={**headers, **FORM})
    api = console.ask("POST", "/api/login", LOGIN, user=None, headers={**headers, **FORM})
    assert (page.status, api.status) == ((403, 403) if refused else (303, 204))
    assert ("Set-Cookie" in page.headers, "Set-Cookie" in api.headers) == (not refused, not refused)


def test_the_public_address_of_a_proxy(tmp_path: Path) -> None:
    """The proxy sends requests to an address that browsers do not know."""
    with LocalConsole(tmp_path, url="https://mq.example") as console:
        for origin, status in (
            ("https://mq.example", 204),
            ("https://MQ.example:443", 204),
            ("http://mq.example", 403),
            ("https://mq.example:444", 403),
            (f"http://127.0.0.1:{console.port}", 204),
        ):
            headers = {**FORM, "Origin": origin}
            answer = console.ask("POST", "/api/login", LOGIN, user=None, headers=headers)
            assert answer.status == status, origin


def test_browsers_name_the_origin_of_our_own_forms(console: LocalConsole) -> None:
    """They send ``Origin: null`` from pages whose policy is no-referrer."""
    answer = console.ask("GET", "/login", user=None)
    assert answer.headers["Referrer-Policy"] == "same-origin"
