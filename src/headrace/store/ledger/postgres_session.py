# SPDX-License-Identifier: Apache-2.0
"""Sessions with PostgreSQL in which every statement has a deadline.

No timeout of the server ends a commit that waits for its standby. So the client has the deadline:
it closes the session, and the transaction is in doubt. Statements go through libpq's pipeline mode.
All statements before a sync are one transaction.
"""

import contextlib
import os
import select
import socket
import time
from collections.abc import Iterator, Mapping, Sequence

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from headrace.store.errors import StoreError
from headrace.store.ledger.port import BytesLike

CONNECT_S = 3  # Seconds to connect to each host of a list.
ANSWER_S = 10.0
BINARY = 1
WARNING = "WARNING"
APPLICATION = "headrace"

Row = tuple[bytes | None, ...]

# These settings detect a lost server within seconds; the kernel alone would wait for minutes. The
# URL overrides them.
CONNECTION_DEFAULTS: Mapping[str, str | int] = {
    "application_name": APPLICATION,
    "connect_timeout": CONNECT_S,
    "keepalives_count": 3,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "tcp_user_timeout": 5000,
}
SCHEMES = ("postgresql", "postgres")
INT4, INT8, BYTEA, TEXT = 23, 20, 17, 25  # OIDs of types.


class StatementError(OSError):
    """PostgreSQL refused a statement: its transaction changed nothing."""

    def __init__(self, text: str, sqlstate: str) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


class Address:
    """The servers that a URL names, and the login; neither `text` nor repr has the password."""

    def __init__(self, url: str) -> None:
        """Read a URL of PostgreSQL, or a connection string.

        Raises:
            StoreError: the text is neither, or a part of it must be percent-encoded.
        """
        check_quoting(url)
        try:
            fields = conninfo_to_dict(url)
        except psycopg.Error:  # The error's text would quote the URL.
            raise StoreError(
                "the URL of the cluster is not a PostgreSQL URL: it must begin with postgresql:// "
                "and name user, hosts and database, as postgresql://user@host1,host2/database"
            ) from None
        url_parameters = {name: value for name, value in fields.items() if value is not None}
        self.parameters: dict[str, str | int] = {**CONNECTION_DEFAULTS, **url_parameters}
        self.parameters["target_session_attrs"] = "read-write"
        host = str(url_parameters.get("host", url_parameters.get("hostaddr", "local socket")))
        self.text = f"{host}/{url_parameters.get('dbname', url_parameters.get('user', ''))}"

    def __repr__(self) -> str:
        return f"<PostgreSQL at {self.text}>"

    def connect(self, answer_s: float = ANSWER_S) -> "PostgresSession":
        """Open a session with the server that takes writes.

        Raises:
            OSError: no server answers, or none of them takes writes.
        """
        try:
            connection = psycopg.connect(make_conninfo("", **self.parameters), autocommit=True)
        except psycopg.Error as error:
            raise ConnectionError(f"PostgreSQL at {self.text}: {first_line(error)}") from None
        return PostgresSession(connection, self.text, answer_s)


def check_quoting(url: str) -> None:
    """Check that @ and / are percent-encoded in the user, password and database of a URL.

    libpq ends the password at the first @ or /, and takes the rest for the host. Errors and logs
    name the host, so they would show that rest of the password.

    Raises:
        StoreError: the URL has an @ or a / that is not percent-encoded.
    """
    scheme, separator, authority_and_path = url.partition("://")
    if not separator or scheme not in SCHEMES:
        return
    servers, _, database = authority_and_path.partition("?")[0].partition("/")
    if servers.count("@") > 1 or "@" in database:
        raise StoreError(
            "the URL of the cluster has an @ or a / in the password, or in the name of the user or "
            "the database: write %40 for @ and %2F for /"
        )


