# nbdcopy in, restart, nbdcopy out, equal; qemu-img compare and nbdinfo agree.
. "$(dirname "$0")/lib.sh"
need nbdcopy nbdinfo qemu-img cmp

create 256M 1G
start
size=$(nbdinfo --size "$uri")
# More than the fast tier, with holes, and not a multiple of anything.
bytes=$((700 * 1024 * 1024 + 12345))
truncate -s "$bytes" "$work/in.img"
for ((at = 0; at < 600; at += 7)); do
    head -c 4194304 /dev/urandom | dd of="$work/in.img" bs=1M seek="$at" conv=notrunc status=none
done
truncate -s "$size" "$work/in.img"

nbdinfo "$uri" | grep -q 'can_multi_conn: true'
nbdcopy --flush "$work/in.img" "$uri"
stop
clean
start
nbdcopy "$uri" "$work/out.img"
cmp "$work/in.img" "$work/out.img"
qemu-img compare -f raw -F raw "$work/in.img" "$uri"
crash
start
qemu-img compare -f raw -F raw "$work/in.img" "$uri"
stop
clean
echo "$size bytes in and out are equal, over a restart and a kill"
