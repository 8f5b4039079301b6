# SPDX-License-Identifier: Apache-2.0
"""The jobs of one virtual host: the running jobs, and the results of finished ones.

A named job runs once, however often it is requested. While it runs, a repeated request waits for
it; afterwards a repeated request gets the result. The result is a fact that the job's transaction
changes, so that it exists exactly if the messages have moved. The latest ``KEPT_MAX`` results are
stored. A failed job has no result: a repeated request starts it again.

    fact    ``errand/<name>``: {"n", "at_ms", "what", "did"}; the highest ``n`` is the latest

A job runs while a connection waits for it. If all of them close before the decision, the job is
undone.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, TypedDict

from headrace.model.errors import IllegalState, ModelError, ResourceError
from headrace.model.keyvalue import FACT_VALUE_MAX
from headrace.model.operations.message_job import CHOOSING, MESSAGES_MAX, MoveResult

if TYPE_CHECKING:
    from headrace.model.host import Host
    from headrace.model.operations.message_job import Job

log = logging.getLogger(__name__)

KEY = b"errand/"
NAME_BYTES_MAX = 64  # Bytes of a job's name.
KEPT_MAX = 1000  # The most stored results.
FAILED_MAX = 100  # The most failed jobs in memory, for operators.
RUNNING_MAX = 16  # The most jobs that run at once.

OPERATOR = 0  # A watcher without a connection: the job runs until it is cancelled.
DRY = "dry"  # State of a job that was a dry run.
FAILED = "failed"

JobRequest = Mapping[str, object]


def request_digest(request: JobRequest) -> str:
    """Return a text that identifies a request."""
    text = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class JobRun:
    """A job that runs or has finished, kept by name so that its request can be repeated."""

    def __init__(self, name: str, request: JobRequest, job: Job, dry: bool) -> None:
        self.name = name
        self.request = request
        self.job = job
        self.dry = dry
        self.watchers: set[int] = set()  # Numbers of the connections that wait for the job.
        self.result: MoveResult | None = None
        self.error: ModelError | None = None
        self.steps: Generator[None, None, MoveResult] | None = None

    @property
    def is_finished(self) -> bool:
        """True if the job has a result or an error."""
        return self.result is not None or self.error is not None

    def answer(self) -> dict[str, object]:
        """Return the result.

        Raises:
            ModelError: the job failed.
        """
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return result_fields(self.result)

    def describe(self) -> dict[str, object]:
        """Return the progress, or the result."""
        progress = {"id": self.name, **self.job.progress()}
        if self.error is not None:
            return {**progress, "state": FAILED, "error_text": self.error.text}
        if self.result is not None:
            return {**progress, **result_fields(self.result), "state": DRY if self.dry else "done"}
        return progress


class _JobFact(TypedDict):
    """The fact with the result of a job, by the names of the stored JSON."""

    n: int  # Increases with each finished job.
    at_ms: int
    of: dict[str, object]  # The request in short.
    what: str  # The digest of the request.
    did: dict[str, object]


class Jobs:
    """The jobs of one virtual host; methods may raise any error of the model."""

    def __init__(self, vhost: Host) -> None:
        self.vhost = vhost
        self.messages_max = MESSAGES_MAX
        # Returns True if the connection of that number is open.
        self.is_open: Callable[[int], object] = lambda _: True
        self._running: dict[str, JobRun] = {}
        self._finished: dict[str, JobRun] = {}  # Finished jobs without a fact.
        self._numbers: dict[str, int] | None = None  # Numbers of facts by name, the latest last.
        self._unnamed = 0

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[JobRun]:
        """Iterate over the running jobs."""
        return iter(list(self._running.values()))

    def find(self, name: str, request: JobRequest) -> JobRun | dict[str, object] | None:
        """Return a running job, or a result; None if the name is unknown.

        Raises:
            IllegalState: another job has the name.
        """
        run = self._running.get(name)
        if run is not None:
            self._check_same(name, request_digest(run.request), request)
            return run
        kept = self._load_fact(name)
        if kept is None:
            return None
        self._check_same(name, kept["what"], request)
        return kept["did"]

    def begin(
        self, name: str, request: JobRequest, job: Job, watcher: int, *, dry: bool = False
    ) -> JobRun:
        """Start a job; without a name its result is not stored.

        Raises:
            ResourceError: too many jobs are running.
        """
        if len(self._running) >= RUNNING_MAX:
            raise ResourceError(f"{RUNNING_MAX} jobs are running already")
        if not name:
            self._unnamed += 1
        run = JobRun(name, request, job, dry)
        run.watchers.add(watcher)
        key = name or f"\0{self._unnamed}"
        remember = None if dry or not name else self._make_remember(run)
        run.steps = job.run(remember)
        self._running[key] = run
        self._finished.pop(name, None)
        vhost = self.vhost

        def run_step(now_ms: int) -> int:
            return now_ms + 1 if self._step(key, run) else 0

        vhost.scheduler.put(("job", self, key), vhost.counters.now_ms, run_step)
        return run

    def describe(self, name: str) -> tuple[JobRequest, dict[str, object]] | None:
        """Return the request under a name and its progress; None if it is unknown."""
        run = self._running.get(name) or self._finished.get(name)
        if run is not None:
            return run.request, run.describe()
        kept = self._load_fact(name)
        if kept is None:
            return None
        return kept["of"], {"id": name, **kept["did"], "state": "done", "at_ms": kept["at_ms"]}

    def cancel(self, name: str) -> None:
        """Cancel a running job, unless it is decided."""
        run = self._running.get(name)
        if run is not None:
            run.job.cancel("the job was cancelled")

    def close(self) -> None:
        """Undo the jobs that are not decided, before the broker stops."""
        for key, run in list(self._running.items()):
            self.vhost.scheduler.remove(("job", self, key))
            if run.steps is not None:
                run.steps.close()
        self._running.clear()

    # --- Inside -------------------------------------------------------------------------------

    def _step(self, key: str, run: JobRun) -> bool:
        """Run the next slice of a job; return False if it was the last."""
        job, steps = run.job, run.steps
        assert steps is not None
        watchers = run.watchers
        if (
            job.state == CHOOSING
            and OPERATOR not in watchers
            and not any(map(self.is_open, watchers))
        ):
            job.cancel("no client waits for the job any more")
        try:
            next(steps)
        except StopIteration as end:
            run.result = end.value
        except ModelError as error:
            run.error = error
        except Exception:
            log.exception("a job failed")
            run.error = IllegalState("internal error; see the broker's log")
        else:
            return True
        run.steps = None
        del self._running[key]
        if run.name and (run.dry or run.error is not None):
            self._finished[run.name] = run
            while len(self._finished) > FAILED_MAX:
                del self._finished[next(iter(self._finished))]
        return False

    def _make_remember(self, run: JobRun) -> Callable[[MoveResult], dict[bytes, bytes | None]]:
        """Return the function that makes the facts of a job's decision."""

        def remember(result: MoveResult) -> dict[bytes, bytes | None]:
            numbers = self._result_numbers()
            number = 1 + next(reversed(numbers.values()), 0)
            short = {name: run.request.get(name) for name in ("do", "from", "to")}
            fact: _JobFact = {
                "n": number,
                "at_ms": self.vhost.counters.now_ms,
                "of": short,
                "what": request_digest(run.request),
                "did": result_fields(result),
            }
            value = json.dumps(fact, separators=(",", ":")).encode()
            if len(value) > FACT_VALUE_MAX:
                fact["did"] = result_fields(result._replace(to={}, skipped={}))
                value = json.dumps(fact, separators=(",", ":")).encode()
            key = KEY + run.name.encode()
            self.vhost.facts.check(key, value)
            facts: dict[bytes, bytes | None] = {}
            while len(numbers) >= KEPT_MAX:
                oldest = next(iter(numbers))
                del numbers[oldest]
                facts[KEY + oldest.encode()] = None
            facts[key] = value
            numbers[run.name] = number
            return facts

        return remember

    def _result_numbers(self) -> dict[str, int]:
        """Return the numbers of the stored results by name, in order."""
        if self._numbers is None:
            numbers = {
                key[len(KEY) :].decode(): int(json.loads(value)["n"])
                for key, value in self.vhost.facts.items(KEY)
            }
            self._numbers = dict(sorted(numbers.items(), key=lambda item: item[1]))
        return self._numbers

    def _load_fact(self, name: str) -> _JobFact | None:
        raw = self.vhost.facts.get(KEY + name.encode()) if name else None
        if raw is None:
            return None
        fact: _JobFact = json.loads(raw)
        return fact

    def _check_same(self, name: str, known_digest: str, request: JobRequest) -> None:
        if known_digest != request_digest(request):
            raise IllegalState(f"job '{name}' exists and is a different one: use another name")


def result_fields(result: MoveResult) -> dict[str, object]:
    """Return the fields of a job's result for the client."""
    return {**result._asdict(), "complete": result.complete}
