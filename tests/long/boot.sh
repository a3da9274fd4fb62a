#!/usr/bin/env bash
# From the package to a file system that is mounted at each boot, in a Debian guest: five commands, shutdowns with a file open,
# hard resets while it is written to, a device missing, names exchanged, an upgrade under a mounted file system, and the
# package purged. See README.md.
#
#   bash tests/long/boot.sh
#
# BIMETAL is the program, LIMIT the seconds that each boot may take, RESETS how many hard resets there are, SUITE which Debian
# the guest is, BIMETAL_GUEST the folder it is kept in.
# Exit codes: 0 done, 1 a failure, 77 skipped: this machine cannot.
set -eu -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/bimetal-boot-XXXXXX")
# shellcheck source=tests/long/boot/guest.sh
. "$here/boot/guest.sh"

limit=${LIMIT:-600}
resets=${RESETS:-3}

# boot WHAT [DISK...]: a boot whose script must succeed
boot() {
    local what=$1
    shift
    guest "$what" "$limit" "$@" || fail "$what"
    # The journal is on the root; nothing but time keeps a shutdown from being a clean one.
    [[ -z $off_seconds || $off_seconds -le 60 ]] || fail "$what: it took $off_seconds s to power off"
}

ready

# The package as it is built, and a later version of it for the upgrade.
mkdir -p "$work/job" "$work/later"
root=$(realpath "$here/../..")
deb=$root/$("$root/package")
cp "$deb" "$work/job/bimetal.deb"
dpkg-deb -R "$deb" "$work/later"
sed -i 's/^Version: .*/&+later/' "$work/later/DEBIAN/control"
dpkg-deb --root-owner-group --build "$work/later" "$work/job/later.deb" >/dev/null
truncate -s 256M "$work/fast"
truncate -s 1G "$work/slow"
fast=$work/fast slow=$work/slow

# 1. Five commands.
boot "five commands" "$fast" "$slow" <<'S'
dpkg -i bimetal.deb || fail "the package can be installed"
bimetal create films --fast /dev/vda --slow /dev/vdb || fail "create"
systemctl enable --now bimetal@films || fail "enable"
mkfs.ext4 -q /dev/bimetal/films || fail "mkfs"
echo "UUID=$(blkid -s UUID -o value /dev/bimetal/films) /data ext4 nofail 0 2" >>/etc/fstab
mkdir /data && systemctl daemon-reload && mount /data || fail "mount"
bimetal status films
udevadm settle
lsblk -o NAME,FSTYPE,LABEL,UUID,MOUNTPOINT
[[ $(lsblk -no FSTYPE /dev/bimetal/films) == ext4 ]] || fail "udev knows the file system"
[[ $(lsblk -no FSTYPE /dev/vda) == bimetal_member ]] || fail "udev knows the fast device"
[[ -e /dev/disk/by-bimetal/$(sed -n 's/^volume_id = "\(.*\)"/\1/p' /etc/bimetal/films.toml)-slow ]] || fail "udev links the slow device"
write 10
quiet
# Somebody has a file open when the machine is told to stop.
systemd-run --quiet sh -c 'exec sleep infinity </data/synced'
S

# 2. Mounted by itself, then reset while it is written to.
for ((n = 1; n <= resets; n++)); do
    kill_after=$((3 + n * 4)) guest "reset $n" "$limit" "$fast" "$slow" <<'S' && fail "it was to be reset" || code=$?
await 120 "it is mounted by itself" mountpoint -q /data
whole
write 1000
S
    ((code == 137)) || fail "reset $n: exit code $code"
done
boot "after the resets" "$fast" "$slow" <<'S'
await 120 "it is mounted by itself" mountpoint -q /data
findmnt -n /data
whole
write 5
quiet
journalctl -b --no-pager -o cat -u bimetal@films.service | grep -q 'recovered after a crash' || fail "it had been reset"
S

# 3. With one device missing, boot goes on, and it is said which one.
boot "one device missing" "$fast" <<'S'
await 200 "boot goes on" sh -c '[ "$(systemctl is-active multi-user.target)" = active ]'
await 200 "its status names the device" sh -c "systemctl status --no-pager --full bimetal@films | grep 'slow device'"
journalctl -b --no-pager -o cat -u bimetal@films.service | grep -m 1 'slow device' || fail "the journal names the device"
bimetal list | grep 'slow device' || fail "the list names the device"
! mountpoint -q /data || fail "nothing is mounted"
# Nothing claims the device that is left, and nobody takes it for blank.
(sleep 3; echo n) | script -qec "mkfs.ext4 /dev/vda" /dev/null | tee asked
grep -q 'Proceed anyway' asked || fail "mkfs asks before it takes a member"
S

