# SPDX-License-Identifier: Apache-2.0
"""Soak test of a cluster under faults: no confirmed message may be lost.

    PYTHONPATH=build/compiled .venv/bin/python tools/soak_cluster.py [--rounds 200] [--seed 1]
        [--faults kill-owner,move] [--brokers 2]

The tool starts PostgreSQL with a synchronous standby, brokers and clients. Each round is one fault
under load; then all queues are drained and compared with the answers that clients got. As root,
brokers and databases have separate networks, disks and clocks, which fail as well.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.cluster_soak import Soak, chosen
from support.networks import networks, possible
from support.postgres import servers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--brokers", type=int, default=2)
    parser.add_argument("--faults", default="", help="some of all, with commas between")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # So that all processes are stopped.
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-soak-"))
        network = stack.enter_context(networks()) if possible() else None
        if network is None:
            print("without networks, disks and clocks of their own: only root makes them")
        bounded = network is not None
        database = stack.enter_context(servers(on_disk=True, bounded=bounded))
        soak = Soak(
            Path(home),
            database,
            seed=asked.seed,
            brokers=asked.brokers,
            networks=network,
            say=lambda text: print(text, flush=True),
        )
        faults = [name for name in asked.faults.split(",") if name] or list(soak.faults)
        try:
            asyncio.run(soak.run(chosen(asked.seed, asked.rounds, faults)))
        finally:
            print(soak.report(), flush=True)
        if soak.broken:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
