# A real file system: ext4 on a loop device over nbdfuse, over a restart.
. "$(dirname "$0")/lib.sh"
need_mounts
need mkfs.ext4 e2fsck

create 256M 1G
start
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
