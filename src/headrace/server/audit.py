# SPDX-License-Identifier: Apache-2.0
"""The audit log: one JSON object a line, of who did what, from where, and whether it was allowed.

::

    {"time": "2026-11-21T14:00:00.123Z", "what": "login", "allowed": false,
     "from": "10.0.0.7:51734", "mechanism": "PLAIN", "reason": "wrong password for user 'ada'"}
    {"time": …, "what": "queue.created", "allowed": true, "who": "ada", "from": …, "vhost": "/",
     "name": "orders", …}

Lines are written by a thread. So many may wait for it; when it does not keep up, further lines are
lost, and the next one that is written says how many: a slow disk must not stop the broker. The file
is renamed to ``….1`` when it is large enough, those before it one further; the oldest is removed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import queue
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.gateway.audit import Audit
from headrace.model.events import SERVICES
from headrace.server.audited import LEFT_OUT
from headrace.server.logs import shift

if TYPE_CHECKING:
    from headrace.model.events import Event, Events

log = logging.getLogger(__name__)

LINES_MAX = 8192  # That may wait to be written.
SIZE_MAX = 128 << 20  # Octets of the file before it is renamed,
KEPT = 16  # and of how many that were renamed the oldest is removed.
TEXT_CHARACTERS_MAX = 1024  # Of one fact.
FACTS_MAX = 32  # Of one line.


class AuditLog(Audit):
    """Writes the audit log."""

    active = True

    def __init__(
        self,
        path: Path,
        events: Events | None = None,
        *,
        size_max: int = SIZE_MAX,
        keep: int = KEPT,
    ) -> None:
        """Open the file, which only the broker's system user may read.

        It is renamed when it has ``size_max`` octets; 0: never.

        Raises:
            OSError: it cannot be written.
        """
        self._path = path
        self._events = events
        self._size_max = size_max
        self._keep = keep
        self._rotates = 0  # How many renamed ones an operator wants kept, while that is to be done.
        self._lines: queue.Queue[bytes | None] = queue.Queue(LINES_MAX)
        self._lost = 0
        self._failing = False
        self._reopens = False
        self._file = self._open()
        self._size = os.fstat(self._file).st_size
        self._thread = threading.Thread(target=self._write, name="headrace-audit", daemon=True)
        self._thread.start()
        if events is not None:
            events.listen(self.heard)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    # --- Telling --------------------------------------------------------------------------------

    def tell(
        self,
        what: str,
        *,
        user: Any = None,
        peer: Any = None,
        allowed: bool = True,
        reason: str = "",
        **about: Any,
    ) -> None:
        peer = peer if peer is not None else getattr(user, "peer", None)
        facts = {
            "who": None if user is None else getattr(user, "name", str(user)),
            "from": None if peer is None else str(peer),
            **about,
            "reason": reason or None,
        }
        self._put(what, allowed, facts)

    def heard(self, event: Event) -> None:
        """An event of the broker: somebody did something."""
        if event.kind in LEFT_OUT:
            return
        if str(event.facts.get("name", "")).startswith(SERVICES):
            return  # The broker's own, whenever it starts.
        actor: Any = None if self._events is None else self._events.actor
        facts = dict(event.facts)
        who = facts.pop("user_who_performed_action", None)
        facts.pop("client_properties", None)  # What a client says of itself may be anything.
        peer = getattr(actor, "peer", None)
        self._put(
            event.kind, True, {"who": who, "from": None if peer is None else str(peer), **facts}
        )

    def _put(self, what: str, allowed: bool, facts: dict[str, Any]) -> None:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        line = {"time": now.replace("+00:00", "Z"), "what": what, "allowed": allowed}
        known = ((name, value) for name, value in facts.items() if value is not None)
        for name, value in list(known)[:FACTS_MAX]:
            line[name] = plain(value)
        lost = self._lost
        if lost:
            line["lost_before"] = lost
        try:
            self._lines.put_nowait(json.dumps(line).encode() + b"\n")
        except queue.Full:
            self._lost += 1
        else:
            self._lost -= lost

    # --- Writing --------------------------------------------------------------------------------

    def reopen(self) -> None:
        """Go on in a new file, after the old one was moved away; the thread does it."""
        self._reopens = True
        with contextlib.suppress(queue.Full):  # It is busy enough to look soon.
            self._lines.put_nowait(b"")

    def rotate(self, keep: int) -> None:
        """Rename the file now, and keep so many renamed ones; the thread does it."""
        self._rotates = keep
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(b"")

    def close(self) -> None:
        """Write what waits, for a second at most, and close the file."""
        if self._events is not None:
            self._events.ignore(self.heard)
        self.active = False
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=1.0)
        self._thread.join(timeout=1.0)

    def _write(self) -> None:
        going = True
        while going:
            pieces = [self._lines.get()]
            with contextlib.suppress(queue.Empty):
                while len(pieces) < LINES_MAX:
                    pieces.append(self._lines.get_nowait())
            if self._reopens:
                self._reopens = False
                self._replace()
            going = None not in pieces
            octets = b"".join(filter(None, pieces))
            if self._rotates:
                keep, self._rotates = self._rotates, 0
                self._rotate(keep)
            elif self._size_max and self._size and self._size + len(octets) > self._size_max:
                self._rotate(self._keep)
            self._append(octets)
        os.close(self._file)

    def _rotate(self, keep: int) -> None:
        try:
            shift(self._path, keep)
        except OSError as error:
            log.error("the audit log cannot be renamed: %s", error.strerror or error)
            return
        self._replace()

    def _replace(self) -> None:
        try:
            fresh = self._open()
        except OSError as error:
            log.error("the audit log cannot be opened again: %s", error.strerror or error)
            return
        os.close(self._file)
        self._file = fresh
        self._size = os.fstat(fresh).st_size

    def _append(self, octets: bytes) -> None:
        try:
            while octets:
                written = os.write(self._file, octets)
                self._size += written
                octets = octets[written:]
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.error("the audit log cannot be written: %s", error.strerror or error)
            self._failing = True
            self._lost += octets.count(b"\n")


def plain(value: Any) -> Any:
    """A fact as JSON has it, and no longer than it need be."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= TEXT_CHARACTERS_MAX else value[:TEXT_CHARACTERS_MAX] + "…"
    if isinstance(value, dict):
        return {str(name)[:255]: plain(value[name]) for name in list(value)[:FACTS_MAX]}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value[:FACTS_MAX]]
    return repr(value)[:TEXT_CHARACTERS_MAX]
