# The lab: fio's job files on everything that can be measured, verification, and that nothing is destroyed unasked.
. "$(dirname "$0")/lib.sh"
need jq cmp
cd "$work"

lab() { "$BIMETAL" lab fio "$@"; }
# refused WORD COMMAND...: exit code 2, one sentence with the word in it
refused() {
    local word=$1 code=0
    shift
    "$@" 2>&1 >out.txt | grep -v 'bimetal: note: ' >err.txt || true
    "$@" >out.txt 2>/dev/null || code=$?
    [[ $code == 2 && $(wc -l <err.txt) == 1 ]] && grep -q -- "$word" err.txt || { cat err.txt; fail "$* is refused ($code)"; }
}
# holds FILTER FILE: it is so in a document
holds() { jq -e "$1" "$2" >/dev/null || { jq -c 'del(.. | .bins?)' "$2" | cut -c1-2000; fail "$1"; }; }

# The job of a laptop's measurement, as it was published but for the name and size of the file and the time.
cat >laptop.fio <<'END'
[global]
ioengine=posixaio
direct=1
bs=4k
size=16m
runtime=1
time_based
group_reporting
filename=laptop.img
[random]
rw=randrw
rwmixread=80
iodepth=32
numjobs=1
END
lab laptop.fio --json >laptop.json 2>/dev/null || { lab laptop.fio | tail -3; exit 77; }
holds '.jobs | length == 1' laptop.json
holds '.jobs[0] | (.read.total_ios / (.read.total_ios + .write.total_ios)) as $reads | $reads > 0.75 and $reads < 0.85' laptop.json
holds '.jobs[0].read | .clat_ns.percentile["99.000000"] >= .clat_ns.percentile["50.000000"] and .lat_ns.mean >= .clat_ns.mean' laptop.json
sed -i 's/bs=4k/bs=2k/; s/direct=1/direct=0/' laptop.fio
lab laptop.fio --json 2>/dev/null >half.json
holds '.jobs[0].write | .io_bytes == .total_ios * 2048' half.json
lab laptop.fio >laptop.txt 2>/dev/null
grep -q '^Run status group 0' laptop.txt || fail "the report is fio's"

# What tools read of fio's JSON is there, and of the same job a real fio's has nothing that ours lacks unsaid.
for key in '.["fio version"]' .time .timestamp '.jobs[0].jobname' '.jobs[0]["job options"].rw' '.jobs[0].read.iops' \
    '.jobs[0].read.bw_bytes' '.jobs[0].read.runtime' '.jobs[0].read.io_bytes' '.jobs[0].read.lat_ns.mean' \
    '.jobs[0].read.clat_ns.percentile["99.000000"]' '.jobs[0].latency_us' '.jobs[0].usr_cpu'; do
    holds "$key != null" laptop.json
done
if command -v fio >/dev/null; then
    keys() {
        jq -r 'del(..|.bins?) | [paths | map(select(type == "string" and (test("^[0-9.<>=]+$") | not))) | join("/")]
            | unique[]' "$1" | LC_ALL=C sort
    }
    sed 's/filename=.*/filename=theirs.img/; s/posixaio/libaio/' laptop.fio >theirs.fio
    sed 's/filename=.*/filename=ours.img/' theirs.fio >ours.fio
    fio theirs.fio --output-format=json >theirs.json 2>/dev/null
    lab ours.fio --json >ours.json 2>/dev/null
    LC_ALL=C comm -23 <(keys theirs.json) <(keys ours.json) >lacking
    [[ ! -s lacking ]] || fail "ours has the keys $(tr '\n' ' ' <lacking)"
fi

# The depth that keeps a latency is looked for, found, and said; the same one in the record, the JSON and the text.
printf '[c4]\nioengine=libaio\nrw=randread\nbs=4k\nsize=64g\niodepth=64\nlatency_target=60ms\nlatency_window=20s
latency_percentile=90\n' >target.fio
lab target.fio --target model:disk-1tb-2012 --record target.json --json >target.fio.json 2>/dev/null
depth=$(jq '.jobs[0].found_depth' target.json)
((depth > 1 && depth < 64)) || fail "a depth between 1 and 64 keeps 60 ms, not $depth"
holds ".jobs[0].latency_depth == $depth" target.fio.json
lab target.fio --target model:disk-1tb-2012 2>/dev/null | grep -q "percentile=90.00%, depth=$depth\$" || fail "it is said"

# Two runs of a simulated target are the same run.
cat >simulated.fio <<'END'
[j]
rw=randread
bs=4k
size=1g
runtime=20
time_based
iodepth=8
ioengine=libaio
END
for n in 1 2; do
    lab simulated.fio --seed 5 --target model:disk-1tb-2012 --record "sim$n.json" >/dev/null 2>&1
    jq 'del(.began_unix_ms, .cpu)' "sim$n.json" >"same$n"
