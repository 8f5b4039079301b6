#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Brings RabbitMQ for tests/foreign, from Debian, where it may install packages. The service that the
# package brings is not started: the tests run a node of their own. When RabbitMQ is not to be had it
# says why in a sentence and exits with 3.
set -euo pipefail
exec </dev/null

there() { compgen -G "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server" >/dev/null; }
there && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "headrace: make interop needs RabbitMQ, which this user may not install; on Debian: apt-get install rabbitmq-server." >&2
    exit 3
fi
echo "== installing rabbitmq-server (tests/foreign runs it)"
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
options=(-qq -y -o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o DPkg::Lock::Timeout=120)
for step in update "install --no-install-recommends rabbitmq-server"; do
    # shellcheck disable=SC2086
    if ! timeout 300 apt-get "${options[@]}" $step >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        break
    fi
done
if ! there; then
    echo "headrace: make interop needs RabbitMQ, and apt-get could not install rabbitmq-server." >&2
    exit 3
fi
