# SPDX-License-Identifier: Apache-2.0
"""Names for values that no annotation can tell apart, each with the reason.

Only these names have `Any` in the server, the console and the commands. The code that reads such a
value checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

Returned = TypeVar("Returned")

Json: TypeAlias = Any  # A decoded value of JSON or TOML, whose type the document decides.
JsonObject: TypeAlias = dict[str, Any]  # A decoded object or table.
JsonRow: TypeAlias = Mapping[str, Any]  # One to read: a JsonObject, or a TypedDict of one.
Fields: TypeAlias = dict[str, Any]  # Keyword arguments, each of the type of the field of its name.
Java: TypeAlias = Any  # An object of the Java machine: py4j has no types for it.
Arrow: TypeAlias = Any  # An array, scalar or file of pyarrow, which has no types.
Result: TypeAlias = Any  # The result of a command of 0-10, a struct that the command decides.
Properties: TypeAlias = Any  # The properties of a content, by the class of its method.
Cell: TypeAlias = Any  # A value of a row: its column says of which type.
Parsed: TypeAlias = Any  # The value of an option: its row in the table of options says the type.
PathFunction: TypeAlias = Callable[..., Returned]  # Its arguments: the path of the page says which.
