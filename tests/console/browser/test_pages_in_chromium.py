# SPDX-License-Identifier: Apache-2.0
"""Every page in a real browser: no error, WCAG AA, at three widths, in light and dark."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from selenium.webdriver.common.keys import Keys

from headrace.console.http.routes import NOBODY
from headrace.console.pages.routes import ROUTES
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
# Charts are numbers, and a job is over before its page could be opened.
SEEN = re.compile(r"^/(assets|charts|logout|jobs/)")
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
    if template.startswith("/consumers"):
        (consumer, *_) = console.get("/api/consumers")
        values["channel"] = quote(consumer["channel_details"]["name"], safe="")
        values["tag"] = quote(consumer["consumer_tag"], safe="")
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
    chromium.look(360)
    chromium.open(path)
    assert chromium.all("h1"), chromium.driver.page_source[:500]
    for theme in ("light", "dark"):
        for width in (360, 768, 1440):
            chromium.look(width, theme)
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


def test_what_is_typed_into_a_filter_stays_at_a_refresh(
    console: LocalConsole, chromium: Chromium
) -> None:
    chromium.look(1440)
    chromium.open("/exchanges/%2F/amq.topic")
    field = chromium.find("#has-1")
    field.send_keys("half a wo")
    chromium.run("document.activeElement.blur()")
    body = {"routing_key": "of the refresh"}
    answer = console.ask("POST", "/api/bindings/%2F/e/amq.topic/q/many.01", body)
    assert answer.status == 201
    chromium.wait(lambda: "of the refresh" in chromium.text(), "the new binding")
    assert field.get_attribute("value") == "half a wo"
    binding = "/api/bindings/%2F/e/amq.topic/q/many.01/of%20the%20refresh"
    assert console.ask("DELETE", binding).status == 204
    chromium.check()


def test_dead_letters_have_groups_and_hours_on_a_phone(
    console: LocalConsole, chromium: Chromium
) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "many.40"}
    assert console.ask("PUT", "/api/queues/%2F/mortal", {"arguments": arguments}).status == 201
    body = {"properties": {}, "routing_key": "mortal", "payload": "p", "payload_encoding": "string"}
    assert console.ask("POST", "/api/exchanges/%2F/amq.default/publish", body).status == 200
    wanted = {"count": 1, "ackmode": "reject_requeue_false", "encoding": "auto"}
    assert console.ask("POST", "/api/queues/%2F/mortal/get", wanted).status == 200
    chromium.look(360)
    chromium.open("/queues/%2F/many.40/dead-letters")
    assert chromium.all("#part-1 a")
    assert chromium.all("#part-2 meter")
    assert chromium.overflow() <= 0
    assert chromium.axe() == []
    chromium.press("#part-1 a[href*='/job']")
    chromium.wait(lambda: chromium.path == "/queues/%2F/many.40/job", "the job's form")
    chromium.check()
    assert console.ask("DELETE", "/api/queues/%2F/many.40/contents").status == 204
    assert console.ask("DELETE", "/api/queues/%2F/mortal").status == 204


def test_times_are_local_and_exact_in_their_title(chromium: Chromium) -> None:
    chromium.command("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    chromium.open("/pipelines")
    (time, *_) = chromium.all("#rows time")
    exact = time.get_attribute("title")
    assert exact is not None
    assert exact == time.get_attribute("datetime")
    local = datetime.fromisoformat(exact).astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert time.text == local.strftime("%Y-%m-%d %H:%M:%S")
    chromium.command("Emulation.setTimezoneOverride", timezoneId="")
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


def test_a_line_of_a_chart_is_told_by_its_colour(chromium: Chromium) -> None:
    chromium.look(1440)
    chromium.open("/")
    marks = ".chart[data-chart='/charts/totals/messages'] .values i"
    chromium.wait(lambda: len(chromium.all(marks)) == 2, "a mark for each line")
    colours = {one.value_of_css_property("border-top-color") for one in chromium.all(marks)}
    assert len(colours) == 2
    chromium.check()


def test_charts_of_a_group_are_drawn(console: LocalConsole, chromium: Chromium) -> None:
    (*_, group) = console.get("/api/headrace/groups")
    chromium.look(1440)
    names = (quote(group[name], safe="") for name in ("vhost", "stream", "group"))
    chromium.open(f"/groups/{'/'.join(names)}")
    chromium.wait(lambda: len(chromium.all(".chart canvas")) == 5, "the charts")
    chromium.wait(lambda: f"lag {group['lag']}" in chromium.text(), "the number beside the chart")
    assert chromium.axe() == []
    chromium.check()


def test_rows_are_cards_on_a_phone(chromium: Chromium) -> None:
    chromium.look(360)
    chromium.open("/queues?name=many.01")
    (row,) = chromium.all("#rows tbody tr")
    assert row.text.startswith("many.01")
    ready = chromium.find("#rows td[data-label='Ready']")
    place = ready.rect
    assert place["x"] + place["width"] <= 360, "it is seen without scrolling"
    assert not chromium.find("#rows td[data-label='Policy']").is_displayed()
    chromium.press("#rows th:nth-child(4) a")
    chromium.wait(lambda: "sort=messages_ready" in chromium.driver.current_url, "the order")
    chromium.check()


def test_charts_follow_the_theme_of_the_system(chromium: Chromium) -> None:
    chromium.look(1440)
    chromium.open("/")
    mark = ".chart[data-chart='/charts/totals/messages'] .values i"

    def colour() -> str:
        return str(chromium.find(mark).value_of_css_property("border-top-color"))

    chromium.wait(lambda: chromium.all(mark), "the chart")
    light = colour()
    chromium.look(1440, "dark")
    chromium.wait(lambda: colour() != light, "the chart of the night")
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
    """The session goes on, since the broker keeps its tickets; nobody logs in again."""
    chromium.look(1440)
    chromium.open("/queues?name=many.0")
    console.broker.stop()
    warning = "[data-stale=broker]"
    chromium.wait(lambda: chromium.find(warning).is_displayed(), "the warning")
    assert not chromium.find("[data-stale=console]").is_displayed()
    console.broker.start()
    chromium.wait(lambda: not chromium.find(warning).is_displayed(), "the page of before")
    assert chromium.path == "/queues"
    assert "many.00" in chromium.text()
