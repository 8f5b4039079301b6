# SPDX-License-Identifier: Apache-2.0
"""The errands of one virtual host: those under way, and what became of those that are over.

Whoever has an errand done may name it. Then it is done once, however often it is asked for: while
it is under way, to ask again is to wait for it; when it is over, the answer is what it did. That is
known as surely as the messages are where they are, for it is one of the facts of the errand's
transaction. ``KEPT_MAX`` of them are remembered, the latest. What came to nothing is not: asked for
again, it is tried again.

    fact    ``errand/<name>``: {"n", "at_ms", "what", "did"}; the highest ``n`` is the latest

An errand goes on while somebody is there for whom it is done; if all of them are gone before it is
decided, nothing comes of it.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, TypedDict

from headrace.model.errors import IllegalState, ModelError, ResourceError
from headrace.model.keyvalue import FACT_VALUE_MAX
from headrace.model.operations.move import CHOOSING, MESSAGES_MAX, Done

if TYPE_CHECKING:
    from headrace.model.host import Host
    from headrace.model.operations.move import Errand

log = logging.getLogger(__name__)

KEY = b"errand/"
NAME_OCTETS_MAX = 64  # Of an errand's name.
KEPT_MAX = 1000  # Named errands that are remembered.
FAILED_MAX = 100  # Errands that came to nothing and can be asked about, until the broker stops.
RUNNING_MAX = 16  # Errands at once.

DRY = "dry"  # What there is instead of a kept outcome when nothing was to be done.
FAILED = "failed"

What = Mapping[str, object]


def digest(what: What) -> str:
    """Return a text that only the same request has."""
    text = json.dumps(what, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Running:
    """An errand that is under way, or was."""

    def __init__(self, name: str, what: What, errand: Errand, dry: bool) -> None:
        self.name = name
        self.what = what
        self.errand = errand
        self.dry = dry
        self.watchers: set[int] = set()  # Numbers of the connections that it is done for.
        self.done: Done | None = None
        self.error: ModelError | None = None
        self.steps: Generator[None, None, Done] | None = None

    @property
    def over(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.done is not None or self.error is not None

    def answer(self) -> dict[str, object]:
        """Return what it did.

        Raises:
            ModelError: it came to nothing.
        """
        if self.error is not None:
            raise self.error
        assert self.done is not None
        return told(self.done)

    def describe(self) -> dict[str, object]:
        """Return how far it is, or what became of it."""
        told_so_far = {"id": self.name, **self.errand.progress()}
        if self.error is not None:
            return {**told_so_far, "state": FAILED, "error_text": self.error.text}
        if self.done is not None:
            return {**told_so_far, **told(self.done), "state": DRY if self.dry else "done"}
        return told_so_far


class _Remembered(TypedDict):
    """An errand that is done, as its fact has it."""

    n: int  # Errands are numbered in the order of their ends.
    at_ms: int
    of: dict[str, object]  # What was asked for, in short,
    what: str  # and a digest of all of it.
    did: dict[str, object]


class Errands:
    """See the module. Every method may raise what the model refuses."""

    def __init__(self, vhost: Host) -> None:
        self.vhost = vhost
        self.messages_max = MESSAGES_MAX
        self.is_open: Callable[[int], object] = lambda _: True  # Tells of a connection's number.
        self._running: dict[str, Running] = {}
        self._over: dict[str, Running] = {}  # Those that are not remembered otherwise.
        self._numbers: dict[str, int] | None = None  # Of those that are, the latest last.
        self._unnamed = 0

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Running]:
        """Give those that are under way."""
        return iter(list(self._running.values()))

    def find(self, name: str, what: What) -> Running | dict[str, object] | None:
        """Return an errand that is under way, or what it did; None when it is not known.

        Raises:
            IllegalState: the name is that of another errand.
        """
        running = self._running.get(name)
        if running is not None:
            self._check_same(name, digest(running.what), what)
            return running
        kept = self._kept(name)
        if kept is None:
            return None
        self._check_same(name, kept["what"], what)
        return kept["did"]

    def begin(
        self, name: str, what: What, errand: Errand, watcher: int, *, dry: bool = False
    ) -> Running:
        """Have an errand done; without a name it is not remembered.

        Raises:
            ResourceError: too many are under way.
        """
        if len(self._running) >= RUNNING_MAX:
            raise ResourceError(f"{RUNNING_MAX} errands are under way already")
        if not name:
            self._unnamed += 1
        running = Running(name, what, errand, dry)
        running.watchers.add(watcher)
        key = name or f"\0{self._unnamed}"
        remember = None if dry or not name else self._remembering(running)
        running.steps = errand.run(remember)
        self._running[key] = running
        self._over.pop(name, None)
        vhost = self.vhost

        def go_on(now_ms: int) -> int:
            return now_ms + 1 if self._step(key, running) else 0

        vhost.scheduler.put(("errand", self, key), vhost.counters.now_ms, go_on)
        return running

    def describe(self, name: str) -> tuple[What, dict[str, object]] | None:
        """Return what was asked for under a name, and how far that is; None when it is unknown."""
        running = self._running.get(name) or self._over.get(name)
        if running is not None:
            return running.what, running.describe()
        kept = self._kept(name)
        if kept is None:
            return None
        return kept["of"], {"id": name, **kept["did"], "state": "done", "at_ms": kept["at_ms"]}

    def cancel(self, name: str) -> None:
        """Let nothing come of an errand that is under way, unless it is decided already."""
        running = self._running.get(name)
        if running is not None:
            running.errand.cancel("the errand was cancelled")

    def close(self) -> None:
        """The broker stops: nothing comes of what is not decided."""
        for key, running in list(self._running.items()):
            self.vhost.scheduler.remove(("errand", self, key))
            if running.steps is not None:
                running.steps.close()
        self._running.clear()

    # --- Inside -------------------------------------------------------------------------------

    def _step(self, key: str, running: Running) -> bool:
        """Do the next slice; false when that was the last."""
        errand, steps = running.errand, running.steps
        assert steps is not None
        if errand.state == CHOOSING and not any(map(self.is_open, running.watchers)):
            errand.cancel("nobody waits for the errand any more")
        try:
            next(steps)
        except StopIteration as end:
            running.done = end.value
        except ModelError as error:
            running.error = error
        except Exception:
            log.exception("an errand failed")
            running.error = IllegalState("internal error; see the broker's log")
        else:
            return True
        running.steps = None
        del self._running[key]
        if running.name and (running.dry or running.error is not None):
            self._over[running.name] = running
            while len(self._over) > FAILED_MAX:
                del self._over[next(iter(self._over))]
        return False

    def _remembering(self, running: Running) -> Callable[[Done], dict[bytes, bytes | None]]:
        """Return what makes the facts of an errand that is about to be decided."""

        def remember(done: Done) -> dict[bytes, bytes | None]:
            numbers = self._all()
            number = 1 + next(reversed(numbers.values()), 0)
            what = {name: running.what.get(name) for name in ("do", "from", "to")}
            known: _Remembered = {
                "n": number,
                "at_ms": self.vhost.counters.now_ms,
                "of": what,
                "what": digest(running.what),
                "did": told(done),
            }
            value = json.dumps(known, separators=(",", ":")).encode()
            if len(value) > FACT_VALUE_MAX:
                known["did"] = told(done._replace(to={}, skipped={}))
                value = json.dumps(known, separators=(",", ":")).encode()
            key = KEY + running.name.encode()
            self.vhost.facts.check(key, value)
            facts: dict[bytes, bytes | None] = {}
            while len(numbers) >= KEPT_MAX:
                oldest = next(iter(numbers))
                del numbers[oldest]
                facts[KEY + oldest.encode()] = None
            facts[key] = value
            numbers[running.name] = number
            return facts

        return remember

    def _all(self) -> dict[str, int]:
        """Return the numbers of what is remembered, in order."""
        if self._numbers is None:
            found = {
                key[len(KEY) :].decode(): int(json.loads(value)["n"])
                for key, value in self.vhost.facts.items(KEY)
            }
            self._numbers = dict(sorted(found.items(), key=lambda item: item[1]))
        return self._numbers

    def _kept(self, name: str) -> _Remembered | None:
        raw = self.vhost.facts.get(KEY + name.encode()) if name else None
        if raw is None:
            return None
        kept: _Remembered = json.loads(raw)
        return kept

    def _check_same(self, name: str, known: str, what: What) -> None:
        if known != digest(what):
            raise IllegalState(
                f"errand '{name}' was another one: what is to be done differs from what was asked "
                "for under that name"
            )


def told(done: Done) -> dict[str, object]:
    """Return what an errand did, as it is told."""
    return {**done._asdict(), "complete": done.complete}
