#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Brings the programs of the system that `make demo` or `make test` needs and this machine lacks.
#
#   tools/system.sh demo|test
#
# As root on Debian or Ubuntu it installs all of them in one call of apt-get. Else it names all of them in one
# message. The Python chosen is $PYTHON, or python3, or the newest python3.N: tools/python.sh. No package's name
# has a version of one distribution in it: names are those of the interpreter in use, or what the package lists
# of this machine offer.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/step.sh
. tools/python.sh
purpose=${1:?demo or test}

OS_RELEASE=${OS_RELEASE:-/etc/os-release}
JAVA_MIN=17 # What Spark runs on.
JAVA_MAX=25

packages=() # What apt-get has to install.
reasons=()  # What is missing, in words.

# lacks WHAT PACKAGE…
lacks() {
    reasons+=("$1")
    packages+=("${@:2}")
}

# need COMMAND PACKAGE…: a command that may also be in a folder of root's.
need() {
    command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ] || lacks "$1" "${@:2}"
}

candidate() { # The version of package $1 that the lists of this machine offer; nothing if none.
    apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p' | grep -vx '(none)' || true
}

java_package() { # The newest runtime that Spark runs on; the distribution's default where it is one.
    local version
    version=$(candidate default-jre-headless | sed -n 's/^[0-9]*:1\.\([0-9]*\).*/\1/p')
    if [ "${version:-0}" -ge "$JAVA_MIN" ] && [ "$version" -le "$JAVA_MAX" ]; then
        echo default-jre-headless
        return
    fi
    for ((version = JAVA_MAX; version >= JAVA_MIN; version--)); do
        if [ -n "$(candidate "openjdk-$version-jre-headless")" ]; then
            echo "openjdk-$version-jre-headless"
            return
        fi
    done
    echo default-jre-headless
}

java_version() { # The feature version of the java in use; 0 if none runs.
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    { "$java" -version 2>&1 || true; } | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1 | grep . || echo 0
}

check_java_home() {
    local version
    [ -n "${JAVA_HOME:-}" ] || return 0
    version=$(java_version)
    [ "$version" != 0 ] || die "JAVA_HOME is $JAVA_HOME, and no java runs there. Unset it, or set it to a Java $JAVA_MIN to $JAVA_MAX."
    [ "$version" -ge "$JAVA_MIN" ] ||
        die "JAVA_HOME is $JAVA_HOME, a Java $version. Spark needs $JAVA_MIN to $JAVA_MAX: unset it, or set it to one of these."
}

look() { # Find what is missing.
    packages=()
    reasons=()
    need make make
    local compiler=${CC:-cc}
    need "${compiler%% *}" gcc libc6-dev
    python=$(find_python || true)
    if [ -z "$python" ]; then
        local newest
        newest=$(newest_python_package)
        if [ -z "${PYTHON:-}" ] && [ -n "$newest" ]; then
            lacks "Python 3.11 or newer" "$newest" "$newest-venv" "$newest-dev"
        else
            lacks "Python 3.11 or newer (${PYTHON:-python3} is not)" python3 python3-venv python3-dev
        fi
    else
        local prefix
        prefix=$(python_package "$python")
        "$python" -c 'import ensurepip, venv' 2>/dev/null || lacks "Python's venv" "$prefix-venv"
        has_headers "$python" || lacks "Python's headers" "$prefix-dev"
    fi
    [ "$(java_version)" -ge "$JAVA_MIN" ] || lacks "Java $JAVA_MIN or newer (for Spark)" "$(java_package)"
    [ "$purpose" = test ] || return 0
    # What tests drive, besides what tools/peers.py unpacks.
    need git git
    need node nodejs
    need npm npm
    need perl perl
    need amqp-publish amqp-tools
    need tshark tshark
    need chromium chromium               # Ubuntu has it as a snap only.
    need chromedriver chromium-driver
    compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null || lacks "PostgreSQL" postgresql
    need systemd-analyze systemd
    need mkfs.ext4 e2fsprogs
    need losetup mount
    need ip iproute2
    need ps procps
    need openssl openssl
}

is_debian() {
    command -v apt-get >/dev/null && grep -qiE '^(ID|ID_LIKE)=.*(debian|ubuntu)' "$OS_RELEASE" 2>/dev/null
}

install() {
    export DEBIAN_FRONTEND=noninteractive
    # The same three times if a mirror stumbles: apt's own retries.
    apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"
}

check_java_home
look
[ ${#packages[@]} -gt 0 ] || exit 0

list=$(printf ', %s' "${reasons[@]}")
if ! is_debian; then
    die "these are missing: ${list:2}. Install them by this system's packages; on Debian and Ubuntu, this does it: apt-get install ${packages[*]}"
elif [ "$(id -u)" != 0 ]; then
    die "these are missing: ${list:2}. As root: apt-get update && apt-get install --no-install-recommends ${packages[*]}"
fi
step "reading the lists of packages" apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 update ||
    die "the package lists could not be read: see apt's words above. Is there a network, and are the sources in /etc/apt right?"
look # Names of packages depend on the lists.
available=()
for package in "${packages[@]}"; do
    if [ -n "$(candidate "$package")" ]; then
        available+=("$package")
    elif [ "$purpose" = test ] && [[ $package == chromium* ]]; then
        echo "headrace: this distribution has no package $package; the tests that need it are skipped."
    else
        die "this distribution has no package $package. What is missing: ${list:2}."
    fi
done
[ ${#available[@]} -gt 0 ] || exit 0
minutes="about a minute"
[ "$purpose" = demo ] || minutes="two to four minutes"
step "installing ${available[*]} ($minutes)" install "${available[@]}" ||
    die "apt-get could not install ${available[*]}: see its words above."

look
left=()
for reason in "${reasons[@]}"; do
    case $reason in
        chromium | chromedriver) ;; # Named above.
        *) left+=("$reason") ;;
    esac
done
if [ ${#left[@]} -gt 0 ]; then
    list=$(printf ', %s' "${left[@]}")
    if [[ $list == *Java* ]]; then
        die "packages are installed, but the java in PATH is not $JAVA_MIN or newer. Set JAVA_HOME to one in /usr/lib/jvm, e.g. $(compgen -G '/usr/lib/jvm/*-[1-9][0-9]-*' | head -n 1)."
    fi
    die "packages are installed, but these are still missing: ${list:2}."
fi
