#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Creates or refreshes the virtual environment $1: the extras $2, or all, and the command `headrace` running
# the compiled copy in build/compiled (see docs/explanation/architecture.md, "Builds").
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/step.sh
. tools/python.sh
venv=$1
extras=${2:-spark,lake,iceberg,dev}
FREE_MB=4000 # Of packages and what is compiled.

python=$(find_python) || die "Python 3.$PYTHON_MIN or newer is needed; tools/system.sh demo says how to get one."

# Two runs of make in one checkout take turns.
mkdir -p build
exec 9>build/venv.lock
flock -w 1800 9 || die "another make has been setting up $venv for half an hour; end it, then try again."

free=$(df -Pm . | awk 'NR == 2 { print $4 }')
[ -x "$venv/bin/python" ] || [ "$free" -ge "$FREE_MB" ] ||
    die "the disk of $PWD has $free MB left; setting up takes about $FREE_MB. Make room, then try again."

# An environment of another Python, of one that was removed meanwhile, or half made is made anew.
version_of() { "$1" -c 'import sys; print(sys.implementation.cache_tag, sys.prefix != sys.base_prefix and 1 or 0)' 2>/dev/null || true; }
if [ -e "$venv" ] && { [ "$(version_of "$venv/bin/python" | cut -d' ' -f1)" != "$(version_of "$python" | cut -d' ' -f1)" ] ||
    ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
    echo "== $venv is not a whole environment of $("$python" --version); it is made anew"
    rm -rf "$venv"
fi
[ -e "$venv" ] || step "creating $venv with $("$python" --version)" "$python" -m venv "$venv" ||
    { rm -rf "$venv"; die "$python could not make a virtual environment: see above."; }

pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }
# Without PEP 517 the pip of Debian 12 installs packages that are sources, PySpark among them, with no record of their files.
HEADRACE_PURE=1 step "installing headrace[$extras] into $venv (one to three minutes)" \
    pip install -q --progress-bar off --use-pep517 -e ".[$extras]" ||
    die "pip could not install the packages: see its words above. Is there a network, and room on the disk? What was installed is kept; try again."
echo "== compiling the hot path (two to three minutes on two cores, the first time only)"
"$venv/bin/python" build_ext.py ||
    die "the hot path could not be compiled: see above. HEADRACE_PURE=1 pip install . runs without, many times slower."
# Found before the path of the editable install, after PYTHONPATH.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$PWD/build/compiled" >"$site/00-headrace-compiled.pth"
