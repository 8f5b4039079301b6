# SPDX-License-Identifier: Apache-2.0
"""One Spark at a time, in a process that runs tests of several folders.

Each folder has a session of its own configuration, part of which a Java machine takes when it
starts. One that runs already would give its own session to the next folder, so it is ended.
"""

from __future__ import annotations

import os
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

EXIT_S = 200.0  # How long a Java machine may take to end.

_running: list[SparkSession] = []


@contextmanager
def only_spark(
    make: Callable[[], SparkSession], environment: Mapping[str, str]
) -> Iterator[SparkSession]:
    """A session and its Java machine, made in this environment, while no other asks for its own."""
    before = {key: os.environ.get(key) for key in environment}
    os.environ.update(environment)
    while _running:
        _end(_running.pop())
    session = make()
    _running.append(session)
    try:
        yield session
    finally:
        if session in _running:
            _running.remove(session)
            _end(session)
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _end(session: SparkSession) -> None:
    """End a session and its Java machine, which ends when its input does.

    The machine may have died. What PySpark remembers of it would be the next session's.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context: Any = SparkContext
    gateway = context._gateway
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # That it did not end by itself.
            session.stop()
    except (Py4JError, OSError):  # It is not there to be asked.
        pass
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(EXIT_S)
        context._gateway = context._jvm = context._active_spark_context = None
        made: Any = SparkSession
        made._instantiatedSession = made._activeSession = None
