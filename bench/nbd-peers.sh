#!/usr/bin/env bash
# Speed over NBD, beside nbdkit's file plugin and qemu-nbd, on the same kind of file in the same place.
#
#   bench/nbd-peers.sh [DIR...]        default: /dev/shm and /var/tmp (a tmpfs and a disk)
#
# Bimetal serves a volume of two files in DIR: all on the fast tier (the first FAST bytes written and read again),
# and all landing (4 KiB writes to chunks whose home is the slow tier). The peers serve one file of the same size,
# filled. Rounds alternate between the servers, because a machine's speed drifts; what counts are the ratios and the
# server's processor time per I/O. Printed: IOPS (median of the rounds), the ratio to each peer, microseconds of
# server CPU per I/O.
#
# On a disk, nbdkit's file plugin works in the page cache; Bimetal and qemu-nbd (cache=none) go past it.
#
# Environment:
#   NBDLOAD   path of a lean load generator that takes --uri --bs --qd --rw read|write --seconds --span --offset
#             --server-pid and prints JSON with .iops and .server_cpu_s_per_kio; without it fio's nbd engine is used,
#             which is itself the limit beyond about 100,000 IOPS
#   BIMETAL   the program [target/release/bimetal]
#   ROUNDS    [3]   SECONDS_EACH [2]   SPAN of the working set [256M]   LANDING zone [2G]
#   PASSTHROUGH  path of the example server without an engine, as one more peer
set -eu -o pipefail

