# SPDX-License-Identifier: Apache-2.0
"""One Spark at a time, in a process that runs tests of several folders.

Each folder has a session of its own configuration, part of which a Java machine takes when it
starts. One that runs already would give its own session to the next folder, so it is ended. When
tests of the first folder follow, theirs begins again.
"""

from __future__ import annotations

import os
import warnings
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

EXIT_S = 200.0  # How long a Java machine may take to end.


class OneSpark(AbstractContextManager["OneSpark"]):
    """A session and its Java machine, made in an environment when asked for.

    Args:
        make: makes the session.
        environment: what the Java machine and the workers inherit.
    """

    running: OneSpark | None = None  # Whose session this process has.

    def __init__(self, make: Callable[[], SparkSession], environment: Mapping[str, str]) -> None:
        self._make = make
        self._environment = environment
        self._before: dict[str, str | None] = {}
        self._session: SparkSession | None = None

    def session(self) -> SparkSession:
        """Return the session that runs, or begin one after the end of any other."""
        if self._session is None:
            if OneSpark.running is not None:
                OneSpark.running.end()
            self._before = {key: os.environ.get(key) for key in self._environment}
            os.environ.update(self._environment)
            OneSpark.running = self
            self._session = self._make()
        return self._session

    def end(self) -> None:
        """End the session, if it runs, and restore the environment."""
        session, self._session = self._session, None
        if OneSpark.running is not self:
            return
        OneSpark.running = None
        try:
            if session is not None:
                _end(session)
        finally:
            for key, value in self._before.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value

    def __exit__(self, *_: object) -> None:
        self.end()


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
