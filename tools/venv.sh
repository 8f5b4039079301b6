#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Creates or refreshes the virtual environment $1: all extras, and the command `headrace` running
# the compiled copy in build/compiled (see docs/explanation/architecture.md, "Builds").
set -euo pipefail
venv=$1
python=${PYTHON:-python3}

die() { echo "headrace: $*" >&2; exit 1; }

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    die "Python 3.11 or newer is needed and '$python' is not; set PYTHON, e.g. make venv PYTHON=python3.12."
if ! [ -x "$venv/bin/python" ]; then
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        die "the venv module of Python is missing; install it, on Debian: apt-get install python3-venv."
fi
command -v "${CC:-cc}" >/dev/null ||
    die "a C compiler is needed to build the hot path; install one, on Debian: apt-get install gcc python3-dev."
header=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
[ -e "$header" ] ||
    die "the C headers of Python are missing; install them, on Debian: apt-get install python3-dev."

java_version() {  # The feature version of the java found, or 0.
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    command -v "$java" >/dev/null || { echo 0; return; }
    "$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1 | grep . || echo 0
}

if [ "$(java_version)" -lt 17 ]; then
    if [ "$(id -u)" = 0 ] && grep -qiE '^(ID|ID_LIKE)=.*(debian|ubuntu)' /etc/os-release 2>/dev/null; then
        echo "== installing openjdk-17-jre-headless (Spark needs Java 17 or newer)"
        export DEBIAN_FRONTEND=noninteractive
        apt-get -qq update </dev/null
        apt-get -qq -y install --no-install-recommends openjdk-17-jre-headless </dev/null
    else
        die "Spark needs a Java runtime, version 17 or newer; install one, on Debian: apt-get install openjdk-17-jre-headless."
    fi
fi

if ! [ -x "$venv/bin/python" ]; then
    echo "== creating $venv"
    "$python" -m venv "$venv"
fi
pip=("$venv/bin/python" -m pip --disable-pip-version-check)
echo "== installing headrace[spark,lake,iceberg,dev] into $venv"
HEADRACE_PURE=1 "${pip[@]}" install -q --progress-bar on -e '.[spark,lake,iceberg,dev]' </dev/null
echo "== compiling"
"$venv/bin/python" build_ext.py
# Found before the path of the editable install, after PYTHONPATH.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$PWD/build/compiled" > "$site/00-headrace-compiled.pth"
