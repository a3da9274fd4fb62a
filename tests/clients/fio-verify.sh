# fio's nbd engine, verifying checksums of random writes over more than the fast tier.
. "$(dirname "$0")/lib.sh"
need fio
fio --enghelp 2>/dev/null | grep -qw nbd || { echo "this fio has no nbd engine"; exit 77; }

create 128M 512M
start
common=(--ioengine=nbd --uri="$uri" --verify=crc32c --verify_fatal=1 --verify_state_save=0 --group_reporting
        --output="$work/fio.log" --randrepeat=1 --allrandrepeat=1)
fio "${common[@]}" --name=mixed --rw=randwrite --bsrange=512-256k --blockalign=512 --size=400m --iodepth=16 \
    --do_verify=1 --randseed=1 || { cat "$work/fio.log"; exit 1; }
fio "${common[@]}" --name=small --rw=randwrite --bs=4k --size=300m --io_size=150m --iodepth=32 --fsync=64 \
    --do_verify=1 --randseed=2 || { cat "$work/fio.log"; exit 1; }
stop
clean
echo "fio verified 400 MiB of mixed and 150 MiB of 4 KiB writes"
