# Orion's kind of test: the published figures of a flash card and of a disk on their models, knees, files in Orion's
# layout, every kind of target, and that nothing is destroyed unasked.
. "$(dirname "$0")/lib.sh"
need jq cmp
cd "$work"

orion() { "$BIMETAL" lab orion "$@"; }
# refused WORD OPTION...: exit code 2, one sentence with the word in it
refused() {
    local word=$1 code=0
    shift
    orion "$@" >out.txt 2>err.txt || code=$?
    [[ $code == 2 && $(wc -l <err.txt) == 1 && ! -s out.txt ]] && grep -q -- "$word" err.txt ||
        { cat err.txt; fail "$* is refused ($code)"; }
}
small='.knees[] | select(.of == "small")'
passes="def at_ms(ms): .passes[] | select(.latency_us == ms * 1000) | .iops;"

# A PCIe flash card of 2011, an eighth of it and filled first; an eighth of the time.
card=(--target 'model:flash-card-2011?size=40G' --precondition 1 --destroy-data --knee -duration 2 --json)
orion -run oltp -testname e1 "${card[@]}" --html e1.html >e1.json
holds "$passes $small | (.rate > 40000 and .rate < 47000 and .rate_low < .rate and .rate_high > .rate)
    and (at_ms(1) > 40000 and at_ms(1) < 46000)" e1.json
orion -run oltp -testname e2 -size_small 4 "${card[@]}" >e2.json
holds "$passes $small | .rate > 57000 and at_ms(1) > 68000 and at_ms(1) < 72000" e2.json
orion -run advanced -matrix col -num_small 0 -type seq -num_streamIO 1 -testname e3 "${card[@]}" >e3.json
holds '.knees[0] | .of == "large" and .load == 2 and .latency_ns < 1e7' e3.json
holds '[.points[].large_ios.bytes_per_s] | max | . > 650e6 and . < 750e6' e3.json
orion -run oltp -testname e4 -write 100 --target 'model:flash-card-2011?size=40G' --precondition 0.5 --destroy-data \
    --knee -duration 1 --json >e4.json
holds "$small | .rate > 55000 and .rate < 60000 and .latency_ns < 1.1e6" e4.json
orion -run oltp -testname e5 -write 20 "${card[@]}" >e5.json
holds "$passes $small | at_ms(1) > 43000 and at_ms(1) < 48000" e5.json
orion -run advanced -matrix row -num_large 1 -type seq -testname e6 -write 20 "${card[@]}" >e6.json
holds "$passes $small | at_ms(1) > 35000 and at_ms(1) < 50000" e6.json
holds '.tradeoff[] | select(.latency_us == 1000) | .small_iops * 8192 + .large_bytes_per_s | . > 550e6 and . < 610e6' e6.json
# Longer, the writes of a mixed load age the drive while it is measured: that is said.
orion -run oltp -testname aged -write 20 "${card[@]}" -duration 10 2>/dev/null >aged.json &&
    fail "an option given twice is refused"
orion -run oltp -testname aged -write 20 --target 'model:flash-card-2011?size=40G' --precondition 1 --destroy-data --knee \
    -duration 10 >aged.txt
grep -q 'Small Knee: doubtful, for the target has changed' aged.txt || fail "a drive that ages is known"

# One conventional disk.
orion -run oltp -testname e7 --target model:disk-20tb --json >e7.json
holds '[.points[].small_ios.iops] | max | . > 140 and . < 180' e7.json
orion -run simple -type seq -testname e7s --target model:disk-20tb --json >e7s.json
holds '[.points[] | .large_ios // empty | .bytes_per_s] | max | . > 150e6 and . < 250e6' e7s.json

# The same seed, the same run; and the files, as Orion lays them out.
printf 'model:disk-1tb-2012\nmodel:disk-1tb-2012\n' >two.lun
orion -run normal -testname two -duration 5 -simulate RAID0 --force >two.txt
mv two_*_iops.csv first.csv
orion -run normal -testname two -duration 5 -simulate raid0 --force >again.txt
cmp -s two_*_iops.csv first.csv || fail "the same seed gives the same matrix"
for suffix in summary.txt iops.csv mbps.csv lat.csv hist.txt trace.txt tradeoff.csv; do
    ls two_????????_????_$suffix >/dev/null || fail "there is a $suffix"
