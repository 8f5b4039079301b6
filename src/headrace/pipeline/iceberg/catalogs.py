# SPDX-License-Identifier: Apache-2.0
"""Catalogs of a pipeline's file, and their errors without secrets.

A catalog has the properties of the file, then of the TOML file that `file` names. pyiceberg adds
the variables `PYICEBERG_CATALOG__NAME__PROPERTY` of the environment.
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

SQLITE_WAIT_S: Final = 30.0
SECRET_CHARS_MIN: Final = 4  # Shorter values would blot out words of the error.
_SECRET: Final = re.compile(r"(?i)credential|secret|token|password|access-key|sas|signature")
_SQLITE: Final = "sqlite:///"


def properties_of(pipeline: Pipeline, name: str) -> dict[str, str]:
    """Return the properties of a catalog as pyiceberg takes them; paths are absolute.

    PipelineError when its file cannot be read.
    """
    catalog = pipeline.catalogs[name]
    properties = {"type": catalog.type, "uri": _uri(pipeline, catalog.uri)}
    if catalog.warehouse is not None:
        where = catalog.warehouse
        is_local = catalog.type == "sql" and "://" not in where
        properties["warehouse"] = Path(pipeline.resolve_path(where)).as_uri() if is_local else where
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
    """Open the catalog, which connects to it; PipelineError on failure."""
    properties = properties_of(pipeline, name)
    try:
        from pyiceberg.catalog import load_catalog
    except ModuleNotFoundError as error:
        raise PipelineError(f"Iceberg tables: {extras.describe_missing(error)}") from None
    with about(f"catalog {name!r}", properties):
        catalog = load_catalog(name, **properties)
        if properties["type"] == "sql":
            _keep_no_connection(catalog)
    return catalog


def _keep_no_connection(catalog: Catalog) -> None:
    """Let a catalog in a database open a connection for each use, and close it.

    A kept one would idle between batches, where the database or a firewall ends it, and would stay
    open for as long as the driver runs.
    """
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool, QueuePool

    if not isinstance(catalog, SqlCatalog) or not isinstance(catalog.engine.pool, QueuePool):
        return  # A database in memory has one connection only.
    catalog.close()
    engine = catalog.engine
    # How long SQLite waits for a file that others have locked.
    connect_args = {"timeout": SQLITE_WAIT_S} if engine.dialect.name == "sqlite" else {}
    catalog.engine = create_engine(
        engine.url, echo=engine.echo, poolclass=NullPool, connect_args=connect_args
    )


def ambiguous_errors() -> tuple[type[Exception], ...]:
    """Return the errors of a database that leave open whether it made a change.

    It went away, or others had it locked for too long.
    """
    try:
        from sqlalchemy.exc import InterfaceError, OperationalError
    except ModuleNotFoundError:  # Catalogs of other kinds do without.
        return ()
    return InterfaceError, OperationalError


@contextmanager
def about(what: str, properties: Mapping[str, str]) -> Iterator[None]:
    """Name the subject in errors of other packages, and hide the secrets of a catalog."""
    try:
        yield
    except (PipelineError, KeyboardInterrupt):
        raise
    except Exception as error:
        from pyiceberg.exceptions import CommitFailedException

        if isinstance(error, CommitFailedException):
            raise  # The writer tests the table and retries.
        if isinstance(error, ModuleNotFoundError):
            raise PipelineError(f"{what}: {extras.describe_missing(error) or error}") from None
        lines = str(error).strip().splitlines()
        text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        raise PipelineError(f"{what}: {hide_secrets(text, properties)}") from None


def hide_secrets(text: str, properties: Mapping[str, str]) -> str:
    """Return the text without the values of properties that are secrets."""
    for name, value in properties.items():
        for secret in _secrets(name, value):
            if len(secret) >= SECRET_CHARS_MIN:
                text = text.replace(secret, "***")
    return text


def _secrets(name: str, value: str) -> Iterator[str]:
    if _SECRET.search(name):
        yield value
        yield from value.split(":")  # The id and the secret of OAuth.
    try:
        password = urlsplit(value).password if "://" in value else None
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)


def _uri(pipeline: Pipeline, uri: str) -> str:
    """The address of a catalog; the file of SQLite is relative to the pipeline's."""
    path = uri.removeprefix(_SQLITE)
    if path == uri or path.startswith("/") or not path or path == ":memory:":
        return uri
    return f"{_SQLITE}{pipeline.resolve_path(path)}"
