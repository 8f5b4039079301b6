# SPDX-License-Identifier: Apache-2.0
"""Start-up code of Spark's Python processes; `quick_start` installs it as `sitecustomize`.

Such a process imports 600 modules, runs one query, and ends. Three things wasted its time. The
garbage collector traversed the imported modules again and again, for a fifth of the processor time.
Freeing the modules at the end took another fifth. Each import searched Spark's jar, which has no
Python code.

The module has no dependencies. Another `sitecustomize`, such as the distribution's, still runs.
"""

import atexit
import gc
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

# As in the broker, the first threshold bounds uncollected garbage to some megabytes.
COLLECT_RARELY = (10_000, 20, 50)
JAR_PREFIX = "/spark-core_"


def run_shadowed(name: str, own_directory: str) -> None:
    """Run the module `name` of the path outside `own_directory`, if there is one."""
    spec = PathFinder.find_spec(name, [path for path in sys.path if path != own_directory])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


if __name__ == "sitecustomize":
    gc.set_threshold(*COLLECT_RARELY)
    atexit.register(gc.freeze)
    sys.path[:] = [path for path in sys.path if not (JAR_PREFIX in path and path.endswith(".jar"))]
    run_shadowed(__name__, __file__.rpartition("/")[0])
