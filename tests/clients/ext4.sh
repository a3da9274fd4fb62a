# A real file system: ext4 on a loop device over nbdfuse, over a restart.
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
need nbdfuse mkfs.ext4 e2fsck losetup mount
[[ $(id -u) == 0 && -e /dev/fuse ]] || { echo "mounting needs root and /dev/fuse"; exit 77; }

create 256M 1G
start
mkdir "$work/fuse" "$work/mnt"
fuse= loop=
detach() {
    mountpoint -q "$work/mnt" && umount "$work/mnt"
    [[ -z $loop ]] || losetup -d "$loop"
    loop=
    if [[ -n $fuse ]]; then
        fusermount3 -u "$work/fuse" 2>/dev/null || umount "$work/fuse" || true
        wait "$fuse" || true
    fi
    fuse=
}
attach() {
    nbdfuse "$work/fuse" "$uri" &
    fuse=$!
    local i
    for ((i = 0; i < 200; i++)); do [[ -e $work/fuse/nbd ]] && break; sleep 0.05; done
    loop=$(losetup --find --show "$work/fuse/nbd" 2>/dev/null) || { detach; echo "no loop device"; exit 77; }
}
trap 'detach; finish' EXIT

attach
mkfs.ext4 -q -E nodiscard "$loop"
mount "$loop" "$work/mnt"
for i in 1 2 3 4 5 6 7 8; do head -c 20000000 /dev/urandom >"$work/mnt/file$i"; done
rm "$work/mnt/file3"
(cd "$work/mnt" && sha256sum file*) >"$work/sums"
detach
stop
clean
start
attach
e2fsck -fn "$loop" >/dev/null 2>&1 || { echo "e2fsck found damage"; exit 1; }
mount "$loop" "$work/mnt"
(cd "$work/mnt" && sha256sum --quiet -c "$work/sums")
detach
stop
clean
echo "ext4 is whole after a restart"
