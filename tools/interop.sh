#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Brings what tests/interop drives and is no Python package: rabbitmq-c's tools, Node and amqplib
# (into build/interop), Wireshark's tshark, and the clients of AMQP 0-8 that Debian has, for Python
# and for Perl (into build/interop/debian).
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
amqplib=2.3.1
folder=build/interop

missing=()
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
command -v amqp-publish >/dev/null || missing+=(amqp-tools)
command -v tshark >/dev/null || missing+=(tshark)
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "== installing ${missing[*]} (tests/interop drives them)"
        export DEBIAN_FRONTEND=noninteractive
        apt-get -qq update
        apt-get -qq -y install --no-install-recommends "${missing[@]}"
    else
        echo "headrace: tests/interop needs ${missing[*]}; install them, on Debian: apt-get install ${missing[*]}." >&2
        exit 1
    fi
fi

installed=$(node -p "require('./$folder/node_modules/amqplib/package.json').version" 2>/dev/null || true)
if [ "$installed" != "$amqplib" ]; then
    echo "== installing amqplib $amqplib into $folder"
    mkdir -p "$folder"
    [ -e "$folder/package.json" ] || echo '{"private": true}' > "$folder/package.json"
    npm install --prefix "$folder" --no-audit --no-fund --no-progress --silent "amqplib@$amqplib"
fi

debian=$folder/debian
if [ ! -e "$debian/usr/share/perl5/Net/AMQP.pm" ] || [ ! -d "$debian/usr/lib/python3/dist-packages/amqplib" ]; then
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        echo "headrace: tests/interop takes its clients of AMQP 0-8 from Debian's packages; it needs apt-get and dpkg-deb." >&2
        exit 1
    fi
    echo "== unpacking clients of AMQP 0-8 into $debian"
    mkdir -p "$debian"
    packages=$(mktemp -d)
    (
        cd "$packages"
        apt-get -qq download python3-amqplib libnet-amqp-perl libxml-libxml-perl \
            libxml-namespacesupport-perl libxml-sax-base-perl libxml-sax-perl \
            libclass-accessor-perl libclass-data-inheritable-perl libsub-name-perl 2>/dev/null
    )
    for package in "$packages"/*.deb; do
        dpkg-deb -x "$package" "$debian"
    done
    rm -r "$packages"
fi
