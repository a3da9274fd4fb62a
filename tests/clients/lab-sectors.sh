#!/usr/bin/env bash
# Every suite of the lab on a device with sectors of 4 KiB: it measures what it says, or says what it leaves out.
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
need jq truncate losetup
cd "$work"
truncate -s 256M disk.img
disk=$(losetup --find --show --sector-size 4096 disk.img 2>/dev/null) || { echo "no loop devices with such sectors"; exit 77; }
before_finish() { losetup --detach "$disk" || true; }

# suite NAME ARGUMENT...: runs it on the device; a shared machine may be steady or not
suite() {
    local name=$1 code=0
    shift
    "$BIMETAL" lab "$@" --json >"$name.json" 2>"$name.err" || code=$?
    [[ $code == 0 || ($code == 1 && $name == snia-*) ]] || { cat "$name.err"; fail "$name on sectors of 4 KiB ends with $code"; }
}

for test in iops latency throughput; do
    suite snia-$test snia $test "$disk" --destroy-data --scale 0.0002 --span 16M
    # Nothing but what is less than a sector is without a figure.
    holds '[.tests[].steady[].loads[] | select(.iops == [])] | all(.bytes < 4096 and (.left_out | length > 0))' snia-$test.json
    holds '[.tests[].steady[].loads[] | select(.bytes >= 4096)] | length > 0 and all(.iops | length >= 5)' snia-$test.json
done
"$BIMETAL" lab snia latency "$disk" --destroy-data --scale 0.0002 --span 16M >snia.txt 2>/dev/null || true
grep -q 'Left out are the loads of 0.5K' snia.txt || fail "what is left out is said"
suite cross snia cross-stimulus "$disk" --destroy-data --scale 0.0001 --span 64M
suite saturation snia write-saturation "$disk" --destroy-data --scale 0.0001 --span 64M
suite orion orion -run simple --target "$disk" -duration 1
suite bench storage-bench light "$disk" --destroy-data --scale 2000
suite torture torture-recovery "$disk" --destroy-data --torture 3s
suite create create-files -n 10 -f 1M "$disk" --destroy-data
suite read read-files -n 10 -f 1M "$disk"
suite idle idle "$disk" --quiet 1s
suite adaptation adaptation "$disk" --destroy-data -n 20 -f 1M --quiet 1s --idle 2s
suite quick quick "$disk" --destroy-data --each 200ms --span 64M
suite fill fill "$disk" --destroy-data
printf '[job]\nrw=randrw\nsize=16m\nbs=4k\nnumber_ios=200\n' >job.fio
suite fio fio job.fio --target "$disk" --destroy-data
