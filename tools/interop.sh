#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Brings what tests/interop drives and is no Python package: rabbitmq-c's tools, Node with amqplib and
# rabbitmq-client (into build/interop), Wireshark's tshark, the clients of AMQP 0-8 that Debian has,
# for Python and for Perl (into build/interop/debian), Qpid's client of 0-10 and its tools for Python 2
# with the Jython that runs them (into build/interop/qpid-python, qpid-tools and jython), RabbitMQ's
# client for Java with Eclipse's compiler, for there may be no other (into build/interop/java), PHP
# with two clients (into build/interop/php), and Ruby's bunny, Go's amqp091-go, rabbitmq-c as a
# library, RabbitMQ's client for .NET and Perl's AnyEvent::RabbitMQ, with what runs or compiles them
# (into folders of theirs). And clients of RabbitMQ's HTTP API: rabbitmqadmin, Nagios' plugins, Ansible
# with its modules for RabbitMQ, three of npm, rabbitmq-admin, and an MCP server in a venv of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
npm_packages=(axe-core@4.14.1 amqplib@2.3.1 rabbitmq-client@5.0.8
    rabbitmq-stats@1.2.4 amqp-stats@0.0.14 http-rabbitmq-manager@0.0.4)
mcp_server=4.0.0
rabbitmq_admin=0.2
python=.venv/bin/python
[ -x "$python" ] || python=python3
folder=build/interop

missing=()
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
command -v amqp-publish >/dev/null || missing+=(amqp-tools)
command -v tshark >/dev/null || missing+=(tshark)
command -v chromium >/dev/null || missing+=(chromium) # tests/console/browser opens the pages in it.
command -v chromedriver >/dev/null || missing+=(chromium-driver)
command -v systemd-analyze >/dev/null || missing+=(systemd) # tests/project asks it about the unit.
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

installed() {
    [ "$(node -p "require('./$folder/node_modules/${1%@*}/package.json').version" 2>/dev/null)" = "${1#*@}" ]
}
for package in "${npm_packages[@]}"; do
    installed "$package" && continue
    echo "== installing ${npm_packages[*]} into $folder"
    mkdir -p "$folder"
    [ -e "$folder/package.json" ] || echo '{"private": true}' > "$folder/package.json"
    npm install --prefix "$folder" --no-audit --no-fund --no-progress --silent "${npm_packages[@]}"
    break
done

# unpack FOLDER WHAT PACKAGE… has Debian's packages in build/interop/FOLDER; WHAT says what they are.
# The folder is there only when it is complete. LEFT_OUT are patterns of files that are not needed,
# AFTER is a command to run among what was unpacked.
unpack() {
    local into=$folder/$1 what=$2 packages package pattern exclude=()
    shift 2
    [ ! -d "$into" ] || return 0
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        echo "headrace: tests/interop takes $what from Debian's packages; it needs apt-get and dpkg-deb." >&2
        exit 1
    fi
    echo "== unpacking $what into $into"
    for pattern in ${LEFT_OUT:-}; do
        exclude+=("--exclude=$pattern")
    done
    packages=$(mktemp -d)
    (cd "$packages" && apt-get -qq download "$@" 2>/dev/null)
    mkdir "$packages/tree"
    for package in "$packages"/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x -C "$packages/tree" "${exclude[@]}" --exclude=./usr/share/doc
    done
    if [ -n "${AFTER:-}" ]; then
        (cd "$packages/tree" && $AFTER)
    fi
    mkdir -p "$folder"
    mv "$packages/tree" "$into"
    rm -r "$packages"
}

unpack debian "clients of AMQP 0-8" python3-amqplib libnet-amqp-perl libxml-libxml-perl \
    libxml-namespacesupport-perl libxml-sax-base-perl libxml-sax-perl \
    libclass-accessor-perl libclass-data-inheritable-perl libsub-name-perl

