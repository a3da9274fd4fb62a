# fio's nbd engine: several jobs at once with mixed and unaligned block sizes, trims and other checksums, over several
# times the fast tier; what was synced is verified after the server was killed under other jobs.
. "$(dirname "$0")/lib.sh"
need fio jq
fio --enghelp 2>/dev/null | grep -qw nbd || { echo "this fio has no nbd engine"; exit 77; }

create 96M 640M --chunk 128K
start
common=(--ioengine=nbd --uri="$uri" --verify_fatal=1 --verify_state_save=0 --group_reporting
        --output="$work/fio.log" --randrepeat=1 --allrandrepeat=1)
load() { fio "${common[@]}" "$@" || { cat "$work/fio.log"; exit 1; }; }

# Five jobs, each in a range of its own. Their layouts come from their seeds, so that they can be verified later.
jobs=(
    --name=unaligned --verify=crc32c --rw=randwrite --bsrange=512-64k --blockalign=512 --offset=0 --size=96m
    --iodepth=16 --fsync=128 --randseed=11 --end_fsync=1
    --name=split --verify=md5 --rw=randwrite --bssplit=512/20:4k/40:13k/10:64k/25:1m/5 --offset=100m --size=96m
    --iodepth=8 --fsync=64 --randseed=12 --end_fsync=1
    --name=small --verify=crc32c --rw=randwrite --bs=4k --offset=200m --size=32m
    --iodepth=32 --randseed=13 --end_fsync=1
    --name=odd --verify=sha1 --rw=write --bs=3333 --offset=250m --size=20m
    --iodepth=4 --randseed=14 --end_fsync=1
    --name=stream --verify=xxhash --rw=write --bs=1m --offset=300m --size=128m
    --iodepth=8 --randseed=15 --end_fsync=1
)
load --do_verify=1 "${jobs[@]}"
written=$(awk '/WRITE:/ {print $0}' "$work/fio.log" | sed -n 's/.*io=\([^ ]*\) .*/\1/p')

# Trims beside them, each block trimmed and then written; and trimmed only, which reads zeros.
load --name=trims --rw=randtrimwrite --bs=64k --offset=450m --size=64m --iodepth=8 --verify=crc32c --do_verify=1 \
    --randseed=16 --end_fsync=1
load --name=halves --rw=randrw --rwmixread=40 --bsrange=1k-32k --blockalign=1k --offset=520m --size=48m --iodepth=16 \
    --verify=crc32c --do_verify=1 --randseed=17 --end_fsync=1
load --name=fill --rw=write --bs=256k --offset=600m --size=32m --do_verify=0 --end_fsync=1
zeros=(--name=zeros --rw=read --bs=12k --offset=600m --size=32760k --verify=pattern --verify_pattern=0x00)
unseen() { echo "fio does not see $1"; exit 1; }
! fio "${common[@]}" "${zeros[@]}" 2>"$work/stderr" || unseen "what is not zeros"
load --name=trim --rw=randtrim --bs=12k --offset=600m --size=32760k --iodepth=8 --end_fsync=1
load "${zeros[@]}"
"$BIMETAL" status "$work/v.toml" --json >"$work/status.json"
jq -e '.tiers[1].used_bytes > 100000000' "$work/status.json" >/dev/null ||
    { echo "all of it is on the fast tier"; exit 1; }

# Killed under jobs that write elsewhere; what was synced before must be there.
fio "${common[@]}" --output="$work/other.log" --name=other --rw=randwrite --bsrange=512-64k --blockalign=512 \
    --offset=640m --size=40m --io_size=4g --iodepth=16 --fsync=32 --do_verify=0 --time_based --runtime=60 \
    2>"$work/stderr" &
other=$!
sleep "1.$((RANDOM % 10))"
kill -0 "$other" 2>/dev/null || { cat "$work/other.log"; exit 1; }
crash
wait "$other" && { echo "fio did not notice that its server was killed"; exit 1; }
start
verify() {
    load --verify_only "${jobs[@]}"
    load "${zeros[@]}"
}
verify
stop
clean
start
verify
# The volume goes on: the same again with other seeds, over what is there.
load --do_verify=1 --name=again --verify=crc32c --rw=randwrite --bsrange=512-64k --blockalign=512 --offset=3584 \
    --size=64m --iodepth=16 --randseed=21
# And a changed sector is seen.
load --name=bad --rw=write --bs=512 --offset=130m --size=512 --do_verify=0
! fio "${common[@]}" --verify_only "${jobs[@]}" 2>"$work/stderr" || unseen "a changed sector"
stop
clean
echo "fio verified $written of mixed sizes in five jobs, and trims, over a kill and a restart"