done
awk -F', *' 'NR == 1 { exit !($1 == "Large/Small" && $2 == 1 && $11 == 10 && NF == 11) }' first.csv || fail "head of iops.csv"
awk -F', *' 'NR > 1 && (NF != 11 || $1 + 0 != NR - 2) { exit 1 } END { exit NR != 6 }' first.csv || fail "rows of iops.csv"
awk -F', *' 'NR > 1 && (NF != 12 || $1 + 0 != NR - 1) { exit 1 } END { exit NR != 5 }' two_*_mbps.csv || fail "rows of mbps.csv"
grep -q '^This maps to this test:$' two_*_summary.txt && grep -q ' FILEs found.$' two_*_summary.txt || fail "the words of one version"
grep -q '^Total Data Points: 55$' two_*_summary.txt || fail "the points are counted"
grep -q '^Maximum Large MBPS=[0-9.]* @ Small=0 and Large=' two.txt || fail "the highest throughput"

# Files: several as one, past and through the page cache; what is not ours is not overwritten.
truncate -s 16M a.img
truncate -s 24M b.img
printf 'a.img\nb.img\n' >files.lun
if orion -run simple -testname files -duration 1 -size_large 64 -write 50 --json >files.json 2>err.txt; then
    holds '.luns | map(.size_bytes) == [16777216, 25165824]' files.json
    holds '.coverage.small | .span_bytes == 41943040 and .distinct_blocks == 5120' files.json
    holds '[.points[] | .small_ios // empty | .writes] | all(. > 0)' files.json
else
    grep -q 'does not do direct I/O' err.txt || { cat err.txt; fail "files are measured"; }
fi
head -c 8M /dev/urandom >theirs.img
cp theirs.img copy.img
refused 'data that the lab did not write' -run oltp -testname theirs --target theirs.img -duration 1 -write 10 --buffered
cmp -s theirs.img copy.img || fail "what is refused is not touched"
orion -run advanced -matrix point -num_small 2 -num_large 0 -testname theirs --target theirs.img -duration 1 -write 10 \
    --buffered --destroy-data >/dev/null
! cmp -s theirs.img copy.img || fail "with consent it is written"

# What cannot be run is said in a sentence.
printf 'a.img\n# b\n' >wrong.lun
refused 'wrong.lun, line 2' -run simple -testname wrong
refused 'there is no none.lun' -run simple -testname none
refused 'num_small' -run simple -num_small 3 --target null:
refused 'needs -num_large' -run advanced -matrix point -num_small 3 --target null:
refused 'only alone' -run simple -testname mixed --target a.img --target null:
refused 'storax' -run simple -storax asmlib --target null:
refused 'larger ones' -run simple -testname tiny --target 'model:disk-1tb-2012?size=512K' -duration 1

# A served volume, and the same one when nobody serves it.
create 64M 128M
start
orion -run advanced -matrix point -num_small 4 -num_large 1 -testname nbd --target "$uri" -duration 1 --json >nbd.json
holds '.points[0] | .small_ios.iops > 0 and .large_ios.iops > 0' nbd.json
stop
orion -run advanced -matrix point -num_small 4 -num_large 1 -testname volume --target "volume:$work/v.toml" -duration 1 \
    --json >volume.json
holds '.luns[0].size_bytes > 0 and .points[0].small_ios.iops > 0' volume.json

# A shell's background job ignores SIGINT; SIGTERM is the same to the lab, and ends a run with what was done.
"$BIMETAL" lab orion -run simple -testname ended --target null: -duration 30 --json >ended.json &
pid=$!
sleep 1.5
kill -TERM $pid
wait $pid || fail "to be ended is no failure"
holds '.interrupted and (.points | length == 1) and .points[0].small_ios.iops > 0' ended.json
ls ended_*_summary.txt >/dev/null || fail "what was done is kept"

# The page, where a browser is: its own plots are drawn.
for browser in chromium chromium-browser google-chrome ''; do
    if [[ -z $browser ]] || command -v "$browser" >/dev/null; then break; fi
done
[[ -n $browser ]] || exit 0
HOME=$work timeout 60 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --no-first-run \
    --window-size=1300,900 --virtual-time-budget=8000 --dump-dom "file://$work/e1.html#check" >dom 2>log || exit 0
sed -n 's|.*<pre id="drawn" hidden="">\(.*\)</pre>.*|\1|p' dom >drawn
holds '.errors == [] and ([.plots["own-small-rate", "own-small-latency", "own-histogram"]] | all(.inked and .points > 5))' drawn