# from_pypi NAME VERSION SHA256 URL FILE: unpacks an old package into $folder/NAME unless FILE is there.
from_pypi() {
    [ ! -e "$folder/$1/$5" ] || return 0
    echo "== unpacking $1 $2 into $folder/$1"
    local unpacked
    unpacked=$(mktemp -d)
    python3 - "https://files.pythonhosted.org/packages/$4/$1-$2.tar.gz" "$3" "$unpacked/$1.tar.gz" <<'END'
import hashlib, sys, urllib.request

url, sha256, path = sys.argv[1:]
with urllib.request.urlopen(url, timeout=60) as answer:
    octets = answer.read(16 << 20)
if hashlib.sha256(octets).hexdigest() != sha256:
    sys.exit(f"headrace: {url} is not what it was")
with open(path, "wb") as file:
    file.write(octets)
END
    tar -xzf "$unpacked/$1.tar.gz" -C "$unpacked"
    mkdir -p "$folder"
    rm -rf "${folder:?}/$1"
    mv "$unpacked/$1-$2" "$folder/$1"
    rm -r "$unpacked"
}

# Nothing else of ours speaks 0-10; they are as they were published, and no Python 3 could run them.
from_pypi qpid-python 1.36.0-1 \
    1a341981723a7980163e6d33530f29133433742f6f9b5b12b46d5d239548afee \
    2a/33/026ac50a29a85d5d54dd7784a98d624f6142cb07ce185ed268ef9bd3b6dc \
    qpid/messaging/driver.py
from_pypi qpid-tools 1.36.0-1 \
    14af55c6e47bcc24b2199110d57242e014f05708fba1d8d224254c917131505b \
    c1/2d/faf3a1956c5b28432fb96ef922089979a65e89b073e1bbfec6e012c7871a \
    bin/qpid-config

unpack jython Jython jython libantlr3-runtime-java libasm-java libbcpkix-java libbcprov-java \
    libguava-java libicu4j-java libjffi-java libjffi-jni libjline2-java \
    libjnr-constants-java libjnr-ffi-java libjnr-netdb-java libjnr-posix-java \
    libjnr-x86asm-java libnetty-java

jars() {
    local jar
    for jar in amqp-client slf4j-api ecj; do
        cp -L "usr/share/java/$jar.jar" .
    done
    rm -r usr
}
AFTER=jars unpack java "RabbitMQ's Java client" librabbitmq-client-java libslf4j-java libecj-java

if [ ! -d "$folder/php" ]; then
    version=$(apt-cache depends php-cli | sed -n 's/.*Depends: \(php[0-9.]*\)-cli/\1/p')
    wanted=("$version-cli" "$version-common" "$version-mbstring" "$version-amqp"
        php-amqplib php-phpseclib3 php-constant-time php-random-compat)
    # And the libraries that this machine lacks.
    libraries=$(apt-get -qq -s --no-install-recommends install "${wanted[@]}" 2>/dev/null \
        | awk '$1 == "Inst" && $2 ~ /^lib/ { print $2 }')
    # shellcheck disable=SC2086  # One word each.
    unpack php "PHP and its clients" "${wanted[@]}" $libraries
fi
# tests/console/test_prometheus.py has it scrape the metrics.
unpack prometheus "Prometheus and promtool" prometheus
unpack ruby "Ruby and bunny" ruby3.1 libruby3.1 ruby-bunny ruby-amq-protocol ruby-rbtree ruby-sorted-set
unpack rabbitmq-c "rabbitmq-c" librabbitmq4 librabbitmq-dev
unpack perl "AnyEvent::RabbitMQ" libanyevent-rabbitmq-perl libanyevent-perl amqp-specs libnet-amqp-perl libreadonly-perl \
    libb-hooks-endofscope-perl libb-hooks-op-check-perl libclass-accessor-perl libclass-data-inheritable-perl \
    libclass-inspector-perl libdevel-callchecker-perl libdevel-globaldestruction-perl libdynaloader-functions-perl \
    libexporter-tiny-perl libfile-sharedir-perl liblist-moreutils-perl liblist-moreutils-xs-perl \
    libmodule-implementation-perl libmodule-runtime-perl libnamespace-clean-perl libpackage-stash-perl \
    libparams-classify-perl libsub-exporter-progressive-perl libsub-identify-perl libsub-name-perl libtry-tiny-perl \
    libvariable-magic-perl libxml-libxml-perl libxml-namespacesupport-perl libxml-sax-base-perl libxml-sax-perl
