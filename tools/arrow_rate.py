# SPDX-License-Identifier: Apache-2.0
"""Rows of a stream that `headrace.arrow` reads in a second of this process's processor time.

    PYTHONPATH=build/compiled .venv/bin/python tools/arrow_rate.py 400000

The broker is a separate process. Bodies have 200 bytes. The result is the best of three reads.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

from headrace.arrow import stream
from headrace.client import blocking
from headrace.testing.broker import ChildBroker

LOT = 20_000
BODY = b"x" * 200
READS = 3


def main() -> None:
    """Fill a stream; read it with all columns, then with a few."""
    count = int(sys.argv[1]) // LOT * LOT
    with (
        tempfile.TemporaryDirectory() as scratch,
        ChildBroker(Path(scratch) / "data") as broker,
        blocking.connect(broker.url) as connection,
    ):
        with connection.channel() as channel:
            channel.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
            for _ in range(count // LOT):
                channel.publish_many([BODY] * LOT, "s")
        records = stream(broker.url, "s")
        for columns in (records.schema.names, ["body", "offset"], ["offset"]):
            chosen, best = records.select(*columns), 0.0
            for _ in range(READS):
                before = time.process_time()
                rows = sum(batch.num_rows for batch in chosen)
                best = max(best, rows / (time.process_time() - before))
                assert rows == count, rows
            print(f"{', '.join(columns)}: {best / 1e6:.2f} M rows/s a core")
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB at most")


if __name__ == "__main__":
    main()
