# SPDX-License-Identifier: Apache-2.0
"""The functions `stream` and `queue`, whose arguments become options of the data source."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.arrow.records import BATCH_ROWS, BATCH_ROWS_MAX, Records
from headrace.columns.broker_streams import find_stream_ranges
from headrace.columns.browse import find_queue_parts
from headrace.columns.errors import StreamMissingError
from headrace.columns.options.kinds import OptionError
from headrace.columns.options.option import Use
from headrace.columns.options.options import read_options
from headrace.columns.options.parse import list_option_names
from headrace.columns.read_schema import read_schema
from headrace.columns.schema.columns import parse_columns

if TYPE_CHECKING:
    from headrace.columns.options.options import ReadOptions
    from headrace.columns.schema.offsets import Range

Text = str | int | float | bool | Path
Bound = int | str | datetime

# Options of the data source that another argument sets, or that do not apply to a single process.
_EXCLUDED_OPTIONS: Final = frozenset(
    {
        "uri",
        "uriFile",
        "uriEnv",
        "host",
        "port",
        "tls",
        "stream",
        "streams",
        "streamPattern",
        "superStream",
        "queue",
        "filter",
        "value",
        "startingOffsets",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "endingOffsets",
        "endingTimestamp",
        "endingOffsetsByTimestamp",
        "minPartitions",
        "maxRecordsPerPartition",
        "deadLetterExchange",
        "deadLetterRoutingKey",
    }
)
_EDGES: Final = ("earliest", "latest")
# The argument that an error names in place of an option.
_ARGUMENTS: Final = {
    "uri": "url",
    "stream": "name",
    "streams": "name",
    "queue": "name",
    "startingOffsets": "first",
    "startingTimestamp": "first",
    "endingOffsets": "last",
    "endingTimestamp": "last",
}

# The option of the data source for each further argument.
_OPTIONS: Final = {
    re.sub("(?=[A-Z])", "_", name).lower(): name
    for name in list_option_names(Use.BATCH)
    if name not in _EXCLUDED_OPTIONS
}


def stream(
    url: str | Sequence[str],
    name: str | Sequence[str],
    *,
    first: Bound | None = None,
    last: Bound | None = None,
    since: datetime | timedelta | str | None = None,
    filter: str | Iterable[str] | None = None,  # noqa: A002 - the usual name
    value: str | None = None,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    **options: Text,
) -> Records:
    """Return the records of a stream, or of several, from `first` to before `last`.

    Args:
        url: the URL of a broker, or of several brokers of a cluster.
        name: the name of a stream, or of several.
        first: an offset, a time (with a time zone, or in ISO 8601), `earliest` or `latest`. The
            default is the first record that the stream has now.
        last: the end in the same forms. The default is the end of the stream now.
        since: a time, or a time span before now, in place of `first`: selects later arrivals.
        filter: filter values of the messages, of which one must match.
        value: the format by which bodies are decoded.
        columns: the columns to return; all by default.
        batch_rows: the maximum of rows in a batch.
        options: further options of the data source, in lower case with underscores, such as
            `value_schema`, `time_zone` and `fail_on_data_loss`.

    Raises:
        OptionError: an argument is invalid or contradicts another.
        StreamMissingError: a stream does not exist.
        ConnectFailed: no broker is reachable.
        AuthenticationFailed: the broker refuses the login.
    """
    names = [name] if isinstance(name, str) else list(name)
    source_options = _make_options(url, value, options, "stream")
    source_options["streams"] = json.dumps(names)
    if filter is not None:
        source_options["filter"] = filter if isinstance(filter, str) else json.dumps(list(filter))
    if since is not None:
        if first is not None:
            raise OptionError("arguments 'first' and 'since' contradict each other: give one")
        moment = datetime.now(UTC) - since if isinstance(since, timedelta) else since
        first = _format_moment("since", moment)
    if first is not None:
        source_options |= _position_option("first", "starting", first, names)
        if "startingTimestamp" in source_options:  # A start after the last record means no rows.
            source_options["startingOffsetsByTimestampStrategy"] = "latest"
    if last is not None:
        source_options |= _position_option("last", "ending", last, names)
    return _open_records(
        source_options, partial(find_stream_ranges, plain=True), columns, batch_rows
    )


def queue(
    url: str | Sequence[str],
    name: str,
    *,
    value: str | None = None,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    **options: Text,
) -> Records:
    """Return the ready messages of a queue, which stay in the queue.

    The arguments are as in `stream`; `name` is the name of one queue.

    Raises:
        OptionError: an argument is invalid, or the queue does not exist.
        ConnectFailed: no broker is reachable.
        AuthenticationFailed: the broker refuses the login.
    """
    source_options = _make_options(url, value, options, "queue")
    source_options["queue"] = name
    return _open_records(source_options, find_queue_parts, columns, batch_rows)


def _open_records(
    source_options: Mapping[str, str],
    ranges: Callable[[ReadOptions], Sequence[Range]],
    columns: Sequence[str] | None,
    batch_rows: int,
) -> Records:
    """Return the records of a read; `ranges` looks up the ranges at the broker."""
    if not 1 <= batch_rows <= BATCH_ROWS_MAX:
        raise OptionError(f"argument 'batch_rows' must be 1 to {BATCH_ROWS_MAX}; got {batch_rows}")
    try:
        parsed_options = read_options(source_options, streaming=False)
        query_columns = parse_columns(read_schema(source_options), parsed_options.decoding)
        records = Records(parsed_options, query_columns, tuple(ranges(parsed_options)), batch_rows)
    except OptionError as error:
        raise OptionError(_name_arguments(str(error))) from None
    except StreamMissingError as error:
        raise StreamMissingError(_name_arguments(str(error))) from None
    return records if columns is None else records.select(*columns)


def _name_arguments(text: str) -> str:
    """Return the text of an error with the names of arguments in place of options."""
    for option, argument in _ARGUMENTS.items():
        text = text.replace(f"option {option!r}", f"argument {argument!r}")
    return text


def _make_options(
    url: str | Sequence[str], value: str | None, options: Mapping[str, Text], function: str
) -> dict[str, str]:
    """Return the options of the data source for the arguments of `function`."""
    source_options = {"uri": url if isinstance(url, str) else json.dumps(list(url))}
    if value is not None:
        source_options["value"] = value
    for key, argument in options.items():
        name = _OPTIONS.get(key)
        if name is None:
            hint = "".join(
                f"; did you mean {match!r}?" for match in get_close_matches(key, _OPTIONS)
            )
            raise OptionError(
                f"{function}() has no argument {key!r}{hint}; its options are {', '.join(_OPTIONS)}"
            )
        source_options[name] = (
            str(argument).lower() if isinstance(argument, bool) else str(argument)
        )
    if source_options.get("mode", "").upper() == "DEADLETTER":
        raise OptionError("option 'mode' cannot be 'DEADLETTER' here: reading changes nothing")
    return source_options


def _position_option(
    argument: str, prefix: str, position: Bound, names: Sequence[str]
) -> dict[str, str]:
    """Return the option for a position; `prefix` is "starting" or "ending".

    An offset applies to each of the streams `names`.
    """
    if isinstance(position, bool):
        raise OptionError(f"argument {argument!r} must be an offset or a moment; got {position!r}")
    if isinstance(position, int):
        if position < 0:
            raise OptionError(f"argument {argument!r} must be 0 or more; got {position}")
        return {f"{prefix}Offsets": json.dumps(dict.fromkeys(names, position))}
    if position in _EDGES:
        return {f"{prefix}Offsets": str(position)}
    return {f"{prefix}Timestamp": _format_moment(argument, position)}


def _format_moment(argument: str, moment: datetime | str) -> str:
    """Return a time as the data source takes it; raise OptionError without a time zone."""
    if isinstance(moment, str):
        return moment
    if moment.tzinfo is None:
        raise OptionError(f"argument {argument!r} needs a time zone; got {moment!r}")
    return moment.isoformat()