class PostgresSession:
    """A connection to a PostgreSQL server, whose statements have a deadline."""

    def __init__(
        self, connection: psycopg.Connection[TupleRow], address: str, answer_s: float
    ) -> None:
        self.connection = connection
        self.address = address
        self.answer_s = answer_s
        self.warnings: list[str] = []  # Warnings since the last statement was sent.
        self.prepared: set[bytes] = set()  # Names of statements.
        self.libpq = connection.pgconn
        self.process = self.libpq.backend_pid  # The id of the server's process.
        self.socket = self.libpq.socket
        self.poll = select.poll()
        self.poll.register(self.socket, select.POLLIN)
        connection.add_notice_handler(self.on_notice)
        self.libpq.enter_pipeline_mode()

    def on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        """Record a warning: a commit whose wait for the standby was cancelled succeeds with one."""
        if notice.severity_nonlocalized == WARNING:
            self.warnings.append(notice.message_primary or WARNING)

    def prepare(self, name: bytes, statement: bytes, types: Sequence[int]) -> None:
        """Prepare a statement, once; the types of its parameters are OIDs.

        Raises:
            StatementError, OSError: see query.
        """
        if name not in self.prepared:
            with self.sending():
                self.libpq.send_prepare(name, statement, types)
            self.sync()
            self.answer()
            self.prepared.add(name)

    def query(self, statement: bytes, *values: str | int) -> list[Row]:
        """Run a statement in a transaction of its own; return its rows, in PostgreSQL's text.

        Raises:
            StatementError: the server refused it.
            OSError: the server did not answer: the outcome is in doubt.
        """
        self.warnings.clear()
        self.send_text(statement, *values)
        self.sync()
        return self.answer()

    def query_binary(self, statement: bytes, *values: str | int) -> list[Row]:
        """Return the rows of a statement in binary.

        Raises:
            StatementError, OSError: see query.
        """
        self.warnings.clear()
        self.send_text(statement, *values, result_format=BINARY)
        self.sync()
        return self.answer()

    def send_text(self, statement: bytes, *values: str | int, result_format: int = 0) -> None:
        """Send a statement, its parameters in PostgreSQL's text."""
        parameters = [str(value).encode() for value in values]
        with self.sending():
            self.libpq.send_query_params(statement, parameters, result_format=result_format)

    def send(self, name: bytes, values: Sequence[BytesLike]) -> None:
        """Send a prepared statement, its parameters in binary."""
        with self.sending():
            self.libpq.send_query_prepared(name, values, [BINARY] * len(values), BINARY)

    def sync(self) -> None:
        """End the transaction of the sent statements."""
        with self.sending():
            self.libpq.pipeline_sync()

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Turn an error of libpq into an OSError, and close the session."""
        try:
            yield
        except psycopg.Error as error:
            raise self.fail(error) from None

    def answer(self) -> list[Row]:
        """Wait for the answer of the oldest transaction; return its rows.

        Raises:
            StatementError, OSError: see query.
        """
        rows: list[Row] = []
        statement_error: StatementError | None = None
        deadline = time.monotonic() + self.answer_s
        try:
            while (result := self.result(deadline)) is not None:
                if result.status == pq.ExecStatus.TUPLES_OK:
                    columns = range(result.nfields)
                    rows += [
                        tuple(result.get_value(row, column) for column in columns)
                        for row in range(result.ntuples)
                    ]
                elif result.status == pq.ExecStatus.FATAL_ERROR and statement_error is None:
                    statement_error = self.statement_error(result)
        except psycopg.Error as error:
            raise self.fail(statement_error or error) from None
        if statement_error is not None:
            raise statement_error
        return rows

    def result(self, deadline: float) -> pq.abc.PGresult | None:
        """Return the next result; None at the end of a transaction."""
        while True:
            self.wait(deadline)
            result = self.libpq.get_result()
            if result is None:
                if self.libpq.status == pq.ConnStatus.BAD:
                    raise psycopg.OperationalError("the connection is lost")
                continue  # Between two statements.
            return None if result.status == pq.ExecStatus.PIPELINE_SYNC else result

    def wait(self, deadline: float) -> None:
        """Send the unsent bytes, and wait for a result."""
        unsent = self.libpq.flush()
        while unsent or self.libpq.is_busy():
            self.poll.modify(self.socket, select.POLLIN | (select.POLLOUT if unsent else 0))
            left_ms = (deadline - time.monotonic()) * 1000
            if left_ms <= 0 or not self.poll.poll(left_ms):
                raise psycopg.OperationalError(f"no answer within {self.answer_s:g} s")
            self.libpq.consume_input()
            unsent = self.libpq.flush()

    def statement_error(self, result: pq.abc.PGresult) -> StatementError:
        """Return the error of a result."""
        field = pq.DiagnosticField
        text = (result.error_field(field.MESSAGE_PRIMARY) or result.error_message).decode()
        sqlstate = (result.error_field(field.SQLSTATE) or b"").decode()
        return StatementError(f"PostgreSQL at {self.address}: {text.strip()}", sqlstate)

    def fail(self, error: Exception) -> OSError:
        """Close the session; return an error with the reason."""
        self.close()
        if isinstance(error, StatementError):
            return error if error.sqlstate else ConnectionError(str(error))
        return ConnectionError(f"PostgreSQL at {self.address}: {first_line(error)}")

    @property
    def closed(self) -> bool:
        """True if the session has ended."""
        return self.connection.closed

    def interrupt(self) -> None:
        """End the connection under a thread that waits for an answer."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.socket)) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the session; the server may still finish its statements."""
        self.connection.close()


def first_line(error: Exception) -> str:
    """Return the first line of an error."""
    return str(error).strip().partition("\n")[0]
