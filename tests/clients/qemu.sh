# qemu's tools: images in and out with their holes, patterns at any alignment, zeroes and discards, a qcow2 image on
# the volume over a kill, and a client that reconnects to a server that was killed.
. "$(dirname "$0")/lib.sh"
need qemu-img qemu-io jq mkfifo

create 128M 640M --chunk 64K
start
size=$("$BIMETAL" status "$work/v.toml" --json | jq .size_bytes)

io() { # io COMMAND...: every one must succeed
    local each=() command
    for command in "$@"; do each+=(-c "$command"); done
    qemu-io -t none -d unmap -f raw "${each[@]}" "$uri" >"$work/io.log" 2>&1 || { cat "$work/io.log"; exit 1; }
}
io_fails() { # io_fails COMMAND: it is refused
    ! qemu-io -t none -d unmap -f raw -c "$1" "$uri" >"$work/io.log" 2>&1 || { echo "$1: succeeds"; exit 1; }
}
data() { qemu-img map --output=json -f raw "$uri" | jq -c 'map(select(.data) | [.start, .length])'; }
data_is() { [[ $(data) == "$1" ]] || { echo "data is in $(data), not in $1"; exit 1; }; }
same() { qemu-img compare -q "$@" || { echo "differs: $*"; exit 1; }; }

# Patterns, aligned to nothing.
data_is '[]'
io 'write -P 0x11 1M 64k' 'write -P 0x22 3149824 4096' 'write -P 0x33 5243380 1000' 'flush' \
    'read -P 0x11 1M 64k' 'read -P 0x22 3149824 4096' 'read -P 0x33 5243380 1000' \
    'read -P 0 0 1M' 'read -P 0 5242880 500' 'read -P 0 5244380 3612'
data_is '[[1048576,65536],[3149824,4096],[5242880,4096]]'
io 'write -P 0x44 8388605 3000001' 'read -P 0x44 8388605 3000001' 'read -P 0 8388604 1' 'read -P 0 11388606 1' \
    'writev -P 0x45 8400001 1 513 70001' 'readv -P 0x45 8400001 513 1 70001' 'read -P 0x44 8470516 2918090' \
    'write -f -P 0x46 9999999 3' 'read -P 0x46 9999999 3' 'aio_write -P 0x47 12M 1M' 'aio_flush' 'read -P 0x47 12M 1M'
io_fails 'read -P 0x45 8388605 3000001'

# Zeroes and discards make holes; what is beside them stays.
io 'write -z 1114000 112' 'write -z -u 3149824 4096' 'discard 5242880 4096' 'write -z 8388608 1M' \
    'read -P 0x11 1M 65424' 'read -P 0 1114000 112' 'read -P 0 3M 64k' 'read -P 0 5M 64k' 'read -P 0x44 8388605 3' \
    'read -P 0 8388608 1M' 'discard 12M 1M' 'read -P 0 12M 1M' 'flush'
data_is '[[1048576,65536],[8384512,4096],[9437184,1953792]]'

# The end.
io "write -P 0x55 $((size - 1000)) 1000" "read -P 0x55 $((size - 1000)) 1000"
io_fails "write -P 0x66 $((size - 1000)) 1001"
io_fails "write -P 0x66 $size 512"
io_fails "write -z $((size - 4096)) 8192"
io_fails "read $((size - 1)) 2"
io "read -P 0x55 $((size - 1000)) 1000" "discard 0 $size"
data_is '[]'

# Images with holes, more than the fast tier, in and out; the holes stay holes.
truncate -s 400M "$work/in.img"
for ((at = 1; at < 400; at += 12)); do
    head -c 5000003 /dev/urandom | dd of="$work/in.img" bs=1M seek="$at" conv=notrunc status=none
