# SPDX-License-Identifier: Apache-2.0
"""Names for values whose type is known only at run time, each with the reason.

The server, the console and the commands use `Any` through these names only. The code that reads
such a value checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

Returned = TypeVar("Returned")

Json: TypeAlias = Any  # A decoded value of JSON or TOML, whose type the document decides.
JsonObject: TypeAlias = dict[str, Any]  # A decoded object or table.
JsonRow: TypeAlias = Mapping[str, Any]  # A JsonObject to read, or a TypedDict.
Fields: TypeAlias = dict[str, Any]  # Keyword arguments, each with the type of its field.
Java: TypeAlias = Any  # An object of the Java machine: py4j has no types for it.
Arrow: TypeAlias = Any  # An array, scalar or file of pyarrow, which has no types.
Result: TypeAlias = Any  # The result of a command of 0-10, a struct that the command decides.
Properties: TypeAlias = Any  # The properties of a content, by the class of its method.
Cell: TypeAlias = Any  # A value of a row, whose type its column decides.
Parsed: TypeAlias = Any  # The value of an option, whose type the table of options decides.
PathFunction: TypeAlias = Callable[..., Returned]  # A function of the parameters in a page's path.
