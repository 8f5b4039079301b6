# SPDX-License-Identifier: Apache-2.0
"""The Celery application of the tests: the worker imports it, the tests ask it."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

from celery import Celery

app = Celery("interop", broker=os.environ["INTEROP_BROKER"], backend=os.environ["INTEROP_RESULTS"])
app.conf.update(
    task_default_queue=os.environ["INTEROP_QUEUE"],
    task_serializer="json",
    task_send_sent_event=True,
    task_track_started=True,
    worker_send_task_events=True,
    worker_prefetch_multiplier=2,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"confirm_publish": True},
    result_chord_retry_interval=0.1,
    result_persistent=False,
    event_queue_expires=30,
)

# Not shared: each test loads this program with an application of its own.
task = partial(app.task, shared=False)


@task()
def add(left: int, right: int) -> int:
    return left + right


@task()
def total(numbers: list[int]) -> int:
    return sum(numbers)


@task()
def moment() -> float:
    return time.time()


@task()
def fail(text: str) -> None:
    raise ValueError(text)


@task(bind=True, max_retries=5)
def succeed_at_third_attempt(self) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0.05)
    return self.request.retries


@task(bind=True, acks_late=True, reject_on_worker_lost=True)
def linger_once(self, started: str, release: str) -> bool:
    """Hold on until the file `release` appears; says whether the delivery was a second one."""
    Path(started).touch()
    deadline = time.monotonic() + 200
    while not Path(release).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(self.request.delivery_info["redelivered"])


@task(priority=7)
def told_priority() -> int | None:
    return told_priority.request.delivery_info.get("priority")
