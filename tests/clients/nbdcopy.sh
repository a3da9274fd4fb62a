# nbdcopy in, restart, nbdcopy out, equal: over one connection and several, sparse and not, between two volumes;
# qemu-img compare and nbdinfo agree, holes take no space.
. "$(dirname "$0")/lib.sh"
need nbdcopy nbdinfo qemu-img cmp jq

create 96M 384M --chunk 256K
start
size=$(nbdinfo --size "$uri")
# More than the fast tier, with holes, and not a multiple of anything.
bytes=$((300 * 1024 * 1024 + 12345))
truncate -s "$bytes" "$work/in.img"
for ((at = 0; at < 294; at += 7)); do
    head -c 3000007 /dev/urandom | dd of="$work/in.img" bs=1M seek="$at" conv=notrunc status=none
done
stored=$((42 * 3000007))
truncate -s "$size" "$work/in.img"

used() { "$BIMETAL" status "$work/v.toml" --json | jq '.tiers | map(.used_bytes) | add'; }
mapped() { nbdinfo --map --json "${1:-$uri}" | jq 'map(select(.type == 0) | .length) | add // 0'; }
holes_stay() {
    ((mapped=$(mapped "$@"), mapped >= stored && mapped < stored * 105 / 100)) ||
        { echo "$mapped bytes are mapped for $stored"; exit 1; }
}
out() { # out OPTION...: what comes out is what went in
    rm -f "$work/out.img"
    nbdcopy "$@" "$uri" "$work/out.img"
    cmp "$work/in.img" "$work/out.img"
}
compare() { qemu-img compare -q -f raw -F raw "$work/in.img" "${1:-$uri}" || { echo "differs: $*"; exit 1; }; }

nbdinfo "$uri" | grep -q 'can_multi_conn: true'
blank=$(used)
nbdcopy --flush --connections=1 "$work/in.img" "$uri"
holes_stay
# A slot is 256 KiB: what touches one takes all of it.
full=$(used)
((full - blank < stored * 13 / 10)) || { echo "$((full - blank)) bytes are used for $stored"; exit 1; }
stop
clean
start
out --connections=1
sparse=$(($(du -k "$work/out.img" | cut -f 1) * 1024))
((sparse < stored * 105 / 100)) || { echo "$sparse bytes came out for $stored"; exit 1; }
compare
crash
start
compare
echo "one connection: $stored bytes of $size, $mapped mapped, $((full - blank)) used; equal over a restart and a kill"

# Four connections both ways, with other request sizes, a queue of its own, and a kill at once after the flush.
nbdcopy --flush --connections=4 --threads=4 --requests=16 --request-size=65536 "$work/in.img" "$uri"
crash
start
holes_stay
out --connections=4 --threads=4 --requests=16 --request-size=1048576
out --connections=4 --synchronous
nbdcopy --connections=4 --no-extents "$uri" - | cmp - "$work/in.img"

# Zeros that the client wants allocated (a hole that keeps its promise here), and no zeros looked for.
out --allocated
nbdcopy --flush --allocated --connections=4 "$work/in.img" "$uri"
compare
holes_stay
# From a file without holes, whose zeros are looked for; and through a pipe, where nbdcopy does not.
rm "$work/out.img"
cat "$work/in.img" >"$work/out.img"
nbdcopy --flush --connections=4 --sparse=4096 "$work/out.img" "$uri"
compare
holes_stay
cat "$work/in.img" | nbdcopy --flush - "$uri"
compare
((mapped=$(mapped), mapped == size)) || { echo "$mapped bytes are mapped for $size of zeros and others"; exit 1; }
nbdcopy --flush --connections=4 "$work/in.img" "$uri"
holes_stay
stop
clean

# From volume to volume: holes travel as extents.
start
first=$server
mkdir "$work/b"
"$BIMETAL" create "$work/w.toml" --fast "$work/b/fast.img?size=96M" --slow "$work/b/slow.img?size=384M" \
    --chunk 256K >/dev/null
: >"$work/w.out"
"$BIMETAL" serve "$work/w.toml" --nbd "unix:$work/w.sock" >"$work/w.out" &
second=$!
before_finish() { kill -KILL "$first" "$second" 2>/dev/null || true; }
for ((i = 0; i < 600; i++)); do ! grep -q '^ready: ' "$work/w.out" || break; sleep 0.05; done
grep -q '^ready: ' "$work/w.out" || { echo "the second server is not ready after 30 s"; exit 1; }
other="nbd+unix:///?socket=$work/w.sock"
nbdcopy --flush --connections=4 --destination-is-zero "$uri" "$other"
compare "$other"
holes_stay "$other"
kill -TERM "$second"
wait "$second"
stop

# The same between two volumes of one server.
: >"$work/out"
"$BIMETAL" serve "$work/v.toml" "$work/w.toml" --nbd "unix:$socket" >"$work/out" &
first=$!
second=$first server=$first
for ((i = 0; i < 600; i++)); do [[ $(grep -c '^ready: ' "$work/out") != 2 ]] || break; sleep 0.05; done
mapfile -t uris < <(sed -n 's/^ready: //p' "$work/out")
[[ $(nbdinfo --list --json "$uri" | jq -c '[.exports[]["export-name"]]') == '["v","w"]' ]]
compare "${uris[0]}"
compare "${uris[1]}"
nbdcopy --flush --connections=4 "$work/in.img" "${uris[1]}" &
nbdcopy --connections=4 "${uris[0]}" "$work/out.img"
wait $!
cmp "$work/in.img" "$work/out.img"
nbdcopy --flush --connections=4 "${uris[0]}" "${uris[1]}"
compare "${uris[1]}"
stop
"$BIMETAL" check "$work/w.toml" --json | jq -e '.findings | length == 0' >/dev/null
clean
echo "four connections, sparse, allocated, through a pipe and from volume to volume: equal, and $mapped bytes mapped"
