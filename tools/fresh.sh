#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries the commands of the README as a new user would: on a fresh root of a Debian, with git and make only.
#
#   tools/fresh.sh SUITE [demo|test|ci]…      e.g. tools/fresh.sh trixie demo test
#
# It makes the root by debootstrap in a temporary folder, clones HEAD of this checkout into it, runs the commands
# there one after the other (both of the README unless some are named; `ci` is .ci/run), and prints for each the
# minutes by the clock and of processor. It needs root, some 12 GB of disk and a network. What this machine has set
# for it (resolver, proxies, certificates, and the settings of apt, pip and npm) is set there as well.
#
#   HEADRACE_FRESH=FOLDER  make the root there and keep it, or go on in it; else it is removed at the end
#   MIRROR=URL             where debootstrap takes packages from; else where this machine does
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/step.sh

suite=${1:-}
[ -n "$suite" ] || die "usage: tools/fresh.sh SUITE [demo|test|ci]…"
shift
[ $# -gt 0 ] || set -- demo test
[ "$(id -u)" = 0 ] || die "only root makes a root: run it as root."
command -v debootstrap >/dev/null || die "debootstrap is missing; on Debian: apt-get install debootstrap."

mirror=${MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep -m 1 -E '/debian/?$' || true)}
root=${HEADRACE_FRESH:-$(mktemp -d -t headrace-fresh-XXXXXX)}
logs=$PWD/build/fresh
HOME_THERE=/root # The home of root in a fresh root.
place=$root$HOME_THERE
mkdir -p "$root" "$logs"
chmod 755 "$root" # It is the / of users that tests run programs as; mktemp would have it be for root only.

mounted=()
end() {
    local mount
    for mount in "${mounted[@]}"; do umount -l "$mount" 2>/dev/null || true; done
    # A mount that is left would be emptied with the root.
    if [ -z "${HEADRACE_FRESH:-}" ] && ! grep -qE " $root(/| )" /proc/mounts; then rm -rf "$root"; fi
}
trap end EXIT

if [ ! -e "$root/etc/os-release" ]; then
    step "making a root of $suite in $root (about two minutes)" \
        debootstrap --variant=minbase --include=ca-certificates,git,make "$suite" "$root" ${mirror:+"$mirror"} ||
        die "debootstrap could not make a root of $suite: see above."
fi
# Tests that make networks or file systems of their own need a `/` that is a mount, as a machine's is.
if ! mountpoint -q "$root"; then
    mount --bind "$root" "$root"
    mounted=("$root")
fi
for kind in proc sys dev dev/pts dev/shm; do
    mkdir -p "$root/$kind"
    mountpoint -q "$root/$kind" && continue
    mount --bind "/$kind" "$root/$kind"
    mounted=("$root/$kind" "${mounted[@]}")
done

# The network of this machine, which is not what is tried.
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/xdg/pip /etc/apt/apt.conf.d/*proxy*; do
    [ -e "$file" ] || continue
    mkdir -p "$root$(dirname "$file")"
    cp -rL "$file" "$root$(dirname "$file")/"
done
[ ! -e "$HOME/.npmrc" ] || cp -L "$HOME/.npmrc" "$root$HOME_THERE/.npmrc"
environment=(HOME="$HOME_THERE" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb CI=true)
while IFS= read -r -d '' setting; do
    case ${setting%%=*} in
        *_proxy | *_PROXY | PIP_INDEX_URL | npm_config_registry)
            environment+=("$setting") ;;
    esac
done < <(env -0)
certificates=/etc/ssl/certs/ca-certificates.crt
if [ -e "$certificates" ]; then # An authority of this network may be among them.
    cp -L "$certificates" "$root/etc/ssl/host-certificates.crt"
    environment+=(PIP_CERT=/etc/ssl/host-certificates.crt npm_config_cafile=/etc/ssl/host-certificates.crt)
fi

commit=$(git rev-parse --short=12 HEAD)
rm -rf "$place/headrace"
git clone -q --no-hardlinks . "$place/headrace"
if [ -d ../shared ]; then # What a checkout of the developers has beside it.
    rm -rf "$place/shared"
    cp -r ../shared "$place/shared"
    chmod -R a-w "$place/shared"
fi

status=0
for command in "$@"; do
    case $command in
        demo | test) words="make $command" ;;
        ci) words="bash .ci/run" ;;
        *) die "$command is none of demo, test, ci." ;;
    esac
    log=$logs/$suite-$command.log
    echo "== $suite: $words at $commit; its output is in $log"
    begin=$SECONDS
    result=0
    # Bash's `time` counts the processor of all children.
    TIMEFORMAT='%U %S'
    { time chroot "$root" env -i "${environment[@]}" bash -c "cd && cd headrace && $words" >"$log" 2>&1 </dev/null; } 2>"$log.time" || result=$?
    processor=$(awk 'NF == 2 { printf "%.1f", ($1 + $2) / 60 }' "$log.time")
    minutes=$(awk -v s=$((SECONDS - begin)) 'BEGIN { printf "%.1f", s / 60 }')
    rm -f "$log.time"
    [ "$result" = 0 ] && word=ok || { word="FAILED with exit $result"; status=1; }
    echo "$suite $command: $word, $minutes minutes, $processor of processor. $(grep -aE '[0-9]+ (passed|failed)' "$log" | tail -n 1)"
    [ "$result" = 0 ] || { tail -n 15 "$log"; break; }
done
exit "$status"
