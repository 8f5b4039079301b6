# SPDX-License-Identifier: Apache-2.0
"""The audit log: each line is a JSON object with an action, its user and address, and its outcome.

::

    {"time": "2026-11-21T14:00:00.123Z", "what": "login", "allowed": false,
     "from": "10.0.0.7:51734", "mechanism": "PLAIN", "reason": "wrong password for user 'ada'"}
    {"time": …, "what": "queue.created", "allowed": true, "who": "ada", "from": …, "vhost": "/",
     "name": "orders", …}

:mod:`headrace.server.observe.audit_file` writes the lines. No line has a secret, or a value from
which a password can be guessed: :func:`as_fact` hides them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.gateway.security.audit import Audit
from headrace.model.events import SERVICES
from headrace.server.observe.audit_limit import AuditLimit
from headrace.server.observe.audited_events import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.events import Event, Events
    from headrace.server.observe.audit_file import AuditFile

TEXT_CHARACTERS_MAX = 1024  # Characters of a text in a line; longer ones are cut.
FACTS_MAX = 32  # Facts of a line, and items of a fact.
REFUSAL = "refused: the audit log cannot be written"
HIDDEN = "…"  # Replaces a secret.
# The names of secret facts at any depth, and passwords and tokens within texts.
_SECRET = re.compile(r"pass(word|phrase)?($|_)|secret|token$|credential|private", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^/\s@]*:[^\s@]*@")
_TOKEN = re.compile(r"\beyJ[\w-]+\.[\w-]*\.[\w-]*")


class AuditLog(Audit):
    """The audit log of a broker, which may change its file while the broker runs."""

    def __init__(self, events: Events | None = None, file: AuditFile | None = None) -> None:
        self._events = events
        self.file: AuditFile | None = None
        self._limit = AuditLimit()
        self.use(file)

    def use(self, file: AuditFile | None) -> None:
        """Write to ``file`` from now on, or nowhere; the caller closes the former file."""
        former, self.file = self.file, file
        self.active = file is not None
        if self._events is not None:
            self._events.refusal = None if file is None else self.refusal
        if self._events is not None and (former is None) != (file is None):
            if file is not None:
                self._events.add_listener(self.record_event)
            else:
                self._events.remove_listener(self.record_event)

    def refusal(self) -> str:
        return REFUSAL if self.file is not None and self.file.refuses else ""

    def reopen(self) -> None:
        """Reopen the file by its name, after it was renamed."""
        if self.file is not None:
            self.file.reopen()

    def rotate(self, keep: int) -> None:
        """Rename the file and begin a new one; keep ``keep`` old ones."""
        if self.file is not None:
            self.file.rotate(keep)

    def record(
        self,
        what: str,
        *,
        user: object = None,
        peer: object = None,
        allowed: bool = True,
        reason: str = "",
        **about: object,
    ) -> None:
        peer = peer if peer is not None else getattr(user, "peer", None)
        facts = {
            "who": None if user is None else getattr(user, "name", str(user)),
            "from": None if peer is None else str(peer),
            **about,
            "reason": reason or None,
        }
        self._put(what, allowed, facts)

    def record_event(self, event: Event) -> None:
        """Write a line for an event of the broker, unless the log leaves out its kind."""
        if event.kind in LEFT_OUT:
            return
        if str(event.facts.get("name", "")).startswith(SERVICES):
            return  # The broker declares its own objects at each start.
        actor: object = None if self._events is None else self._events.actor
        facts = dict(event.facts)
        who = facts.pop("user_who_performed_action", None)
        facts.pop("client_properties", None)  # Clients choose these freely.
        peer = getattr(actor, "peer", None)
        self._put(
            event.kind, True, {"who": who, "from": None if peer is None else str(peer), **facts}
        )

    def _put(self, what: str, allowed: bool, facts: dict[str, object]) -> None:
        if self.file is not None and self._limit.admits(what, allowed, facts):
            present = [(name, value) for name, value in facts.items() if value is not None]
            self.file.put(what, allowed, as_facts(dict(present[:FACTS_MAX])))

    def write_summaries(self, *, now: bool = False) -> None:
        """Write the counts of refusals that had no line of their own."""
        for summary in self._limit.take_summaries(now=now):
            if self.file is not None:
                self.file.put(summary.kind, False, summary.facts)

    def close(self) -> None:
        """Write the pending lines, for a moment at most, and close the file."""
        self.write_summaries(now=True)
        file = self.file
        self.use(None)
        if file is not None:
            file.close()


def as_fact(value: object) -> object:
    """Return a value as a JSON value, shortened and without secrets."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        text = _TOKEN.sub(HIDDEN, _LOGIN.sub(f"{HIDDEN}@", value))
        return text if len(text) <= TEXT_CHARACTERS_MAX else text[:TEXT_CHARACTERS_MAX] + "…"
    if isinstance(value, dict):
        return as_facts(value)
    if isinstance(value, list | tuple):
        return [as_fact(item) for item in value[:FACTS_MAX]]
    return as_fact(repr(value))


def as_facts(facts: Mapping[str, object]) -> dict[str, object]:
    """Return facts as a JSON object; a fact whose name says that it is a secret is hidden."""
    return {
        str(name)[:255]: HIDDEN if _SECRET.search(str(name)) else as_fact(facts[name])
        for name in list(facts)[:FACTS_MAX]
    }
