#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a Debian package for the release that this machine runs: the broker with all that it needs in
# /opt/headrace, its unit, its user, and its settings in /etc/headrace.
#
#     tools/deb.sh INTO [WHEEL]      WHEEL is of the system's Python; without one it is compiled here
#
# It needs dpkg-deb, python3-venv, and without WHEEL what `pip install .` needs. PYTHON names another
# Python than /usr/bin/python3, of the same version.
set -euo pipefail
into=$(realpath "${1:?where the package is written to}")
root=$(realpath "$(dirname "$0")/..")
wheel=${2:+$(realpath "$2")}
python=${PYTHON:-/usr/bin/python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/stage
home=$stage/opt/headrace
minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
next=3.$((${minor#3.} + 1))

"$python" -m venv "$work/pip"
"$work/pip/bin/pip" install -q --target "$home/lib/python$minor/site-packages" "${wheel:-$root}"
rm -rf "$home/lib/python$minor/site-packages/bin"
version=$(PYTHONPATH=$home/lib/python$minor/site-packages "$python" -c 'import headrace; print(headrace.__version__)')

# A virtual environment as `python3 -m venv /opt/headrace` makes it, without pip.
install -d "$home/bin"
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' "$minor" >"$home/pyvenv.cfg"
ln -s "/usr/bin/python$minor" "$home/bin/python3"
cat >"$home/bin/headrace" <<'END'
#!/opt/headrace/bin/python3
import sys

from headrace.cli import main

sys.exit(main())
END
chmod 755 "$home/bin/headrace"
"$python" -m compileall -q -f -s "$stage" "$home/lib"  # The service may not write there.

install -D -m 644 "$root/deploy/headrace.service" "$stage/usr/lib/systemd/system/headrace.service"
install -D -m 644 "$root/deploy/headrace.sysusers" "$stage/usr/lib/sysusers.d/headrace.conf"
install -D -m 644 "$root/deploy/headrace.toml" "$stage/etc/headrace/headrace.toml"
for_grafana="$stage/usr/share/headrace/grafana/headrace.json"
for_prometheus="$stage/usr/share/headrace/prometheus/headrace.rules.yml"
install -D -m 644 "$root/deploy/grafana/headrace.json" "$for_grafana"
install -D -m 644 "$root/deploy/prometheus/headrace.rules.yml" "$for_prometheus"
install -D -m 644 "$root/LICENSE" "$stage/usr/share/doc/headrace/copyright"
install -D -m 644 "$root/NOTICE" "$stage/usr/share/doc/headrace/NOTICE"
install -d "$stage/usr/bin" "$stage/DEBIAN"
ln -s /opt/headrace/bin/headrace "$stage/usr/bin/headrace"

architecture=$(dpkg --print-architecture)
cat >"$stage/DEBIAN/control" <<END
Package: headrace
Version: $version
Architecture: $architecture
Maintainer: Headrace <dev@headrace.invalid>
Depends: python3 (>= $minor), python3 (<< $next), python3-minimal, libc6, libstdc++6, systemd
Section: net
Priority: optional
Installed-Size: $(du -sk "$stage" | cut -f1)
Description: durable AMQP message broker
 A broker for AMQP 0-8, 0-9, 0-9-1 and 0-10, with its client and its tools.
END
echo /etc/headrace/headrace.toml >"$stage/DEBIAN/conffiles"
cat >"$stage/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
systemd-sysusers headrace.conf
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl try-restart headrace.service
fi
END
cat >"$stage/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now headrace.service
fi
END
chmod 755 "$stage/DEBIAN/postinst" "$stage/DEBIAN/prerm"
install -d "$into"
dpkg-deb --root-owner-group --build "$stage" "$into/headrace_${version}_$architecture.deb"
