# Clones of Storage Bench's traces: they have what was published, are replayed on models, volumes and files, and destroy
# nothing unasked. Torture and recovery of a drive.
. "$(dirname "$0")/lib.sh"
need jq truncate
cd "$work"

bench() { "$BIMETAL" lab storage-bench "$@"; }

# What the reader of traces finds is what was published.
"$BIMETAL" trace synth heavy --scale 100 -o heavy.trace | grep -q '^reads  *21688  *21688 ' || fail "asked for is got"
"$BIMETAL" trace stat heavy.trace --json >stat.json
holds '.records == 39522 and .sequential_share > 0.41 and .sequential_share < 0.43' stat.json
holds '[.sizes[] | select(.up_to_bytes == 4096)][0] | (.reads + .writes) / 39522 | . > 0.27 and . < 0.29' stat.json

bench heavy model:ssd-128gb-2012 --against model:disk-1tb-2012 --scale 1000 --state empty,full --json --html bench.html \
    >bench.json
holds '[.results[] | select(.target | contains("ssd")).all.mb_per_s] | length == 2 and min > 200' bench.json
holds '[.results[] | select(.target | contains("disk")).all] | length == 2 and all(.mb_per_s < 60 and .above_10_ms > 0.1)' \
    bench.json
grep -q 'Storage Bench' bench.html

# A file that holds something is not written to; one that holds nothing is.
head -c 32M /dev/urandom >data.img
sum=$(sha256sum data.img)
code=0
bench light data.img --scale 1000 >out.txt 2>err.txt || code=$?
[[ $code == 2 ]] && grep -q -- --destroy-data err.txt || fail "what holds data is refused ($code)"
[[ $(sha256sum data.img) == "$sum" ]] || fail "and stays as it was"
truncate -s 64M empty.img
bench light empty.img --scale 1000 --json >file.json
holds '.results[0].all.ios > 100 and .results[0].all.busy_seconds > 0' file.json
bench light empty.img --scale 50 >out.txt 2>err.txt && fail "what does not fit is refused"
grep -q 'touches' err.txt || fail "and it is said why"

"$BIMETAL" lab torture-recovery 'model:ssd-128gb-2012?size=2G' --torture 20s --html torture.html --json >torture.json
holds '.torture_mb_per_s[0] > 2 * .torture_mb_per_s[1]' torture.json
holds '.verdict != null and .after_trim.share_of_fresh > 0.9' torture.json
grep -q 'Torture and recovery' torture.html
echo "storage bench: clones have what was published, drives are told apart; a tortured drive falls, and TRIM brings it back"