# 4. Under exchanged names.
boot "names exchanged" "$slow" "$fast" <<'S'
await 120 "it is mounted by itself" mountpoint -q /data
whole
quiet
S

# 5. An upgrade under a mounted file system, and a server that is killed.
boot "an upgrade" "$fast" "$slow" <<'S'
await 120 "it is mounted by itself" mountpoint -q /data
(write 60) >write.log 2>&1 &
sleep 5
dpkg -i later.deb || fail "the upgrade"
for ((i = 0; i < 5; i++)); do
    sleep 5
    systemctl kill --kill-whom=main --signal=KILL bimetal@films
done
wait $! || { cat write.log; fail "writing went on"; }
whole
grep ' /data ' /proc/self/mounts | grep -q ' rw,' || fail "it can be written"
! dmesg | grep -E 'I/O error|Buffer I/O|EXT4-fs error' || fail "nobody got an error"
quiet
S

# 6. Its socket for virtual machines, for those of its group; and a disk that is taken away and put back.
boot "sockets and a disk put back" "$fast" "$slow" <<'S'
await 120 "it is mounted by itself" mountpoint -q /data
umount /data
systemctl stop bimetal@films || fail "stopped"
[[ ! -e /dev/bimetal/films ]] || fail "the device is gone with its service"
# client SOCKET GROUPS: somebody else connects
client() {
    setpriv --reuid nobody --regid nogroup "$2" bimetal lab fio --name=x --rw=randread --size=1m --number_ios=16 \
        --target "nbd+unix:///?socket=$1" >client.log 2>&1
}
systemctl start bimetal-nbd@films || fail "the service of sockets"
client /run/bimetal/films.sock --groups=bimetal || { cat client.log; fail "who is in the group connects"; }
! client /run/bimetal/films.sock --clear-groups || fail "nobody else connects"
grep -q 'Permission denied' client.log || { cat client.log; fail "it is the socket that refuses"; }
XDG_RUNTIME_DIR=/run/user/0 bimetal status films | grep -q 'films: open' || fail "root's login finds the service"
systemctl stop bimetal-nbd@films
systemctl start bimetal-nbd@films.socket || fail "the socket alone"
client /run/bimetal-films.sock --groups=bimetal || { cat client.log; fail "the first client starts the server"; }
systemctl start bimetal@films || fail "the other service takes its place"
systemctl is-active -q bimetal@films && ! systemctl is-active -q bimetal-nbd@films || fail "one of them serves it"
mount /data || fail "mounted again"
whole
umount /data
systemctl stop bimetal@films
echo 1 >"$(readlink -f /sys/block/vdb/device/..)/remove"
[[ ! -e /dev/vdb ]] || fail "the disk is away"
echo 1 >/sys/bus/pci/rescan
await 60 "a device that comes back starts the service" systemctl is-active bimetal@films
mount /data || fail "mounted again"
whole
quiet
S

# 7. A volume in use keeps the package; purged, it leaves the volume.
boot "purged" "$fast" "$slow" <<'S'
await 120 "it is mounted by itself" mountpoint -q /data
! dpkg --purge bimetal >purge.log 2>&1 || fail "a volume in use keeps the package from being removed"
grep 'unmount' purge.log || { cat purge.log; fail "it says what to do"; }
whole
umount /data
systemctl stop bimetal@films
[[ ! -e /dev/bimetal/films ]] || fail "the device is gone with its service"
bimetal check films --json | grep -q '"clean": true' || fail "the volume is clean"
dpkg --purge bimetal || fail "purge"
[[ -s /etc/bimetal/films.toml ]] || fail "the volume file is there"
sed -i '/ \/data /d' /etc/fstab
dpkg -i later.deb || fail "installed again"
systemctl enable --now bimetal@films || fail "enabled again"
mount /dev/bimetal/films /data || fail "mounted again"
whole
quiet
S
echo "boot: all of it held after $SECONDS s"
