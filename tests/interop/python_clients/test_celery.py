# SPDX-License-Identifier: Apache-2.0
"""Real Celery workers: tasks, results over rpc://, ETA, retries, chords, remote control, events."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.brokers.broker_process import until
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from celery import Celery

HERE = Path(__file__).parent


class Worker:
    """`celery worker` as a child process, and the same application on this side."""

    def __init__(self, broker_url: str, results: str, home: Path) -> None:
        self.queue = f"celery-{uuid.uuid4().hex[:8]}"
        self.name = f"worker@{self.queue}"
        self.log_path = home / "worker.log"
        self.environment = {
            "INTEROP_BROKER": broker_url,
            "INTEROP_RESULTS": results,
            "INTEROP_QUEUE": self.queue,
        }
        self.program: Any = self._load()
        self.app: Celery = self.program.app
        self._child: subprocess.Popen[bytes] | None = None
        self.answers_s = 0.25  # How long a ping may take.

    def _load(self) -> Any:
        spec = importlib.util.spec_from_file_location("celery_program", HERE / "celery_program.py")
        assert spec is not None
        assert spec.loader is not None
        program = importlib.util.module_from_spec(spec)
        before = dict(os.environ)
        os.environ.update(self.environment)
        try:
            spec.loader.exec_module(program)
        finally:
            os.environ.clear()
            os.environ.update(before)
        return program

    def start(self) -> Worker:
        command = [
            *(sys.executable, "-m", "celery", "-A", "celery_program", "worker"),
            *("--loglevel", "INFO", "--concurrency", "2", "--pool", "prefork"),
            *("--hostname", self.name, "--task-events", "--without-mingle"),
        ]
        with self.log_path.open("ab") as log:
            self._child = subprocess.Popen(
                command,
                cwd=HERE,
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(self.answers, f"the worker answers\n{self.log()}")
        return self

    def answers(self) -> bool:
        assert self._child is not None
        assert self._child.poll() is None, self.log()
        self.answers_s = min(2 * self.answers_s, 30.0)  # A busy machine may take longer.
        return bool(self.app.control.ping(destination=[self.name], limit=1, timeout=self.answers_s))

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def kill(self) -> None:
        assert self._child is not None
        os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def stop(self) -> int:
        assert self._child is not None
        if self._child.poll() is None:
            self._child.terminate()
        try:
            return self._child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(self.log()) from None

    def inspect(self) -> Any:
        """Wait for answers of our worker only."""
        return self.app.control.inspect(destination=[self.name], limit=1, timeout=PATIENCE_S)

    def close(self) -> None:
        with self.app.connection_for_write() as connection:
            connection.default_channel.queue_delete(self.queue)
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connections of this side that no other application has."""
        results = getattr(self.app.backend, "result_consumer", None)  # Of rpc.
        if results is not None and results._connection is not None:
            results.stop()
        self.app.close()


@contextmanager
def running(broker_url: str, results: str, home: Path) -> Iterator[Worker]:
    worker = Worker(broker_url, results, home)
    try:
        yield worker.start()
    finally:
        status = worker.stop()
        worker.close()
    assert status == 0, worker.log()


@pytest.fixture(scope="module")
def worker(broker, tmp_path_factory) -> Iterator[Worker]:
    with running(broker.url, "rpc://", tmp_path_factory.mktemp("celery")) as worker:
        yield worker


def test_task_and_result_over_rpc(worker):
    assert worker.program.add.delay(2, 3).get(PATIENCE_S) == 5


def test_failure_comes_back_as_its_exception(worker):
    with pytest.raises(ValueError, match="broken"):
        worker.program.fail.delay("broken").get(PATIENCE_S)


def test_many_tasks(worker):
    answers = [worker.program.add.delay(n, n) for n in range(200)]
    assert [answer.get(PATIENCE_S) for answer in answers] == [2 * n for n in range(200)]


def test_group_and_chain(worker):
    from celery import chain, group

    add = worker.program.add
    assert group(add.s(n, 1) for n in range(10))().get(PATIENCE_S) == list(range(1, 11))
    assert chain(add.s(1, 2), add.s(3), add.s(4))().get(PATIENCE_S) == 10


def test_countdown_and_eta_are_kept(worker):
    asked = time.time()
    counted = worker.program.moment.apply_async(countdown=0.4)
    eta = datetime.now(UTC) + timedelta(seconds=0.6)
    timed = worker.program.moment.apply_async(eta=eta)
    assert counted.get(PATIENCE_S) >= asked + 0.4
    assert timed.get(PATIENCE_S) >= eta.timestamp()


def test_retries(worker):
    assert worker.program.succeed_at_third_attempt.delay().get(PATIENCE_S) == 2


