#!/usr/bin/env bash
# Run a command with NOCKA_TEST_POSTGRES_URL naming a Postgres of its own, or without one where none is installed.
set -euo pipefail

binaries=$(ls -d /usr/lib/postgresql/*/bin /opt/homebrew/opt/postgresql*/bin 2>/dev/null | sort -V | tail -n 1 || true)
if [ -n "${NOCKA_TEST_POSTGRES_URL:-}" ] || [ ! -x "$binaries/initdb" ]; then
    exec "$@"
fi
folder=$(mktemp -d /tmp/nocka-postgres.XXXXXX)
as_user=()
if [ "$(id -u)" = 0 ]; then # which the server refuses to run as
    as_user=(runuser -u postgres --)
    chown postgres "$folder"
fi
# A free port, and a socket nowhere.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
control() { (cd "$folder" && "${as_user[@]}" "$binaries/pg_ctl" -D "$folder/data" "$@" >>"$folder.log" 2>&1); }
trap 'control -m immediate -w stop || true; rm -rf "$folder" "$folder.log"' EXIT
(cd "$folder" && "${as_user[@]}" "$binaries/initdb" -D data -U nocka -A trust -E UTF8 --locale=C >>"$folder.log" 2>&1) ||
    { cat "$folder.log"; exit 1; }
control -l "$folder/server.log" -w -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories=" start ||
    { cat "$folder.log"; exit 1; }
NOCKA_TEST_POSTGRES_URL="postgresql://nocka@127.0.0.1:$port/postgres" "$@"
