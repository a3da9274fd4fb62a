# Block devices: loop devices with sectors of 512 and of 4096 bytes, over a kill; what is mounted is refused,
# flushes reach the device, and a discard gives space back.
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
need fio jq losetup mkfs.ext4 mount
fio --enghelp 2>/dev/null | grep -qw nbd || { echo "this fio has no nbd engine"; exit 77; }
[[ $(id -u) == 0 ]] || { echo "loop devices need root"; exit 77; }

# Everything is undone by the names of the files in our own directory, whatever went wrong.
mkdir "$work/mnt"
detach() {
    ! mounted "$work/mnt" || umount "$work/mnt"
    local file loop
    for file in "$work"/*.img; do
        [[ -e $file ]] || continue
        for loop in $(losetup --noheadings --output NAME --associated "$file"); do losetup --detach "$loop"; done
    done
}
undo() {
    local code=$?
    if [[ -n $server ]]; then
        kill -KILL "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
        server=
    fi
    detach || true
    (exit $code)
    finish
}
trap undo EXIT

attach() { # attach FILE SIZE SECTOR
    truncate -s "$2" "$work/$1"
    new_loop "$work/$1" --sector-size "$3" 2>/dev/null
}

fails() { # fails WORD COMMAND...: exit code 2 and a sentence with WORD
    local word=$1 got=0
    shift
    "$@" >"$work/stdout" 2>"$work/stderr" || got=$?
    [[ $got == 2 ]] || { echo "$*: exit code $got, not 2"; cat "$work/stderr"; exit 1; }
    grep -q -- "$word" "$work/stderr" || { echo "$*: does not say $word:"; cat "$work/stderr"; exit 1; }
}

flushes() { awk '{print $16}' "/sys/block/$(basename "$1")/stat"; }
discards() { awk '{print $12}' "/sys/block/$(basename "$1")/stat"; }
kilobytes() { du -k "$work/$1" | cut -f 1; }
same=(--ioengine=nbd --uri="$uri" --verify=crc32c --verify_fatal=1 --verify_state_save=0 --group_reporting
      --output="$work/fio.log" --randrepeat=1 --allrandrepeat=1)
load() { fio "${same[@]}" "$@" || { cat "$work/fio.log"; exit 1; }; }

for sector in 512 4096; do
    fast=$(attach "fast-$sector.img" 256M "$sector") && slow=$(attach "slow-$sector.img" 1G "$sector") ||
        { echo "no loop devices"; exit 77; }
    "$BIMETAL" create "$work/v.toml" --fast "$fast" --slow "$slow" >"$work/created"
    grep -q "block device of 256 MiB, direct I/O in units of $sector bytes" "$work/created"
    start
    "$BIMETAL" status "$work/v.toml" --json >"$work/status.json"
    jq -e --argjson sector "$sector" '.tiers | all(.direct and .logical_sector_bytes == $sector)' \
        "$work/status.json" >/dev/null
    jq -e --arg fast "$fast" '.tiers[0].device == $fast' "$work/status.json" >/dev/null
    before=$(flushes "$fast")
    load --name=mixed --rw=randwrite --bsrange=512-128k --blockalign=512 --size=400m --iodepth=16 --fsync=64 \
        --do_verify=1 --randseed=1
    (($(flushes "$fast") > before)) || { echo "no flush reached $fast"; exit 1; }
    # Claimed: neither a second server nor a mount may have it.
    fails "in use" "$BIMETAL" serve "$work/v.toml" --nbd "unix:$work/other.sock"
    ! mkfs.ext4 -q -F "$fast" 2>/dev/null || { echo "mkfs.ext4 could open $fast"; exit 1; }
    crash
    start
    load --name=mixed --rw=randwrite --bsrange=512-128k --blockalign=512 --size=400m --iodepth=16 --fsync=64 \
        --verify_only --randseed=1
    stop
    clean

    # The space of what is discarded goes back to the backing file. A stream goes to the slow device.
    start
    load --name=fill --rw=write --bs=1m --size=700m --iodepth=8 --do_verify=0 --randseed=2 --end_fsync=1
    full=$(($(kilobytes "fast-$sector.img") + $(kilobytes "slow-$sector.img")))
    fio --ioengine=nbd --uri="$uri" --name=trim --rw=trim --bs=1m --size=700m --iodepth=8 --end_fsync=1 \
        --output="$work/fio.log" || { cat "$work/fio.log"; exit 1; }
    # Slots are given back as the volume goes on.
    for ((i = 0; i < 40; i++)); do
        used=$("$BIMETAL" status "$work/v.toml" --json | jq '.tiers | map(.used_bytes) | add')
        ((used > 64 * 1024 * 1024)) || break
        load --name=tick --rw=write --bs=4k --size=4k --do_verify=0 --end_fsync=1
    done
    stop
    empty=$(($(kilobytes "fast-$sector.img") + $(kilobytes "slow-$sector.img")))
    ((empty < full / 2)) || { echo "a discard left $empty of $full KiB"; exit 1; }
    (($(discards "$slow") > 0)) || { echo "no discard reached $slow"; exit 1; }
    clean
    echo "sectors of $sector bytes: verified over a kill; a discard of 700 MiB left $empty of $full KiB"

    # Mounted or read-only is refused, with a reason, and nothing on it changes.
    "$BIMETAL" destroy "$work/v.toml" --yes >/dev/null
    mkfs.ext4 -q -F "$fast"
    fails "an ext2, ext3 or ext4 file system" "$BIMETAL" create "$work/v.toml" --fast "$fast" --slow "$slow"
    mount "$fast" "$work/mnt"
    fails "mounted on $work/mnt" "$BIMETAL" create "$work/v.toml" --fast "$fast" --slow "$slow" --force
    umount "$work/mnt"
    losetup --detach "$fast"
    fast=$(losetup --find --show --read-only --sector-size "$sector" "$work/fast-$sector.img")
    fails "read-only" "$BIMETAL" create "$work/v.toml" --fast "$fast" --slow "$slow" --force
    detach
done

fast=$(attach odd.img 256M 2048) && slow=$(attach even.img 1G 512) || { echo "no loop devices"; exit 77; }
fails "sectors of 2048 bytes" "$BIMETAL" create "$work/v.toml" --fast "$fast" --slow "$slow"
losetup --detach "$fast"
fast=$(attach odd.img 256M 4096)

# Other names after a restart: the devices are found by what they carry; an old copy beside them is refused.
"$BIMETAL" create "$work/v.toml" --fast "$fast" --slow "$slow" >/dev/null
losetup --detach "$fast" && losetup --detach "$slow"
slow=$(losetup --find --show "$work/even.img") && fast=$(losetup --find --show --sector-size 4096 "$work/odd.img")
start
# By whatever name: udev may have a link to a device of a volume.
found=$("$BIMETAL" status "$work/v.toml" --json | jq -r '.tiers[].device' | xargs -n 1 readlink -f | paste -sd ' ')
[[ $found == "$fast $slow" ]] || { echo "found $found, not $fast $slow"; exit 1; }
# Devices that cannot discard, or stop being able to: a hint that is not taken, and nothing else.
for loop in "$fast" "$slow"; do
    for limit in discard_max_bytes write_zeroes_unmap_max_bytes; do
        [[ ! -w /sys/block/${loop#/dev/}/queue/$limit ]] || echo 0 >"/sys/block/${loop#/dev/}/queue/$limit"
    done
done
load --name=mixed --rw=randtrimwrite --bs=128k --size=400m --io_size=400m --iodepth=8 --do_verify=0 --fsync=16
load --name=mixed --rw=randwrite --bs=64k --size=200m --iodepth=8 --do_verify=1 --randseed=3
stop
clean
losetup --detach "$fast"
losetup --detach "$slow"
renew "$fast" && renew "$slow" || echo "$fast and $slow cannot discard any more, until they are removed and added"
fast=$(losetup --find --show --sector-size 4096 "$work/odd.img")
cp --sparse=always "$work/even.img" "$work/old.img"
slow=$(losetup --find --show "$work/even.img")
if grep -q "$slow" "$work/v.toml"; then sed -i "s|$slow|/dev/loop-gone|" "$work/v.toml"; fi
fails "one is a copy" "$BIMETAL" check "$work/v.toml"
grep -q "$work/old.img" "$work/stderr" && grep -q "$slow" "$work/stderr"
detach
echo "devices are claimed, found again under other names, and never guessed"
