# SPDX-License-Identifier: Apache-2.0
"""Requests with the cookie of a session, as a browser without scripts sends them."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.console import HttpAnswer, LocalConsole

OWN = {"Sec-Fetch-Site": "same-origin"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}

LINK = re.compile(r'<a\s[^>]*?href="([^"]*)"')


def is_page(answer: HttpAnswer) -> bool:
    """Return True if an answer is a page, not a file or an answer of the API."""
    return answer.headers["Content-Type"].startswith("text/html")


class Browser:
    """A user who has logged in."""

    def __init__(self, console: LocalConsole, username: str = "guest", password: str = "guest"):
        self.console = console
        form = urlencode({"username": username, "password": password, "next": "/queues"})
        answer = console.ask("POST", "/login", form.encode(), user=None, headers=FORM | OWN)
        assert answer.status == 303, answer.body
        self.headers = {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}

    def get(self, path: str) -> HttpAnswer:
        """Return the answer to a GET."""
        return self.console.ask("GET", path, user=None, headers=self.headers)

    def text(self, path: str) -> str:
        """Return a page."""
        answer = self.get(path)
        assert answer.status == 200, (path, answer.status, answer.body[-2000:])
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        return answer.body.decode()

    def walk(self, most: int) -> Iterator[tuple[str, HttpAnswer]]:
        """Follow links from the first page; yield the address and the answer of each.

        Pages whose addresses differ only in names are of one kind; of each, ``most`` are visited.
        """
        pending, visited = ["/"], set[str]()
        kinds: dict[str, int] = {}
        while pending:
            address = pending.pop()
            _, first, *others = f"{address.partition('?')[0]}/".split("/")
            kind = f"{first} {len(others)} {'' if len(others) < 4 else others[-2]}"
            if address in visited or kinds.get(kind, 0) >= most or not address.startswith("/"):
                continue
            kinds[kind] = kinds.get(kind, 0) + 1
            visited.add(address)
            answer = self.get(address)
            yield address, answer
            if is_page(answer):
                links = map(unescape, LINK.findall(answer.body.decode()))
                pending += [link for link in links if "page_size" not in link]

    def send(self, path: str, *cleared: str, **fields: str) -> HttpAnswer:
        """Send the form of a page with some fields changed and some boxes cleared."""
        form = {**fields_of(self.get(path).body.decode()), **fields}
        for name in cleared:
            form.pop(name, None)
        headers = self.headers | FORM | OWN
        return self.console.ask("POST", path, urlencode(form).encode(), user=None, headers=headers)


def fields_of(html: str) -> dict[str, str]:
    """Return the hidden fields and the checked boxes of the form for an action."""
    form = html.partition('class="card"')[2].partition("</form>")[0]
    hidden = re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form)
    checked = re.findall(r'type="checkbox" name="([^"]+)" value="([^"]*)" checked', form)
    return {name: unescape(value) for name, value in hidden + checked}
