# SPDX-License-Identifier: Apache-2.0
"""A cache directory with which Spark starts in half the time.

Two steps take most of the time of a start. First, Spark's Python workers import PySpark and py4j
from zips without bytecode, so each worker compiles them. In a Spark home without these zips,
workers import the installed packages. A directory with `quick_start_python`, which each worker runs
first, replaces PySpark's zip. Second, the JVM loads and verifies 20,000 classes. An archive of
class data has them in loaded form. `prepare` creates the archive; without it only the workers start
faster.

The name of the cache directory is a hash of the versions of PySpark and Java, the options of Java,
and the startup script.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

# Environment variables.
CACHE: Final = "HEADRACE_SPARK_CACHE"
HOME: Final = "SPARK_HOME"
OPTIONS: Final = "SPARK_SUBMIT_OPTS"  # The JVM options of a session.
JAVA_OPTIONS: Final = "JDK_JAVA_OPTIONS"

ARCHIVE: Final = "classes.jsa"  # The name of the archive of class data.
LINKED_NAMES: Final = ("bin", "data", "jars", "licenses", "sbin")  # Directories of a Spark home.
STARTUP_MODULE: Final = (
    "python/lib/pyspark.zip/sitecustomize.py"  # Spark puts this zip into PYTHONPATH.
)
STARTUP_SCRIPT: Final = Path(__file__).with_name("quick_start_python.py")
PREPARE_MAX_S: Final = 600  # The time for the session that writes the archive.


class NotPrepared(Exception):
    """The archive of class data could not be created; the text has the reason."""


def cache() -> Path:
    """Return the root of the cache: HEADRACE_SPARK_CACHE, or a directory in the user's cache."""
    if path := os.environ.get(CACHE):
        return Path(path).absolute()
    cache_home = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache_home) if cache_home else Path.home() / ".cache") / "headrace" / "spark"


def use() -> bool:
    """Make the next session of this process start quickly; return True if the archive exists.

    If SPARK_HOME is set, that Spark starts at the usual speed. So does a session without a writable
    cache directory.
    """
    if HOME in os.environ:
        return False
    try:
        directory = _cache_directory()
        home = _spark_home(directory)
    except (OSError, RuntimeError):
        return False
    os.environ[HOME] = str(home)
    archive = directory / ARCHIVE
    if not archive.is_file():
        return False
    options = f"-XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
    os.environ[OPTIONS] = f"{os.environ.get(OPTIONS, '')} {options}".strip()
    return True


def prepare() -> tuple[Path, bool]:
    """Create the archive of class data if it is missing; return its path, and True if it is new.

    The function runs a session of Spark in another process, which takes half a minute.

    Raises:
        NotPrepared: SPARK_HOME names another Spark, or the session failed.
    """
    if HOME in os.environ:
        raise NotPrepared(f"{HOME} is set: Spark is that one, not the installed package")
    try:
        directory = _cache_directory()
        home = _spark_home(directory)
        archive = directory / ARCHIVE
        if archive.is_file():
            return archive, False
        with tempfile.TemporaryDirectory(prefix=".making-", dir=directory) as scratch:
            temporary = Path(scratch) / ARCHIVE
            _run_session(home, temporary, Path(scratch))
            temporary.replace(archive)
    except (OSError, RuntimeError) as error:
        raise NotPrepared(str(error)) from error
    return archive, True


def _run_session(home: Path, archive: Path, scratch: Path) -> None:
    """Run a session of Spark whose JVM writes the archive when it ends."""
    options = f"{os.environ.get(OPTIONS, '')} -XX:ArchiveClassesAtExit={archive}".strip()
    python = {"PYSPARK_PYTHON": sys.executable}
    environment = {**os.environ, **python, HOME: str(home), OPTIONS: options}
    program = Path(__file__).with_name("quick_start_session.py")
    try:
        result = subprocess.run(  # noqa: S603
            [sys.executable, str(program), str(scratch)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PREPARE_MAX_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotPrepared(f"the session did not end within {PREPARE_MAX_S} s") from None
    if result.returncode or not archive.is_file():
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise NotPrepared(f"the session failed: {lines[-1] if lines else result.returncode}")


def _cache_directory() -> Path:
    """Return the cache directory for this PySpark, this Java and its options."""
    options = os.environ.get(JAVA_OPTIONS, "")
    identity = "\n".join(
        (
            str(_pyspark_directory()),
            version("pyspark"),
            _java_identity(),
            options,
            STARTUP_SCRIPT.read_text("utf-8"),
        )
    )
    return cache() / hashlib.sha256(identity.encode()).hexdigest()[:16]


def _pyspark_directory() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RuntimeError("pyspark is not installed")
    return Path(spec.origin).resolve().parent


def _java_identity() -> str:
    """Return a text that identifies the Java installation: its path and modification time."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise RuntimeError("there is no java in the PATH")
    java_path = Path(java).resolve(strict=True)
    return f"{java_path} {java_path.stat().st_mtime_ns}"


def _spark_home(directory: Path) -> Path:
    """Return a Spark home with links to the installed package but without its zips.

    The home is created if it is missing.
    """
    home, pyspark_directory = directory / "home", _pyspark_directory()
    if home.is_dir():
        return home
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".home-", dir=directory))
    for name in LINKED_NAMES:
        if (pyspark_directory / name).exists():
            (temporary / name).symlink_to(pyspark_directory / name)
    library = temporary / "python" / "lib"
    library.mkdir(parents=True)
    if find_spec("py4j") is None:
        for py4j in (pyspark_directory / "python" / "lib").glob("py4j-*.zip"):
            (library / py4j.name).symlink_to(py4j)
    (temporary / STARTUP_MODULE).parent.mkdir()
    shutil.copyfile(STARTUP_SCRIPT, temporary / STARTUP_MODULE)
    try:
        temporary.rename(home)
    except OSError:  # Another process was first.
        shutil.rmtree(temporary)
        if not home.is_dir():
            raise
    return home
