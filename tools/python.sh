# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Functions of the scripts that set up: which Python is used, and which packages are its.

PYTHON_MIN=11 # Of Python 3.

is_new_enough() {
    "$1" -c "import sys; sys.exit(sys.version_info < (3, $PYTHON_MIN))" 2>/dev/null
}

# Prints the Python to use: $PYTHON, python3, or the newest python3.N in PATH. Fails if none is new enough.
find_python() {
    local minor
    if [ -n "${PYTHON:-}" ]; then
        is_new_enough "$PYTHON" && echo "$PYTHON"
        return
    fi
    if is_new_enough python3; then
        echo python3
        return
    fi
    for ((minor = PYTHON_MIN + 9; minor >= PYTHON_MIN; minor--)); do
        if is_new_enough "python3.$minor"; then
            echo "python3.$minor"
            return
        fi
    done
    return 1
}

# The prefix of the packages of interpreter $1: python3 if it is the distribution's default, else python3.N.
python_package() {
    local version default
    version=$("$1" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    default=$(readlink -f /usr/bin/python3 2>/dev/null || true)
    if [ "${default##*/}" = "$version" ] || [ -z "$default" ]; then
        echo python3
    else
        echo "$version"
    fi
}

# Prints the newest python3.N that the lists of packages offer, if python3 itself is too old there.
newest_python_package() {
    local names default
    command -v apt-cache >/dev/null || return 0
    default=$(apt-cache depends python3 2>/dev/null | sed -n 's/.*Depends: python3\.\([0-9]*\)$/\1/p' | head -n 1)
    if [ "${default:-0}" -ge "$PYTHON_MIN" ]; then
        echo python3
        return
    fi
    names=$(apt-cache pkgnames python3. 2>/dev/null | sed -n 's/^python3\.\([0-9]*\)$/\1/p' | sort -n | tail -n 1)
    [ "${names:-0}" -lt "$PYTHON_MIN" ] || echo "python3.$names"
}

has_headers() {
    [ -e "$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ]
}