def test_expired_task_is_revoked(worker):
    from celery.exceptions import TaskRevokedError

    with pytest.raises(TaskRevokedError):
        worker.program.add.apply_async((1, 1), expires=-1).get(PATIENCE_S)


def test_priority_of_a_task_arrives(worker):
    assert worker.program.told_priority.delay().get(PATIENCE_S) == 7


def test_chord_with_results_in_files(broker, tmp_path):
    from celery import chord

    results = tmp_path / "results"
    results.mkdir()
    with running(broker.url, f"file://{results}", tmp_path) as worker:
        add, total = worker.program.add, worker.program.total
        assert chord((add.s(n, n) for n in range(10)), total.s())().get(PATIENCE_S) == 90


def test_remote_control_ping_and_inspect(worker):
    inspect = worker.inspect()
    assert inspect.ping() == {worker.name: {"ok": "pong"}}
    (queue,) = worker.inspect().active_queues()[worker.name]
    assert queue["name"] == worker.queue
    assert "celery_program.add" in worker.inspect().registered()[worker.name]
    assert worker.inspect().stats()[worker.name]["pool"]["max-concurrency"] == 2


def test_remote_control_changes_the_consumers(worker, name):
    control = worker.app.control
    options = {"destination": [worker.name], "reply": True, "limit": 1, "timeout": PATIENCE_S}
    (answer,) = control.add_consumer(name, **options)
    assert "ok" in answer[worker.name]
    add = worker.program.add
    assert add.apply_async((1, 1), queue=name).get(PATIENCE_S) == 2
    (answer,) = control.cancel_consumer(name, **options)
    assert "ok" in answer[worker.name]
    (answer,) = control.rate_limit("celery_program.add", "1000/s", **options)
    assert "ok" in answer[worker.name]
    with worker.app.connection_for_write() as connection:
        channel = connection.default_channel

        def left() -> bool:
            return channel.queue_declare(name, passive=True).consumer_count == 0

        # The worker answers before it cancels; a cancel from the broker would make it reconnect.
        until(left, "the worker consumes no more")
        channel.queue_delete(name)


def test_scheduled_task_is_seen_and_revoked(worker):
    from celery.exceptions import TaskRevokedError

    later = worker.program.add.apply_async((1, 1), countdown=600)

    def scheduled() -> bool:
        tasks = worker.inspect().scheduled()[worker.name]
        return later.id in [task["request"]["id"] for task in tasks]

    until(scheduled, "the task in the schedule")
    options = {"destination": [worker.name], "reply": True, "limit": 1, "timeout": PATIENCE_S}
    worker.app.control.revoke(later.id, **options)
    task_id = str(uuid.uuid4())
    worker.app.control.revoke(task_id, **options)  # Before it is sent, lest it run before that.
    now = worker.program.add.apply_async((1, 1), task_id=task_id)
    with pytest.raises(TaskRevokedError):
        now.get(PATIENCE_S)


def test_events_of_a_task(worker):
    seen: list[str] = []
    ids: list[str] = []

    def take(event: dict[str, Any]) -> None:
        if event["type"].startswith("task-") and event["uuid"] in ids:
            seen.append(event["type"])
        if {"task-sent", "task-received", "task-started", "task-succeeded"} <= set(seen):
            receiver.should_stop = True

    with worker.app.connection_for_read() as connection:
        receiver = worker.app.events.Receiver(connection, handlers={"*": take})
        captured = receiver.itercapture(limit=None, timeout=PATIENCE_S, wakeup=False)
        next(captured)  # The queue of events is bound now.
        ids.append(worker.program.add.delay(1, 1).id)
        for _ in captured:
            pass
    assert {"task-sent", "task-received", "task-started", "task-succeeded"} <= set(seen)


def test_late_acknowledged_task_of_a_killed_worker_runs_again(broker, tmp_path):
    worker = Worker(broker.url, "rpc://", tmp_path).start()
    try:
        started, release = tmp_path / "started", tmp_path / "release"
        answer = worker.program.linger_once.delay(str(started), str(release))
        until(started.exists, "the task started")
        worker.kill()
        release.touch()
        worker.start()
        assert answer.get(PATIENCE_S) is True
    finally:
        worker.stop()
        worker.close()


def test_worker_reconnects_after_a_restart(own_broker, tmp_path):
    with running(own_broker.url, "rpc://", tmp_path) as worker:
        assert worker.program.add.delay(1, 1).get(PATIENCE_S) == 2
        worker.hang_up()
        own_broker.restart()
        worker.program = worker._load()
        worker.app = worker.program.app
        assert worker.program.add.delay(2, 2).get(PATIENCE_S) == 4
        until(worker.answers, "the worker answers again")
