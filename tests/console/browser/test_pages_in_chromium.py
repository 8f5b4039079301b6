# SPDX-License-Identifier: Apache-2.0
"""Every page in a real browser: no error, WCAG AA, at three widths, in light and dark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from selenium.webdriver.common.keys import Keys

from headrace.console.http.routes import NOBODY
from headrace.console.pages.table import ROUTES
from support.console_objects import HOSTILE

if TYPE_CHECKING:
    from support.browser import Chromium
    from support.console import LocalConsole

VALUES = {
    "vhost": "%2F",
    "queue": "many.01",
    "exchange": "amq.topic",
    "source": "amq.topic",
    "kind": "q",
    "destination": quote(HOSTILE[0], safe=""),
    "properties_key": "",
    "user": "guest",
    "component": "none",
    "stream": "events",
    "group": "none",
    "xid": "none",
    "position": "1",
    "id": "none",
    "pipeline": "orders",
}
# Charts are numbers, and an errand is over before its page could be opened.
SEEN = re.compile(r"^/(assets|charts|logout|errands/)")
PAGES = sorted(
    {
        one.path
        for one in ROUTES
        if one.method == "GET" and one.tag != NOBODY and not SEEN.match(one.path)
    }
)


def path_of(console: LocalConsole, template: str) -> str:
    """Return a path of a page that shows an object."""
    values = dict(VALUES)
    (row, *_) = console.get("/api/connections")
    (channel, *_) = console.get("/api/channels")
    values["channel"] = quote(channel["name"], safe="")
    names = {"connections": quote(row["name"], safe=""), "policies": quote(HOSTILE[0], safe=""),
             "operator-policies": "short", "vhost-limits": "max-queues",
             "user-limits": "max-channels"}  # fmt: skip
    values["name"] = names.get(template.split("/")[1], "none")
    bindings = console.get(f"/api/bindings/%2F/e/amq.topic/q/{VALUES['destination']}")
    values["properties_key"] = quote(bindings[0]["properties_key"], safe="")
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], template)


@pytest.mark.parametrize("template", PAGES)
def test_every_page_at_every_width_in_both_themes(
    console: LocalConsole, chromium: Chromium, template: str
) -> None:
    path = path_of(console, template)
    for theme in ("light", "dark"):
        for width in (360, 768, 1440):
            chromium.look(width, theme)
            if width == 360:
                chromium.open(path)
                assert chromium.all("h1"), chromium.driver.page_source[:500]
            assert chromium.overflow() <= 0, (path, width)
            if width == 360 or (width, theme) == (1440, "light"):  # Colours are those of the theme.
                assert chromium.axe() == [], (path, width, theme)
    chromium.check()


def test_hostile_names_are_text(chromium: Chromium) -> None:
    chromium.look(1440)
    for path in (
        "/queues",
        "/exchanges",
        "/bindings",
        "/vhosts",
        "/users",
        "/policies",
        "/consumers",
    ):
        chromium.open(path)
        assert "<script>alert(1)</script>" in chromium.text(), path
        assert not chromium.all("main script, main img:not([alt=''])"), path
    chromium.open("/bindings?page_size=200")
    assert "\\u202e" in chromium.text()
    chromium.check()


def test_a_list_is_refreshed_and_its_rows_keep_their_place(
    console: LocalConsole, chromium: Chromium
) -> None:
    chromium.look(1440)
    chromium.open("/queues?name=many.0")
    row = chromium.find("#rows tbody tr:nth-child(3)")
    before = row.get_attribute("id")
    assert console.ask("PUT", "/api/queues/%2F/many.000").status == 201
    chromium.wait(lambda: "many.000" in chromium.text(), "the new queue")
    assert row.get_attribute("id") == before, "the element is the same object's"
    assert row.text.startswith("many.02"), "it moved down by one"
    assert console.ask("DELETE", "/api/queues/%2F/many.000").status == 204
    chromium.check()


def test_the_keyboard_is_enough(chromium: Chromium) -> None:
    chromium.look(1440)
    chromium.open("/queues")
    chromium.find("body").send_keys("/")
    assert chromium.run("return document.activeElement.name") == "name"
    chromium.driver.switch_to.active_element.send_keys("many.5", Keys.ENTER)
    chromium.wait(lambda: "name=many.5" in chromium.driver.current_url, "the filter")
    assert len(chromium.all("#rows tbody tr")) == 10
    chromium.open("/")
    chromium.find("body").send_keys(Keys.TAB)
    assert chromium.run("return document.activeElement.className") == "skip"


def test_a_queue_is_declared_published_to_and_deleted(chromium: Chromium) -> None:
    chromium.look(360)
    chromium.open("/queues/new")
    chromium.fill(name="by hand")
    chromium.press("form.card button")
    chromium.wait(lambda: chromium.path == "/queues/%2F/by%20hand", "the queue's page")
    assert "Queue by hand is declared." in chromium.text()
    chromium.open("/queues/%2F/by%20hand/publish")
    chromium.fill(payload="hello")
    chromium.press("form.card button")
    chromium.wait(lambda: chromium.path == "/queues/%2F/by%20hand", "the queue's page")
    chromium.open("/queues/%2F/by%20hand/delete")
    assert "1 ready" in chromium.text()
    assert "headrace delete queue 'by hand'" in chromium.text()
    chromium.fill(confirmation="wrong")
    chromium.press("form.card button")
    chromium.wait(lambda: "nothing was changed" in chromium.text(), "the refusal")
    chromium.fill(confirmation="by hand")
    chromium.press("form.card button")
    chromium.wait(lambda: chromium.path == "/queues", "the list")
    chromium.driver.get_log("browser")  # A refusal is an answer of 400, which Chromium notes.


def test_charts_are_drawn_and_change_their_span(chromium: Chromium) -> None:
    chromium.look(1440)
    chromium.open("/")
    chromium.wait(lambda: len(chromium.all(".chart canvas")) >= 6, "the charts")
    chromium.wait(lambda: "ready 5" in chromium.text(), "the numbers beside the chart")
    chromium.press(".chart [data-span='1d']")
    pressed = chromium.find(".chart [data-span='1d']")
    chromium.wait(lambda: pressed.get_attribute("aria-pressed") == "true", "the span")
    chromium.check()


def test_the_theme_is_kept(chromium: Chromium) -> None:
    chromium.look(1440)
    chromium.open("/")
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = chromium.run(ground)
    chromium.press("[data-theme-switch]")
    dark = chromium.run(ground)
    assert dark != light
    chromium.open("/queues")
    chromium.wait(lambda: chromium.run(ground) == dark, "the theme")
    chromium.run("localStorage.clear()")


def test_a_broker_that_restarts_is_told_and_comes_back(
    console: LocalConsole, chromium: Chromium
) -> None:
    """Tickets end with the broker, so the page leads to the login and back."""
    chromium.look(1440)
    chromium.open("/queues?name=many.0")
    console.broker.stop()
    chromium.wait(lambda: chromium.find("[data-stale]").is_displayed(), "the warning")
    console.broker.start()
    chromium.wait(lambda: chromium.path == "/login", "the login")
    chromium.fill(username="guest", password="guest")
    chromium.press("form button")
    chromium.wait(lambda: "name=many.0" in chromium.driver.current_url, "the page of before")
    assert "many.00" in chromium.text()
