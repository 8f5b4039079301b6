#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Headrace beside RabbitMQ in one sitting: every workload, medians of three, W8 included.
#
#     tools/measure.sh [options of headrace bench]      needs Debian's rabbitmq-server and `make build`
#
# RabbitMQ runs in a directory of its own, on port 5692; nothing of an installed one is touched.
set -eu
cd "$(dirname "$0")/.."
here=$(pwd)
place=${MEASURE_DIR:-$(mktemp -d)}
rabbit=$(command -v /usr/lib/rabbitmq/bin/rabbitmq-server || command -v rabbitmq-server)
mkdir -p "$place/mnesia" "$place/log"
echo "[]." > "$place/plugins"
: > "$place/rabbitmq.conf"
cat > "$place/start" <<END
#!/bin/sh
export HOME="$place" RABBITMQ_NODENAME=measure@localhost RABBITMQ_NODE_PORT=5692
export RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_DIST_PORT=25692
export RABBITMQ_MNESIA_BASE="$place/mnesia" RABBITMQ_LOG_BASE="$place/log"
export RABBITMQ_ENABLED_PLUGINS_FILE="$place/plugins" RABBITMQ_CONFIG_FILE="$place/rabbitmq.conf"
exec "$(readlink -f "$rabbit")" > "$place/output" 2>&1
END
chmod +x "$place/start"
"$place/start" &
trap 'kill $(ss -ltnp "sport = :5692" | grep -o "pid=[0-9]*" | cut -d= -f2) 2>/dev/null || true' EXIT
until ss -ltn "sport = :5692" | grep -q 5692; do sleep 0.5; done
sleep 3
PYTHONPATH="$here/build/compiled" .venv/bin/python -m headrace.cli bench \
    amqp://guest:guest@127.0.0.1:5692/ --restart "$place/start" --serve "$@"