unpack mono "Mono and RabbitMQ's .NET client" mono-runtime-common mono-runtime-sgen mono-mcs libmono-rabbitmq4.0-cil \
    libmono-corlib4.5-dll libmono-corlib4.5-cil libmono-system4.0-cil libmono-system-core4.0-cil libmono-system-xml4.0-cil \
    libmono-system-security4.0-cil libmono-system-configuration4.0-cil libmono-system-numerics4.0-cil \
    libmono-security4.0-cil libmono-microsoft-csharp4.0-cil
# Its tests wait as long for what comes as a quick machine needs; ours may do much else. They are
# compiled here, and with them all that our program needs.
compiled_go() {
    local home=$PWD/usr
    local client=$home/share/gocode/src/github.com/rabbitmq/amqp091-go
    sed -i -E 's/time\.After\([0-9]+ \* time\.Millisecond\)/time.After(100 * time.Second)/' \
        "$client/integration_test.go"
    cd "$client"
    GOROOT=$home/lib/go-1.19 GOPATH=$home/share/gocode GOCACHE=$home/cache GO111MODULE=off CGO_ENABLED=0 \
        "$home/lib/go-1.19/bin/go" test -vet=off -tags=integration -c -o "$home/bin/amqp091.test" .
}
# Without Go's own tests, and its commands as packages.
LEFT_OUT="./usr/share/go-1.19/test ./usr/share/go-1.19/api */testdata */pkg/linux_amd64/cmd" \
    AFTER=compiled_go unpack go "Go and amqp091-go" golang-1.19-go golang-1.19-src \
    golang-github-rabbitmq-amqp091-go-dev golang-uber-goleak-dev

# --- Clients of the HTTP API ----------------------------------------------------------------------
LEFT_OUT="./usr/lib ./usr/share ./usr/sbin ./etc ./var ./lib" unpack rabbitmqadmin "rabbitmqadmin" rabbitmq-server
unpack nagios "Nagios' plugins for RabbitMQ" nagios-plugins-rabbitmq libmonitoring-plugin-perl libwww-perl libjson-perl \
    liburi-perl libclass-accessor-perl libclone-perl libconfig-tiny-perl libencode-locale-perl libfile-listing-perl \
    libhtml-parser-perl libhtml-tagset-perl libhttp-cookies-perl libhttp-date-perl libhttp-message-perl \
    libhttp-negotiate-perl libio-html-perl liblwp-mediatypes-perl libmath-calc-units-perl libmodule-implementation-perl \
    libmodule-runtime-perl libnet-http-perl libparams-validate-perl libregexp-ipv6-perl libsub-name-perl libtimedate-perl \
    libtry-tiny-perl libwww-robotrules-perl
# Of Ansible's hundreds of collections only that for RabbitMQ, and the one that prints JSON.
collections=./usr/lib/python3/dist-packages/ansible_collections
LEFT_OUT="$collections/[!ac]* $collections/a[!n]* $collections/ansible/[!p]* $collections/c[!o]*
    $collections/community/[!r]* $collections/community/ro* $collections/containers" \
    unpack ansible "Ansible" ansible ansible-core python3-resolvelib

if [ ! -d "$folder/rabbitmq-admin" ]; then
    echo "== installing rabbitmq-admin $rabbitmq_admin into $folder/rabbitmq-admin"
    "$python" -m pip install --quiet --no-deps --target "$folder/rabbitmq-admin" "rabbitmq-admin==$rabbitmq_admin"
fi
if [ ! -x "$folder/mcp/bin/amq-mcp-server-rabbitmq" ]; then
    echo "== installing amq-mcp-server-rabbitmq $mcp_server into $folder/mcp"
    "$python" -m venv "$folder/mcp"
    "$folder/mcp/bin/python" -m pip install --quiet "amq-mcp-server-rabbitmq==$mcp_server"
fi
