# SPDX-License-Identifier: Apache-2.0
"""Measure the brokers of a cluster: W2 and other persistent loads.

    PYTHONPATH=build/compiled .venv/bin/python tools/replicated_rate.py [--local] [--relayed]
        [--brokers 3]

The tool starts two PostgreSQL servers, a primary and its synchronous standby, and one broker, and
runs `headrace bench`. With ``--relayed`` clients connect to a second broker, which relays. With
``--brokers`` several brokers run at the same time, each with its own virtual host and its own
`headrace bench`. ``--local`` measures without a cluster, for comparison.

The last line is the processor time of the PostgreSQL servers for each message, without their start.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.brokers.broker_process import Served, until
from support.postgres import servers

TIME_S, WARM_S = 3.0, 1.0


def database_cpu_s() -> float:
    """Return the processor time of all PostgreSQL servers and their ended children."""
    cpu_s = 0.0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == "postgres":
                times = process.cpu_times()
                ended = times.children_user + times.children_system
                cpu_s += times.user + times.system + ended
    return cpu_s


def place(broker: Served, vhost: str, name: str) -> None:
    """Create a virtual host, and let the broker `name` serve it."""
    broker.administer("vhost", "add", vhost)
    broker.administer("permission", "set", "--vhost", vhost, "guest", ".*", ".*", ".*")

    def served() -> bool:
        with contextlib.suppress(subprocess.CalledProcessError):
            broker.administer("move", vhost, name)
            return True
        return False

    until(served, f"{vhost} at {name}")


def bench(url: str, options: argparse.Namespace) -> subprocess.Popen[str]:
    """Start `headrace bench` against the broker at a URL."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "headrace.cli", "bench", url, "--json"),
            *(f"--workload={options.workload}", f"--runs={options.runs}"),
            *(f"--time={TIME_S}", f"--warm={WARM_S}"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--relayed", action="store_true")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--workload", default="W2")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if not options.local:
            database = stack.enter_context(servers(linked=False, on_disk=True))
            os.environ["HEADRACE_CLUSTER"] = database.primary.url()
        names = [f"broker{number}" for number in range(options.brokers + options.relayed)]
        brokers = []
        for name in names:
            own = () if options.local else ("--cluster-name", name)
            brokers.append(Served(home / name, *own))
            stack.callback(brokers[-1].start().stop)
        urls = [brokers[-1].url] if options.relayed else [brokers[0].url]
        for broker, name in zip(brokers[1 : options.brokers], names[1:], strict=False):
            place(broker, name, name)
            urls.append(broker.url.replace("%2F", name))
        start_s = database_cpu_s()
        loads = [bench(url, options) for url in urls]
        reports = [json.loads(load.communicate()[0])["figures"] for load in loads]
        database_s = database_cpu_s() - start_s
        if any(load.returncode for load in loads):
            raise SystemExit("a load failed")
    messages = 0.0
    for url, figures in zip(urls, reports, strict=True):
        print("virtual host", url.rpartition("/")[2])
        for name, figure in figures.items():
            print(" ", name, [round(rate, 1) for rate in figure["runs"]])
            if name == "published":
                messages += sum(figure["runs"]) * (TIME_S + WARM_S)
    if messages and not options.local:
        print(f"PostgreSQL: {1e6 * database_s / messages:.1f} us of processor a message")


if __name__ == "__main__":
    main()
