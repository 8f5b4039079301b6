# SPDX-License-Identifier: Apache-2.0
"""Start-up code of Spark's Python processes; `quick_start` installs it as `sitecustomize`.

Such a process imports 600 modules, runs one query, and ends. The garbage collector, which traversed
the imported modules again and again, took a fifth of its processor time. The interpreter took
another fifth to free them at the end. And each import was searched for in Spark's jar, which has
no Python code.

The module has no dependencies. Another `sitecustomize`, such as the distribution's, still runs.
"""

import atexit
import gc
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

# As in the broker, the first threshold bounds uncollected garbage to some megabytes.
COLLECT_RARELY = (10_000, 20, 50)
JAR = "/spark-core_"


def run_hidden(name: str, here: str) -> None:
    """Run the module of that name which would be found without this one's directory."""
    hidden = PathFinder.find_spec(name, [path for path in sys.path if path != here])
    if hidden is not None and hidden.loader is not None:
        hidden.loader.exec_module(module_from_spec(hidden))


if __name__ == "sitecustomize":
    gc.set_threshold(*COLLECT_RARELY)
    atexit.register(gc.freeze)
    sys.path[:] = [path for path in sys.path if not (JAR in path and path.endswith(".jar"))]
    run_hidden(__name__, __file__.rpartition("/")[0])
