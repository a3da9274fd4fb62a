# fio logs what it asks for, and `bimetal trace record` what the volume was asked: the same requests, each as often.
. "$(dirname "$0")/lib.sh"
need fio jq
fio --enghelp 2>/dev/null | grep -qw nbd || { echo "this fio has no nbd engine"; exit 77; }

create 64M 256M --landing 8M
start
"$BIMETAL" trace record "$work/v.toml" -o "$work/v.trace" --json >"$work/recorded.json" &
recorder=$!
for ((i = 0; i < 200; i++)); do
    [[ -e $work/v.trace ]] && break
    sleep 0.05
done
fio --name=mixed --ioengine=nbd --uri="$uri" --rw=randrw --rwmixread=60 --bsrange=512-64k --blockalign=512 \
    --size=200M --io_size=64M --iodepth=32 --fsync=100 --randseed=7 --write_iolog="$work/asked" >"$work/fio.out"
kill -INT "$recorder"
wait "$recorder"
[[ $(jq .lost "$work/recorded.json") == 0 ]] || { cat "$work/recorded.json"; exit 1; }

# Both as lines of operation, offset and length; flushes are counted only, since fio may add one when it closes.
requests() { grep -oE '(read|write) [0-9]+ [0-9]+$' "$1" | sort; }
"$BIMETAL" trace convert "$work/v.trace" -o "$work/v.iolog" --to iolog3 >/dev/null
requests "$work/asked" >"$work/asked.sorted"
requests "$work/v.iolog" >"$work/recorded.sorted"
cmp "$work/asked.sorted" "$work/recorded.sorted"
(($(wc -l <"$work/asked.sorted") > 1000))
flushes=$(grep -c ' sync ' "$work/v.iolog")
((flushes >= $(grep -c ' sync ' "$work/asked"))) || { echo "$flushes flushes are too few"; exit 1; }

# The trace says so, too, and how deep the queue was.
"$BIMETAL" trace stat "$work/v.trace" --json >"$work/stat.json"
jq -e '.out_of_order == 0 and .malformed.count == 0 and .queue_depth.max > 1 and .queue_depth.max <= 33' "$work/stat.json"
stop
clean
echo "$(wc -l <"$work/asked.sorted") requests and $flushes flushes recorded as they were asked for"
