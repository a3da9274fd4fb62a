#!/usr/bin/env bash
# ext4 on a volume whose slow device is an image of a Ceph cluster: delays, connections that are cut, an OSD that is killed, and
# kills of our server; and how fast that is beside the same client straight on the export. See README.md.
#
#   bash tests/long/ceph.sh [weather|kills|ratios]...
#
# BIMETAL is the program, MINUTES how long the weather lasts, KILLS how often the server is killed, SECONDS_EACH how long each
# ratio is measured.
# Exit codes: 0 done, 1 a failure, 77 skipped: this machine cannot.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/clients/lib.sh
. "$here/../clients/lib.sh"
PATH=$PATH:/usr/sbin:/sbin

missing=
for program in ceph-osd ceph-mon rbd qemu-nbd; do command -v "$program" >/dev/null || missing=1; done
if [[ -n $missing && $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "installing Ceph and qemu-nbd"
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends \
        ceph-mon ceph-osd ceph-common qemu-utils qemu-block-extra >/dev/null || exit 77
fi
need ceph-mon ceph-osd ceph rbd qemu-nbd fio jq python3 mkfs.ext4 e2fsck sha256sum
need_mounts

cluster=$work/c
proxy=
cutter=
after_all() {
    abandon
    [[ -z $cutter ]] || kill "$cutter" 2>/dev/null || true
    [[ -z $proxy ]] || kill "$proxy" 2>/dev/null || true
    "$here/ceph/cluster" stop "$cluster" || true
}
before_finish() { after_all; }

# between MS SECONDS: a proxy in front of the export, on $work/far.sock
between() {
    [[ -z $proxy ]] || { kill "$proxy"; wait "$proxy" || true; }
    python3 "$here/ceph/proxy.py" "$work/far.sock" "$cluster/nbd.sock" "$1" "$2" >"$work/cuts" &
    proxy=$!
    local i
    for ((i = 0; i < 100; i++)); do [[ ! -S $work/far.sock ]] || return 0; sleep 0.05; done
    fail "the proxy is there"
}

# new SLOW [OPTION...]: a volume on that, made anew and served
new() {
    "$BIMETAL" create "$work/v.toml" --force --fast "$work/fast.img?size=512M" \
        --slow "$1" "${@:2}" >/dev/null 2>"$work/created" || { cat "$work/created"; exit 1; }
    start
}

# format: a file system on it
format() {
    attach
    mkfs.ext4 -q -E nodiscard "$loop" || fail "mkfs.ext4"
    mount "$loop" "$work/mnt"
}

# tell: what the status says of the export
tell() { "$BIMETAL" status "$work/v.toml" --json | jq -c '.tiers[1].remote'; }

weather() {
    local minutes=${MINUTES:-10} job
    between 25 0
    new "nbd+unix:///?socket=$work/far.sock"
    format
    fio --name=weather --directory="$work/mnt" --size=200M --numjobs=4 --group_reporting --rw=randrw --rwmixread=40 \
        --bssplit=4k/60:64k/30:256k/10 --direct=1 --ioengine=libaio --iodepth=8 --fsync=64 --random_distribution=zipf:1.1 \
        --verify=crc32c --verify_backlog=256 --verify_fatal=1 --time_based --runtime="$((minutes * 60))" \
        --output-format=json --output="$work/fio.json" --aux-path="$work" >/dev/null &
    job=$!
    while sleep 20 && kill -USR1 "$proxy"; do :; done 2>/dev/null &
    cutter=$!
    sleep $((minutes * 30))
    "$here/ceph/cluster" kill "$cluster"
    echo "the OSD is killed"
    sleep 5
    "$here/ceph/cluster" start "$cluster"
    wait "$job" || { tail -n 3 "$work/fio.json"; tell; fail "fio verifies all it reads"; }
    # It has notes before the document.
    sed -i -n '/^{/,$p' "$work/fio.json"
    jq -e '.jobs[0].error == 0 and (.jobs[0].total_err // 0) == 0' "$work/fio.json" >/dev/null || fail "no error"
    jq -r '.jobs[0] | "\(.read.io_kbytes / 1024 | floor) MiB read, \(.write.io_kbytes / 1024 | floor) MiB written, " +
        "the slowest request took \(([.read.clat_ns.max, .write.clat_ns.max] | max) / 1e9) s"' "$work/fio.json"
    kill "$cutter"
    tell
    tell | jq -e '.breaks > 0' >/dev/null || fail "connections broke"
    umount "$work/mnt"
    e2fsck -fn "$loop" >"$work/e2fsck" 2>&1 || { cat "$work/e2fsck"; fail "the file system is whole"; }
    detach
    stop
    clean
    echo "weather: $minutes minutes without an error or a wrong byte; the check is clean"
}

# write: files of many sizes, each synced before it is counted
write() {
    local i
    for ((i = 0; ; i++)); do
        local file=$work/mnt/$1-$i bytes=$((4096 + RANDOM * 64))
        head -c "$bytes" /dev/urandom >"$file" && sync "$file" 2>/dev/null || return 0
        (cd "$work/mnt" && sha256sum "$1-$i") >>"$work/sums" || return 0
    done
}

kills() {
    local round kills=${KILLS:-20} writer
    between 5 7
    new "nbd+unix:///?socket=$work/far.sock"
    format
    : >"$work/sums"
    for ((round = 1; round <= kills; round++)); do
        write "$round" 2>/dev/null &
        writer=$!
        sleep "$((2 + RANDOM % 4)).$((RANDOM % 10))"
        crash
        # Before the file system is gone: what is written to the folder below it is no file of the volume's.
        kill -KILL "$writer" 2>/dev/null || true
        wait "$writer" 2>/dev/null || true
        abandon
        [[ -z $(ls -A "$work/mnt") ]] || fail "nothing is written where nothing is mounted"
        start
        attach
        e2fsck -p "$loop" >"$work/e2fsck" 2>&1 || (($? == 1)) || { cat "$work/e2fsck"; fail "the journal is replayed"; }
        mount "$loop" "$work/mnt"
        # The last line may be half.
        grep -E '^[0-9a-f]{64}  [0-9]+-[0-9]+$' "$work/sums" >"$work/whole" || true
        (cd "$work/mnt" && sha256sum --quiet -c "$work/whole") || fail "each file that was synced is whole after kill $round"
        # Room for more.
        (cd "$work/mnt" && find . -name "$((round - 2))-*" -delete)
        grep -v "  $((round - 2))-" "$work/whole" >"$work/sums" || true
    done
    tell
    umount "$work/mnt"
    e2fsck -fn "$loop" >"$work/e2fsck" 2>&1 || { cat "$work/e2fsck"; fail "the file system is whole"; }
    detach
    stop
    clean
    echo "kills: $kills times SIGKILL; each file that had been synced was whole; the check is clean"
}

# speed URI JOB...: MiB or requests a second of one job of fio
speed() {
    fio --name=speed --ioengine=nbd --uri="$1" --size=1500M --output-format=json "${@:3}" >"$work/speed.json" 2>/dev/null ||
        fail "fio runs on $1"
    sed -i -n '/^{/,$p' "$work/speed.json"
    jq -r ".jobs[0] | $2" "$work/speed.json"
}

ratios() {
    local seconds=${SECONDS_EACH:-30} straight="nbd+unix:///?socket=$cluster/nbd.sock" s t
    local fill=(--rw=write --bs=1M --iodepth=4 --end_fsync=1)
    local random=(--rw=randread --bs=4k --iodepth=32 --time_based --runtime="$seconds")
    s=$(speed "$straight" '.write.bw / 1024 | floor' "${fill[@]}")
    echo "fill in order, straight: $s MiB/s"
    t=$(speed "$straight" '.read.iops | floor' "${random[@]}")
    echo "4 KiB at random, depth 32, straight: $t/s"
    new "$straight"
    s="$(speed "$uri" '.write.bw / 1024 | floor' "${fill[@]}") $s"
    echo "fill in order, through Bimetal and straight: $s MiB/s"
    t="$(speed "$uri" '.read.iops | floor' "${random[@]}") $t"
    echo "4 KiB at random, depth 32, through Bimetal and straight: $t/s"
    stop
    clean
    s="$s $(hot "$straight")"
    t="$t $(hot "$work/near.img?size=2G")"
    awk '{ printf "ratios: fill %.2f, ", $1 / $2 }' <<<"$s"
    awk '{ printf "reads %.2f\n", $1 / $2 }' <<<"$t"
    awk '{ printf "half of the hot reads within %.0f us, with a local slow device %.0f us: %.2f\n", $3, $6, $3 / $6 }' \
        <<<"$s $t"
}

# hot SLOW: the median of reads of what is hot, 4 KiB each of 64 MiB, in microseconds
hot() {
    local seconds=${SECONDS_EACH:-30} job=(--size=64M --ioengine=nbd --name=hot --output-format=json)
    new "$1" >&2
    fio "${job[@]}" --uri="$uri" --rw=write --bs=64k --iodepth=4 --end_fsync=1 >/dev/null 2>&1 || fail "fio writes what is to be hot"
    fio "${job[@]}" --uri="$uri" --rw=randread --bs=4k --iodepth=1 --time_based --runtime="$seconds" >"$work/hot.json" 2>/dev/null ||
        fail "fio reads what is hot"
    sed -i -n '/^{/,$p' "$work/hot.json"
    jq -r '.jobs[0].read.clat_ns.percentile["50.000000"] / 1000' "$work/hot.json"
    stop >&2
    clean >&2
}

"$here/ceph/cluster" start "$cluster"
echo "a cluster of one OSD runs after $SECONDS s"
parts=("$@")
((${#parts[@]})) || parts=(weather kills ratios)
for part in "${parts[@]}"; do
    case $part in
    weather | kills | ratios) "$part" ;;
    *) fail "there is weather, kills and ratios" ;;
    esac
done