cd "$(dirname "$0")/.."
BIMETAL=$(realpath "${BIMETAL:-${CARGO_TARGET_DIR:-target}/release/bimetal}")
ROUNDS=${ROUNDS:-3} SECONDS_EACH=${SECONDS_EACH:-2} SPAN=${SPAN:-256M} LANDING=${LANDING:-2G}
dirs=("$@")
((${#dirs[@]})) || dirs=(/dev/shm /var/tmp)
for program in nbdkit qemu-nbd nbdcopy jq; do
    command -v "$program" >/dev/null || { echo "$program is not installed" >&2; exit 2; }
done
span=$(numfmt --from=iec "$SPAN") landing=$(numfmt --from=iec "$LANDING")

pids=() work=
cleanup() {
    local pid
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    [[ -z $work ]] || rm -rf "$work"
    pids=() work=
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# load SOCKET PID RW QD OFFSET: prints IOPS and microseconds of server CPU per I/O
load() {
    local socket=$1 pid=$2 rw=$3 qd=$4 offset=$5 uri="nbd+unix:///?socket=$1"
    if [[ -n ${NBDLOAD:-} ]]; then
        "$NBDLOAD" --uri "$uri" --bs 4k --qd "$qd" --rw "$rw" --seconds "$SECONDS_EACH" --span "$span" \
            --offset "$offset" --server-pid "$pid" | jq -r '"\(.iops) \(.server_cpu_s_per_kio * 1000)"'
        return
    fi
    local before after ticks
    ticks=$(getconf CLK_TCK)
    before=$(awk '{print $14 + $15}' "/proc/$pid/stat")
    fio --name=x --ioengine=nbd --uri="$uri" --rw="rand$rw" --bs=4k --iodepth="$qd" --offset="$offset" --size="$span" \
        --time_based --runtime="$SECONDS_EACH" --output-format=json --output="$work/fio.json" >"$work/fio.log" ||
        { cat "$work/fio.log" >&2; exit 1; }
    # What fio has to say besides stands before the document.
    sed -i '/^{/,$!d' "$work/fio.json"
    after=$(awk '{print $14 + $15}' "/proc/$pid/stat")
    jq -r --argjson cpu "$(((after - before) * 1000000 / ticks))" \
        ".jobs[0].$rw | \"\\(.iops) \\(\$cpu / .total_ios)\"" "$work/fio.json"
}

wait_for() { # wait_for SOCKET
    local i
    for ((i = 0; i < 200; i++)); do [[ -S $1 ]] && return 0; sleep 0.05; done
    echo "nothing listens on $1" >&2
    exit 1
}

fill() { # fill SOCKET BYTES: data everywhere, nothing compressible
    head -c "$2" /dev/urandom | nbdcopy --flush - "nbd+unix:///?socket=$1"
}

declare -A iops cpu
median() { printf '%s\n' $1 | sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

compare() { # compare TITLE RW OFFSET SERVER...; a server is NAME:SOCKET:PID
    local title=$1 rw=$2 offset=$3 qd round server name socket pid got
    shift 3
    for qd in 1 32; do
        iops=() cpu=()
        for ((round = 0; round < ROUNDS; round++)); do
            for server in "$@"; do
                IFS=: read -r name socket pid <<<"$server"
                # Only Bimetal tells the parts of its volume apart.
                got=$(load "$socket" "$pid" "$rw" "$qd" "$([[ $name == bimetal ]] && echo "$offset" || echo 0)")
                iops[$name]+=" ${got% *}"
                cpu[$name]+=" ${got#* }"
            done
        done
        local ours
        ours=$(median "${iops[bimetal]}")
        printf '%-34s' "$title, $rw, QD $qd"
        for server in "$@"; do
            name=${server%%:*}
            awk -v n="$name" -v i="$(median "${iops[$name]}")" -v c="$(median "${cpu[$name]}")" -v o="$ours" \
                'BEGIN {printf "  %s %.0f (%.1f us)%s", n, i, c, n == "bimetal" ? "" : sprintf(" x%.2f", o / i)}'
        done
        echo
    done
}

for dir in "${dirs[@]}"; do
    work=$(mktemp -d "$dir/bimetal-bench-XXXXXX")
    export XDG_RUNTIME_DIR=$work
    # The fast tier holds the span, as much again, and a landing zone for what a round of writes brings.
    fast=$((span * 2 + landing)) slow=$((span * 4 + landing * 2))
    "$BIMETAL" create "$work/v.toml" --fast "$work/fast.img?size=$fast" --slow "$work/slow.img?size=$slow" \
        --landing "$landing" >/dev/null
    "$BIMETAL" serve "$work/v.toml" --nbd "unix:$work/bimetal.sock" >"$work/out" &
    pids+=($!)
    servers=("bimetal:$work/bimetal.sock:$!")
    truncate -s "$span" "$work/nbdkit.img"
    cp "$work/nbdkit.img" "$work/qemu.img"
    nbdkit --foreground -U "$work/nbdkit.sock" file "$work/nbdkit.img" &
    pids+=($!)
    servers+=("nbdkit:$work/nbdkit.sock:$!")
    cache=none
    [[ $(stat -f -c %T "$dir") != tmpfs ]] || cache=writeback
    qemu-nbd --socket="$work/qemu.sock" --format=raw --cache=$cache --aio=threads --persistent --shared=8 \
        --discard=unmap "$work/qemu.img" &
    pids+=($!)
    servers+=("qemu-nbd:$work/qemu.sock:$!")
    if [[ -n ${PASSTHROUGH:-} ]]; then
        truncate -s "$span" "$work/plain.img"
        "$PASSTHROUGH" "$work/plain.img" "$work/plain.sock" >/dev/null 2>&1 &
        pids+=($!)
        servers+=("passthrough:$work/plain.sock:$!")
    fi
    for server in "${servers[@]}"; do
        socket=${server#*:} socket=${socket%:*}
        wait_for "$socket"
        fill "$socket" "$span"
    done
    echo "== $dir ($(stat -f -c %T "$dir")), span $SPAN"
    compare "fast tier" read 0 "${servers[@]}"
    compare "fast tier" write 0 "${servers[@]}"
    # All of the fast tier is filled, so that what lies behind has its home on the slow one.
    fill "$work/bimetal.sock" "$((fast + span))"
    compare "landing" write "$fast" "${servers[@]}"
    "$BIMETAL" status "$work/v.toml"
    cleanup
done
