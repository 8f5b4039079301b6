# SPDX-License-Identifier: Apache-2.0
"""Requests with the cookie of a session, as a browser without scripts sends them."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from support.console import HttpAnswer, LocalConsole

OWN = {"Sec-Fetch-Site": "same-origin"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


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

    def send(self, path: str, *cleared: str, **fields: str) -> HttpAnswer:
        """Send the form of a page as it is, with some fields changed, and boxes cleared."""
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
