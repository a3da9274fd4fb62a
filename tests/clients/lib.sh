# Common to the scripts beside it: a volume in a directory of its own, a server on a unix socket.
# BIMETAL is the program under test.
set -eu -o pipefail

BIMETAL=${BIMETAL:-target/release/bimetal}
BIMETAL=$(realpath "$BIMETAL")
work=$(mktemp -d "${TMPDIR:-/tmp}/bimetal-clients-XXXXXX")
export XDG_RUNTIME_DIR=$work
socket=$work/nbd.sock
uri="nbd+unix:///?socket=$socket"
server=

finish() {
    local code=$?
    if [[ -n $server ]]; then
        kill -KILL "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
    exit $code
}
trap finish EXIT
trap 'exit 1' INT TERM

# need PROGRAM...: skips the whole script where one is missing
need() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "$program is not installed"; exit 77; }
    done
}

# create FAST SLOW [OPTION...]: makes the volume
create() {
    local fast=$1 slow=$2
    shift 2
    "$BIMETAL" create "$work/v.toml" --fast "$work/fast.img?size=$fast" --slow "$work/slow.img?size=$slow" "$@" >/dev/null
}

# start: serves the volume and waits until it is ready
start() {
    : >"$work/out"
    "$BIMETAL" serve "$work/v.toml" --nbd "unix:$socket" >"$work/out" &
    server=$!
    local i
    for ((i = 0; i < 600; i++)); do
        grep -q '^ready: ' "$work/out" && return 0
        kill -0 "$server" 2>/dev/null || { echo "the server ended before it was ready"; exit 1; }
        sleep 0.05
    done
    echo "the server is not ready after 30 s"
    exit 1
}

# stop: SIGTERM, and exit code 0 within seconds
stop() {
    local begin=$SECONDS
    kill -TERM "$server"
    wait "$server" || { echo "the server ended with $? after SIGTERM"; server=; exit 1; }
    server=
    ((SECONDS - begin <= 15)) || { echo "the server took $((SECONDS - begin)) s to stop"; exit 1; }
}

# crash: SIGKILL
crash() {
    kill -KILL "$server"
    wait "$server" 2>/dev/null || true
    server=
}

# clean: the closed volume is clean
clean() {
    "$BIMETAL" check "$work/v.toml" --json >"$work/check.json" || { cat "$work/check.json"; exit 1; }
    grep -q '"clean": true' "$work/check.json"
}
