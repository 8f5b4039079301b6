# SPDX-License-Identifier: Apache-2.0
"""The catalogs of a pipeline's file, and the removal of their secrets from error texts.

A catalog has the properties in the pipeline's file and in the TOML file that `file` names, which
take precedence. pyiceberg adds the environment variables `PYICEBERG_CATALOG__NAME__PROPERTY`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from headrace import extras
from headrace.pipeline.config.check import spark_options
from headrace.pipeline.config.errors import PipelineError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from headrace.pipeline.config.settings import Pipeline

SQLITE_LOCK_TIMEOUT_S: Final = 30.0
SECRET_CHARS_MIN: Final = 4  # Shorter values occur in other words of an error.
_SECRET: Final = re.compile(r"(?i)credential|secret|token|password|access-key|sas|signature")
_SQLITE: Final = "sqlite:///"


def catalog_properties(pipeline: Pipeline, name: str) -> dict[str, str]:
    """Return the properties of a catalog for pyiceberg, with absolute paths.

    Raises:
        PipelineError: the file of the catalog cannot be read.
    """
    catalog = pipeline.catalogs[name]
    properties = {"type": catalog.type, "uri": _resolve_uri(pipeline, catalog.uri)}
    if catalog.warehouse is not None:
        warehouse = catalog.warehouse
        is_local = catalog.type == "sql" and "://" not in warehouse
        properties["warehouse"] = (
            Path(pipeline.resolve_path(warehouse)).as_uri() if is_local else warehouse
        )
    properties.update(spark_options(catalog.options))
    if catalog.file is not None:
        path = Path(pipeline.resolve_path(catalog.file))
        try:
            properties.update(spark_options(tomllib.loads(path.read_text("utf-8"))))
        except OSError as error:
            raise PipelineError(f"catalog {name!r}: {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            raise PipelineError(f"catalog {name!r}: {path} is not valid TOML") from None
    return properties


def open_catalog(pipeline: Pipeline, name: str) -> Catalog:
    """Open a catalog, and connect to it if it is a service.

    Raises:
        PipelineError: the catalog cannot be opened.
    """
    properties = catalog_properties(pipeline, name)
    try:
        from pyiceberg.catalog import load_catalog
    except ModuleNotFoundError as error:
        raise PipelineError(f"Iceberg tables: {extras.describe_missing(error)}") from None
    with error_context(f"catalog {name!r}", properties):
        catalog = load_catalog(name, **properties)
        if properties["type"] == "sql":
            _close_connections_after_use(catalog)
    return catalog


def _close_connections_after_use(catalog: Catalog) -> None:
    """Make a catalog in a database open a connection for each use, and close it afterwards.

    A pooled connection would idle between batches, until the database or a firewall closes it.
    """
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool, QueuePool

    if not isinstance(catalog, SqlCatalog) or not isinstance(catalog.engine.pool, QueuePool):
        return  # A database in memory exists only while its connection is open.
    catalog.close()
    engine = catalog.engine
    # The time that SQLite waits for a locked file.
    connect_args = {"timeout": SQLITE_LOCK_TIMEOUT_S} if engine.dialect.name == "sqlite" else {}
    catalog.engine = create_engine(
        engine.url, echo=engine.echo, poolclass=NullPool, connect_args=connect_args
    )


def ambiguous_errors() -> tuple[type[Exception], ...]:
    """Return the errors of a database after which a change may or may not have happened.

    The database closed the connection, or was locked for too long.
    """
    try:
        from sqlalchemy.exc import InterfaceError, OperationalError
    except ModuleNotFoundError:  # Only catalogs in databases need SQLAlchemy.
        return ()
    return InterfaceError, OperationalError


@contextmanager
def error_context(label: str, properties: Mapping[str, str]) -> Iterator[None]:
    """Raise errors of other packages as PipelineError, with a label and without secrets.

    CommitFailedException passes unchanged, because the caller retries.
    """
    try:
        yield
    except (PipelineError, KeyboardInterrupt):
        raise
    except Exception as error:
        from pyiceberg.exceptions import CommitFailedException

        if isinstance(error, CommitFailedException):
            raise  # The caller retries.
        if isinstance(error, ModuleNotFoundError):
            raise PipelineError(f"{label}: {extras.describe_missing(error) or error}") from None
        lines = str(error).strip().splitlines()
        text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        raise PipelineError(f"{label}: {hide_secrets(text, properties)}") from None


def hide_secrets(text: str, properties: Mapping[str, str]) -> str:
    """Return the text without the values of properties that are secrets."""
    for name, value in properties.items():
        for secret in _secrets(name, value):
            if len(secret) >= SECRET_CHARS_MIN:
                text = text.replace(secret, "***")
    return text


def _secrets(name: str, value: str) -> Iterator[str]:
    """Yield the secrets in a property: its value, its parts, or the password in a URL."""
    if _SECRET.search(name):
        yield value
        yield from value.split(":")  # OAuth's credential is an id and a secret.
    try:
        password = urlsplit(value).password if "://" in value else None
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)


def _resolve_uri(pipeline: Pipeline, uri: str) -> str:
    """Return the address of a catalog, with the path of an SQLite file made absolute."""
    path = uri.removeprefix(_SQLITE)
    if path == uri or path.startswith("/") or not path or path == ":memory:":
        return uri
    return f"{_SQLITE}{pipeline.resolve_path(path)}"