done
qemu-img convert -f raw -O qcow2 "$work/in.img" "$work/in.qcow2"
stored=$((34 * 5000003))
for image in img:raw qcow2:qcow2; do
    io "write -P 0x77 0 100000" "write -P 0x77 200M 1000000"
    qemu-img convert -n -f "${image#*:}" -O raw "$work/in.${image%:*}" "$uri"
    same -f raw -F raw "$work/in.img" "$uri"
    found=$(data | jq 'map(.[1]) | add')
    ((found >= stored && found < stored * 11 / 10)) || { echo "$found bytes of data for $stored"; exit 1; }
    stop
    clean
    start
    qemu-img convert -f raw -O "${image#*:}" "$uri" "$work/out.${image%:*}"
    same -f raw -F "${image#*:}" "$work/in.img" "$work/out.${image%:*}"
    used=$(du -k "$work/out.${image%:*}" | cut -f 1)
    ((used < stored / 1024 * 12 / 10)) || { echo "$used KiB came out for $((stored / 1024))"; exit 1; }
    [[ $image != img:raw ]] || io "discard 0 $size"
    rm "$work/out.${image%:*}"
done
qemu-io -f raw -c 'write -P 0x01 123456789 1' "$uri" >/dev/null
code=0
qemu-img compare -q -f raw -F raw "$work/in.img" "$uri" || code=$?
[[ $code == 1 ]] || { echo "one changed byte is not seen: $code"; exit 1; }

# A qcow2 image on the volume itself, over a kill: what qemu flushed is there and the image's tables are whole.
qemu-img create -q -f qcow2 "$uri" 300M
writes=() reads=()
for ((n = 1; n < 100; n++)); do
    writes+=(-c "write -P $n $((n * 3000007)) 70001")
    reads+=(-c "read -P $n $((n * 3000007)) 70001")
done
qemu-io -t none -f qcow2 "${writes[@]}" -c flush "$uri" >"$work/io.log" || { cat "$work/io.log"; exit 1; }
qemu-io -t none -f qcow2 -c 'write -P 200 0 2M' -c 'sleep 60000' "$uri" >"$work/io.log" 2>&1 &
later=$!
disown
for ((i = 0; i < 200; i++)); do ! grep -q wrote "$work/io.log" || break; sleep 0.05; done
crash
kill -KILL "$later"
start
qemu-img check -q -f qcow2 "$uri" || code=$?
# Leaked clusters (3) are what a killed qemu leaves; damage is not.
[[ $code == 1 || $code == 3 ]] || { qemu-img check -f qcow2 "$uri"; exit 1; }
qemu-io -f qcow2 "${reads[@]}" "$uri" >"$work/io.log" || { cat "$work/io.log"; exit 1; }

# A machine that waits for its disk: the server is killed and served again below a client that stays.
mkfifo "$work/commands"
again='json:{"driver":"raw","file":{"driver":"nbd","server":{"type":"unix","path":"'$socket'"},"reconnect-delay":60}}'
qemu-io -t none "$again" <"$work/commands" >"$work/io.log" 2>&1 &
client=$!
before_finish() { kill -KILL "$client" 2>/dev/null; }
exec 9>"$work/commands"
printed() {
    local i
    for ((i = 0; i < 600; i++)); do [[ $(grep -c "$1" "$work/io.log") != "$2" ]] || return 0; sleep 0.05; done
    cat "$work/io.log"
    exit 1
}
for round in 1 2 3; do
    echo "write -f -P $round 1M 1000001" >&9
    printed 'wrote 1000001/1000001' $((2 * round - 1))
    crash
    echo "write -f -P $round 5M 1000001" >&9
    start
    printed 'wrote 1000001/1000001' $((2 * round))
    # One at a time: a second line that comes along is read, and seen with the third.
    echo "read -P $round 1M 1000001" >&9
    printed 'read 1000001/1000001' $((2 * round - 1))
    echo "read -P $round 5M 1000001" >&9
    printed 'read 1000001/1000001' $((2 * round))
done
echo quit >&9
exec 9>&-
wait "$client" || { cat "$work/io.log"; exit 1; }
! grep -q 'verification failed' "$work/io.log" || { cat "$work/io.log"; exit 1; }
io 'read -P 3 1M 1000001' 'read -P 3 5M 1000001'
stop
clean
echo "qemu: patterns, holes and images are equal; $found bytes mapped for $stored; a client stayed over three kills"