done
cmp same1 same2
holds '.virtual_time and .jobs[0].elapsed_ns >= 20000000000 and .jobs[0].read.ios > 1000' sim1.json
printf '%s\n' 'name = "a volume"' '[volume]' 'fast = { model = "ssd-128gb-2012", size = "1G" }' \
    'slow = { model = "disk-1tb-2012", size = "4G" }' '[[phase]]' 'name = "rest"' 'pause_seconds = 1' >volume.toml
sed 's/randread/randwrite/' simulated.fio >writes.fio
lab writes.fio --target scenario:volume.toml --record tiers.json >/dev/null 2>&1
holds '[.jobs[0].intervals[].tiers // empty] | length > 5 and all(.[0] <= .[1])' tiers.json
"$BIMETAL" lab report sim1.json sim2.json >both.txt
grep -q '×' both.txt || fail "runs are laid side by side"
lab simulated.fio --target model:ssd-128gb-2012 --steady iops --round 2s --record steady.json >steady.txt 2>&1
grep -q 'steady' steady.txt
holds '.jobs[0].steady != null' steady.json
lab writes.fio --target 'model:ssd-128gb-2012?size=1G' --precondition 2 >fresh.txt 2>&1
head -c 1000 sim1.json >cut.json
refused cut.json "$BIMETAL" lab report cut.json

# A volume: served, and in this process.
create 64M 256M
start
printf '[j]\nrw=randwrite\nbs=4k\nsize=16m\niodepth=16\nioengine=libaio\nverify=crc32c\n' >verify.fio
lab verify.fio --target "$uri" --connections 2 --json 2>/dev/null >nbd.json
holds '.jobs[0] | .error == 0 and .write.total_ios == 4096 and .read.total_ios == 4096' nbd.json
# A server that goes away ends the run with an error.
printf '[j]\nrw=randread\nbs=4k\nsize=16m\niodepth=16\nioengine=libaio\nruntime=60\ntime_based\n' >reads.fio
code=0
lab reads.fio --target "$uri" --json 2>/dev/null >gone.json &
client=$!
sleep 1
crash
wait "$client" || code=$?
[[ $code == 1 ]] || fail "a run on a server that was killed ends with 1, not $code"
holds '.jobs[0].error != 0 and .jobs[0].read.total_ios > 0' gone.json
lab verify.fio --target volume:v.toml --json 2>/dev/null >volume.json
holds '.jobs[0] | .error == 0 and .write.total_ios == 4096 and .read.total_ios == 4096' volume.json
clean

# Damage is found where it is.
sed 's/randwrite/write/' verify.fio >write.fio
refused 'no device' lab write.fio --target /dev/no-such-disk
lab write.fio --target data.img --json >/dev/null 2>&1
printf '[j]\nrw=read\nbs=4k\nsize=16m\nverify=crc32c\n' >check.fio
lab check.fio --target data.img --json >/dev/null 2>&1
printf 'x' | dd of=data.img bs=1 seek=5000000 conv=notrunc status=none
code=0
lab check.fio --target data.img --record damage.json >/dev/null 2>&1 || code=$?
[[ $code == 1 ]] || fail "damage is exit code 1, not $code"
holds '.jobs[0].read | .mismatched == 1 and .ios == 4096' damage.json
holds '.jobs[0].errors | keys == ["not what was written: 4096 bytes at byte 4997120"]' damage.json
code=0
lab check.fio --target data.img --json >damage.fio.json 2>/dev/null || code=$?
[[ $code == 1 ]] || fail "damage is exit code 1 with --json, too"
holds '.jobs[0].error == 84 and .jobs[0].total_err == 1' damage.fio.json

# Nothing is destroyed unasked.
seq 1 3000000 >others.img
sum=$(sha256sum others.img)
refused destroy-data lab write.fio --target others.img
printf '[j]\nfilename=short.img\nrw=write\nsize=1m\n' >short.fio
echo 'my letters' >short.img
refused destroy-data lab short.fio
[[ $(cat short.img) == 'my letters' && $(sha256sum others.img) == "$sum" ]] || fail "what is there stays"
lab check.fio --target others.img >/dev/null 2>&1 && fail "others' data is not the lab's"
[[ $(sha256sum others.img) == "$sum" ]] || fail "a read changes nothing"
lab write.fio --target others.img --destroy-data >/dev/null 2>&1

# What is not known is named.
printf '[j]\nrw=read\nsize=1m\niodpeth=4\n' >typo.fio
refused 'iodpeth.*iodepth' lab typo.fio --target null:
printf '[j]\nrw=read\nsize=1m\nexec_prerun=true\n' >before.fio
refused 'before.fio.*exec_prerun' lab before.fio --target null:

printf '[j]\nrw=read\nsize=1m\nioengine=rdma\n' >engine.fio
refused 'engine.fio:4.*rdma' lab engine.fio --target null:
: >empty.fio
refused empty.fio lab empty.fio --target null:

