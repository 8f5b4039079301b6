# SPDX-License-Identifier: Apache-2.0
"""A page that cannot refresh itself names the reason, and tries again only where that may help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.console import LocalConsole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.browser import Chromium

EVERY_MS = 5000
# Records the delays of the page's next tries; charts have a timer of their own.
RECORD = """
window.__delays = [];
const setTimer = window.setTimeout;
window.setTimeout = (run, delay) => { window.__delays.push(delay); return setTimer(run, delay); };
"""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalConsole]:
    """A broker with one queue, and a console."""
    with LocalConsole(tmp_path_factory.mktemp("data")) as running:
        assert running.ask("PUT", "/api/queues/%2F/orders").status == 201
        yield running


def shown(chromium: Chromium) -> list[str]:
    """Return the reasons whose warnings are visible."""
    warnings = chromium.all("[data-stale]")
    return [str(one.get_attribute("data-stale")) for one in warnings if one.is_displayed()]


def delays(chromium: Chromium) -> list[int]:
    """Return the milliseconds before each further try."""
    return list(chromium.run("return window.__delays"))


@pytest.mark.parametrize(
    ("status", "reason", "next_ms"),
    [
        (401, "rights", None),
        (403, "rights", None),
        (404, "missing", None),
        (429, "busy", 7000),
        (500, "error", EVERY_MS),
        (503, "broker", EVERY_MS),
    ],
)
def test_a_refused_refresh_names_its_reason(
    chromium: Chromium, status: int, reason: str, next_ms: int | None
) -> None:
    chromium.look(1440)
    chromium.open("/queues")
    chromium.run(RECORD)
    options = f"{{status: {status}, headers: {{'Retry-After': '7'}}}}"
    chromium.run(f"""
        const fetched = window.fetch;
        window.fetch = (address, ...rest) => address === location.href
            ? Promise.resolve(new Response("", {options})) : fetched(address, ...rest);
    """)
    chromium.wait(lambda: shown(chromium), "the warning")
    assert shown(chromium) == [reason]
    assert delays(chromium) == ([] if next_ms is None else [next_ms])
    assert "orders" in chromium.text(), "the last known state stays"
    text = chromium.find(f"[data-stale={reason}]").text
    assert {429: "7 s", 500: "status 500"}.get(status, "") in text


def test_a_page_of_a_deleted_object_is_no_longer_refreshed(
    console: LocalConsole, chromium: Chromium
) -> None:
    assert console.ask("PUT", "/api/queues/%2F/short").status == 201
    chromium.open("/queues/%2F/short")
    chromium.run(RECORD)
    assert console.ask("DELETE", "/api/queues/%2F/short").status == 204
    chromium.wait(lambda: shown(chromium), "the warning")
    assert shown(chromium) == ["missing"]
    assert delays(chromium) == []


def test_a_page_with_a_wrong_parameter_is_refreshed(
    console: LocalConsole, chromium: Chromium
) -> None:
    chromium.open("/queues?name=[&use_regex=true")
    assert chromium.find(".error").text
    assert console.ask("PUT", "/api/queues/%2F/later").status == 201
    chromium.wait(lambda: "later" in chromium.text(), "the new queue")
    assert shown(chromium) == []


def test_a_page_whose_session_has_ended_leads_to_the_login(chromium: Chromium) -> None:
    """The last test of the module: the browser has no session afterwards."""
    chromium.open("/queues?name=orders")
    chromium.run(RECORD)
    chromium.driver.delete_all_cookies()
    chromium.wait(lambda: shown(chromium), "the warning")
    assert shown(chromium) == ["login"]
    assert delays(chromium) == []
    assert "orders" in chromium.text()
    chromium.press("[data-stale=login] a")
    chromium.wait(lambda: chromium.path == "/login", "the login")
    chromium.fill(username="guest", password="guest")
    chromium.press("form button")
    chromium.wait(lambda: chromium.path == "/queues", "the page of before")
    assert chromium.driver.current_url.endswith("/queues?name=orders")
