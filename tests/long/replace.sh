#!/usr/bin/env bash
# Each device of a volume makes way for another one while fio writes and verifies: no error, the throughput meanwhile beside that
# without, and a cancelled one. See README.md.
#
#   bash tests/long/replace.sh
#
# BIMETAL is the program.
# Exit codes: 0 done, 1 a failure, 77 skipped: this machine cannot.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/clients/lib.sh
. "$here/../clients/lib.sh"
need fio jq
fio --enghelp 2>/dev/null | grep -qw nbd || { echo "fio has no engine nbd"; exit 77; }

# verify SECONDS NAME: mixed writes that are read again and held against their checksums
verify() {
    fio --name=verify --ioengine=nbd --uri="$uri" --rw=randrw --bsrange=4k-256k --iodepth=16 --size=700M --time_based \
        --runtime="$1" --verify=crc32c --verify_backlog=256 --output-format=json --output="$work/$2.json" 2>"$work/$2.err" ||
        { cat "$work/$2.err"; fail "fio $2"; }
    [[ $(jq '.jobs[0].error' "$work/$2.json") == 0 ]] || fail "fio $2 has found something"
}

# rate NAME: bytes that it read and wrote in a second
rate() { jq '.jobs[0] | .read.bw_bytes + .write.bw_bytes' "$work/$1.json"; }

# standing: how far a replacement is
standing() { "$BIMETAL" replace "$work/v.toml" --json 2>/dev/null | jq -r .state; }

create 256M 2G
start
verify 20 alone
echo "alone: $(($(rate alone) >> 20)) MiB/s"
for device in slow:2G fast:256M; do
    tier=${device%:*}
    "$BIMETAL" replace "$work/v.toml" "--$tier" "$work/$tier-2.img?size=${device#*:}" >"$work/replaced" &
    replacing=$!
    verify 20 "$tier"
    wait "$replacing" || fail "the $tier device was not replaced"
    cat "$work/replaced"
    echo "while the $tier device is replaced, and after it: $(($(rate "$tier") >> 20)) MiB/s, $(($(rate "$tier") * 100 / $(rate alone))) % of alone"
    rm "$work/$tier.img"
done
stop
clean
echo "clean"

start
"$BIMETAL" replace "$work/v.toml" --slow "$work/slow-3.img?size=2G" >/dev/null 2>&1 &
replacing=$!
verify 3 cancelled
"$BIMETAL" replace "$work/v.toml" --cancel
wait "$replacing" || true
verify 3 after
stop
clean
rm "$work/slow-3.img"
