#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Brings RabbitMQ for tests/foreign, from Debian, where it may install packages. The service that the
# package brings is not started: the tests run a node of their own.
set -euo pipefail
exec </dev/null

compgen -G "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server" >/dev/null && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "headrace: make interop needs RabbitMQ, which this user may not install; on Debian: apt-get install rabbitmq-server." >&2
    exit 1
fi
echo "== installing rabbitmq-server (tests/foreign runs it)"
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
apt-get -qq update
apt-get -qq -y install --no-install-recommends rabbitmq-server
