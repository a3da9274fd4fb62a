# SNIA's kind of test: in rounds until they are steady; scaled down, it says that it is no result of the specification; and
# nothing is destroyed unasked.
. "$(dirname "$0")/lib.sh"
need jq truncate
cd "$work"

snia() { "$BIMETAL" lab snia "$@"; }

snia iops 'model:ssd-128gb-2012?size=1G' --scale 0.01 --json --html iops.html >iops.json
holds '.tests[0].steady[0].loads | length == 56' iops.json
holds '.tests[0].steady[0].steadiness.reached.rounds == 5 and .tests[0].scale == 0.01 and .tests[0].purged' iops.json
grep -q 'Steady state measurement window' iops.html
snia iops 'model:ssd-128gb-2012?size=1G' --scale 0.01 >iops.txt
grep -q 'no result of it' iops.txt || fail "a part of the time is said to be one"
for field in 'test run date: 20' 'firmware revision: not known' 'thread count: 1' 'outstanding I/O (OIO) by thread: 32'; do
    grep -q "^$field" iops.txt || fail "the report's head has: $field"
done
grep -q '^data excursion .*allowed: 20.0 %.*: within$' iops.txt || fail "the excursion is determined"
grep -q '^slope excursion .*allowed: 10.0 %.*: within$' iops.txt || fail "the slope is determined"
snia write-saturation 'model:ssd-128gb-2012?size=1G' --scale 0.05 --json >wsat.json
holds '.tests[0].stages[0].points | .[0].iops > 1.5 * .[-1].iops and .[-1].written_capacities >= 4' wsat.json

# A file: what holds something is refused; one that is empty is measured.
head -c 4M /dev/urandom >data.img
sum=$(sha256sum data.img)
code=0
snia latency data.img --scale 0.001 >out.txt 2>err.txt || code=$?
[[ $code == 2 && $(wc -l <err.txt) == 1 ]] && grep -q -- --destroy-data err.txt || fail "what holds data is refused ($code)"
[[ $(sha256sum data.img) == "$sum" ]] || fail "and stays as it was"
truncate -s 16M empty.img
code=0
snia latency empty.img --scale 0.001 --json >file.json || code=$?
# A shared machine may be steady or not: that is said, and nothing else.
[[ $code == 0 || $code == 1 ]] || fail "an empty file is measured ($code)"
holds '.tests[0].steady[0].loads | length == 9 and all(.iops | length >= 5)' file.json
code=0
snia latency empty.img --scale 2 >out.txt 2>err.txt || code=$?
[[ $code == 2 ]] && grep -q 'up to 1' err.txt || fail "a scale above 1 is refused ($code)"
echo "snia: steady rounds, saturation, and a file that holds something stays as it was"