# A job file in the large: an included one, the environment, sums, several [global]s, an order, and copies as one.
printf 'bs=4k\nsize=8m\nioengine=libaio\niodepth=4\n' >common.inc
cat >large.fio <<'END'
[global]
include common.inc
[first]
rw=read
number_ios=${HOW_MANY}
[global]
bs=(2*4)k
group_reporting
[second]
stonewall
rw=randread
numjobs=3
number_ios=100
[third]
stonewall
rw=randread
runtime=1
time_based
rate_iops=200
thinktime=1ms
ramp_time=200ms
END
HOW_MANY=77 lab large.fio --target null: --record large.json --json >large.fio.json 2>/dev/null
holds '[.jobs[].name] == ["first", "second", "second", "second", "third"]' large.json
# Copies beside each other begin in any order.
holds '[.jobs[].group] == ([.jobs[].group] | sort)' large.json
holds '.jobs[1].began_ns >= .jobs[0].began_ns + .jobs[0].elapsed_ns' large.json
holds '.jobs[0].read | .ios == 77 and .bytes == 77 * 4096' large.json
holds '.jobs[1:4] | map(.read.ios) == [100, 100, 100]' large.json
holds '[.jobs[] | .jobname] == ["first", "second", "third"] and .jobs[1].read.total_ios == 300' large.fio.json
holds '.jobs[1].read.io_bytes == 300 * 8192' large.fio.json
# No more than the rate; a busy machine may do less.
holds '.jobs[2].read.total_ios | . > 20 and . < 215' large.fio.json
holds '.jobs[4].elapsed_ns >= 1000000000' large.json

# Ctrl-C ends a run with what was done.
printf '[j]\nrw=read\nsize=16m\nruntime=60\ntime_based\nthinktime=1ms\n' >long.fio
"$BIMETAL" lab fio long.fio --target data.img --json >stopped.json 2>/dev/null &
client=$!
sleep 1.5
# A shell's background job ignores SIGINT; SIGTERM is the same to the lab.
kill -TERM "$client"
wait "$client" || fail "a run that was ended is no failure"
holds '.jobs[0].read | .total_ios > 100 and .runtime < 30000' stopped.json

# What was recorded of a volume is done again.
start
"$BIMETAL" trace record "$work/v.toml" -o "$work/seen.trace" --seconds 20 --requests 2000 >/dev/null 2>&1 &
recorder=$!
for ((i = 0; i < 200; i++)); do [[ -s seen.trace ]] && break; sleep 0.05; done
printf '[j]\nrw=randrw\nbs=4k\nsize=16m\nnumber_ios=3000\niodepth=4\nioengine=libaio\n' >mixed.fio
lab mixed.fio --target "$uri" --destroy-data >/dev/null 2>&1
wait "$recorder" || fail "the recorder ends well"
stop
for mode in timed closed dependent; do
    "$BIMETAL" trace replay seen.trace --target model:ssd-128gb-2012 --mode $mode --json >$mode.json
    holds '.fidelity | .records >= 2000 and .left_out == 0 and .malformed == 0' $mode.json
done
holds '.fidelity.dependent_share > 0.5' dependent.json
truncate -s 64M scratch.img
"$BIMETAL" trace replay seen.trace --target scratch.img --buffered --json >file.json
holds '.run.jobs[0] | .read.ios + .write.ios >= 2000' file.json
holds '.fidelity | .left_out == 0 and .seconds > 0 and .mean_depth > 0 and .late_share <= 1' file.json

# And what a real fio asked for: as much of it, on a file, in all three modes.
fio --enghelp 2>/dev/null | grep -qw nbd || { echo "without fio's nbd engine"; exit 0; }
start
"$BIMETAL" trace record "$work/v.toml" -o "$work/real.trace" --json >recorded.json 2>/dev/null &
recorder=$!
for ((i = 0; i < 200; i++)); do [[ -e real.trace ]] && break; sleep 0.05; done
fio --name=real --ioengine=nbd --uri="$uri" --rw=randrw --bs=4k --size=32M --io_size=8M --iodepth=8 --rate_iops=2000,2000 \
    --randseed=7 >fio.out
kill -INT "$recorder"
wait "$recorder" || fail "the recorder ends well"
stop
holds '.lost == 0' recorded.json
records=$("$BIMETAL" trace stat real.trace --json | jq '.reads + .writes')
((records == 2048)) || fail "fio's 2048 requests are in the trace, not $records"
for mode in timed closed dependent; do
    "$BIMETAL" trace replay real.trace --target scratch.img --mode $mode --buffered --json >$mode.json
    holds ".fidelity | .records >= $records and .left_out == 0 and .malformed == 0 and .seconds > 0" $mode.json
    holds ".run.jobs[0] | .read.ios + .write.ios == $records and (.errors // {}) == {}" $mode.json
done
holds '.fidelity | .timed > 0 and .recorded_mean_depth > 0 and .seconds >= .recorded_seconds * 0.9' timed.json
