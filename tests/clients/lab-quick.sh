# The quick test: on models it says which drive they are; a directory is left as it was; nothing is destroyed unasked; and
# two targets are compared only as far as chance allows.
. "$(dirname "$0")/lib.sh"
need jq truncate
cd "$work"

quick() { "$BIMETAL" lab quick "$@"; }
# refused WORD COMMAND...: exit code 2, one sentence with the word in it
refused() {
    local word=$1 code=0
    shift
    "$@" >out.txt 2>err.txt || code=$?
    [[ $code == 2 && $(wc -l <err.txt) == 1 && ! -s out.txt ]] && grep -q -- "$word" err.txt ||
        { cat err.txt; fail "$* is refused ($code)"; }
}

for model in disk-1tb-2012 ssd-128gb-2012 nvme-present; do
    quick "model:$model" --each 1s --json >"$model.json"
    holds '.figures | length == 14 and all(.value > 0)' "$model.json"
    holds ".verdict.sentences[0] | contains(\"about as fast as $model\")" "$model.json"
done
# CrystalDiskMark's rows, in its MB/s.
holds '.crystal_disk_mark | map(.name) == ["SEQ1M Q8T1", "SEQ1M Q1T1", "RND4K Q32T1", "RND4K Q1T1"]' nvme-present.json
holds '.crystal_disk_mark | all(.read, .write | .iops > 0 and .mb_per_s > 0)' nvme-present.json
holds '.crystal_disk_mark | all((.read.mb_per_s * 1e6 / .bytes / .read.iops - 1) | fabs < 1e-6)' nvme-present.json
holds '.figures[] | select(.name == "random write, 4K") | .value > 0.5 and .value < 1' disk-1tb-2012.json
quick model:ssd-128gb-2012 --each 1s --html page.html | grep -q '^random read, 4K .* MB/s'
grep -q 'Quick test' page.html
grep -q 'RND4K Q32T1' page.html || fail "the rows are on the page"

# A directory: a file of its own, which is gone afterwards, also when it is ended.
mkdir folder
quick folder --span 16M --each 100ms --json >folder.json
holds '.span_bytes == 16777216 and (.figures | length == 14)' folder.json
"$BIMETAL" lab quick folder --span 16M --each 5s >ended.txt 2>/dev/null &
ended=$!
sleep 2
kill -TERM $ended
wait $ended || fail "a run that is ended says what it has"
grep -q '^sequential write, 256K' ended.txt || fail "what was measured before is printed"
[[ -z $(ls folder) ]] || fail "the directory is as it was"

# A file that holds something is only read.
head -c 8M /dev/urandom >data.img
sum=$(sha256sum data.img)
refused --destroy-data quick data.img
quick data.img --reads-only --each 100ms --json >reads.json
holds '.figures | length == 8 and all(.name | contains("write") | not)' reads.json
holds '.crystal_disk_mark | length == 4 and all(.read.iops > 0 and .write == null)' reads.json
[[ $(sha256sum data.img) == "$sum" ]] || fail "a file that is only read stays as it was"
refused "there is no" quick nothing-there
refused "256 KiB" quick model:ssd-128gb-2012 --span 64K

"$BIMETAL" lab compare model:disk-1tb-2012 model:ssd-128gb-2012 --each 200ms --json --html compare.html >compare.json
grep -q 'class="bars intervals"' compare.html || fail "the page has the intervals"
holds '.rounds == 9 and (.interrupted | not) and (.sentence | endswith("All of this together holds 95 of 100 times."))' compare.json
holds '[.figures[] | select(.figure == "random write, 4K")][0] | .differs and .differs_together' compare.json
holds '[.figures[] | select(.metric != "p99 response" and .figure == "random read, 4K")][0].ratio.ratio > 20' compare.json
"$BIMETAL" lab compare model:ssd-128gb-2012 model:ssd-128gb-2012 --each 200ms >same.txt
tail -n 1 same.txt | grep -q 'No difference was seen at' || { cat same.txt; fail "a drive is like itself"; }
refused "are for one run" "$BIMETAL" lab compare model:ssd-128gb-2012 model:disk-1tb-2012 --record r.json

# Ended in a later round, it says what the rounds before came to.
"$BIMETAL" lab compare folder folder --span 1M --each 10ms --rounds 1000 >ended.txt 2>/dev/null &
ended=$!
sleep 5
kill -INT $ended
wait $ended || fail "a comparison that is ended says what it has"
grep -q '^interrupted in round' ended.txt && grep -q '^random read, 4K, bandwidth: ' ended.txt || { cat ended.txt; fail "of the rounds before"; }
echo "quick: three models are found, a directory and a file stay as they were, a drive is like itself"
