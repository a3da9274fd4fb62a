#!/usr/bin/env bash
# What makes a volume a service, as far as that shows without a machine that boots: systemd understands the units and finds no
# cycle with file systems of fstab, the generator lets units wait for their devices, and udev knows a device of a volume by its
# rule.
source "$(dirname "$0")/lib.sh"
contrib=$(realpath "$(dirname "$0")/../../contrib")
PATH=$PATH:/usr/sbin:/sbin
need systemd-analyze jq
loop=
before_finish() { [[ -z $loop ]] || losetup --detach "$loop" 2>/dev/null || true; }

# The programs that the units name are those under test.
units=$work/units
mkdir -p "$units/multi-user.target.wants" "$work/etc/bimetal" "$work/generated"
install -m 755 "$contrib/release" "$work/release"
for unit in "$contrib"/systemd/bimetal*@.*; do
    sed -e "s|/usr/bin/bimetal|$BIMETAL|" -e "s|/usr/lib/bimetal/release|$work/release|" "$unit" >"$units/${unit##*/}"
done

# A volume of two devices, and one of files, both enabled.
export XDG_CONFIG_HOME=$work/etc
create 64M 128M
id=$(sed -n 's/^volume_id = "\(.*\)"/\1/p' "$work/v.toml")
sed -e 's|device = "fast.img"|device = "/dev/disk/by-id/fast"|' -e 's|device = "slow.img"|device = "/dev/sdb"|' \
    "$work/v.toml" >"$work/etc/bimetal/films.toml"
sed "s|device = \"|&$work/|" "$work/v.toml" >"$work/etc/bimetal/photos.toml"
echo "no volume" >"$work/etc/bimetal/broken.toml"
ln -s ../bimetal@.service "$units/multi-user.target.wants/bimetal@films.service"
ln -s ../bimetal-nbd@.service "$units/multi-user.target.wants/bimetal-nbd@photos.service"
"$BIMETAL" boot-units "$work/generated" --units "$units"
piece=$work/generated/bimetal@films.service.d/50-devices.conf
for tier in fast slow; do
    device="dev-disk-by\\x2dbimetal-$id\\x2d$tier.device"
    grep -qxF "After=$device" "$piece" || fail "the unit waits for $device"
    [[ -L $work/generated/$device.wants/bimetal@films.service ]] || fail "$device starts the unit"
done
grep -q "RequiresMountsFor=.*fast.img" "$work/generated/bimetal@photos.service.d/50-devices.conf" || fail "files need their file system"
[[ $(find "$work/generated" -name 'bimetal@photos.service' -type l) == "" ]] || fail "files have no device that starts anything"
echo "the generator: ok"

# File systems of fstab that are on it, with and without nofail, and all that starts at boot.
printf '%s\n' 'UUID=11111111-1111-1111-1111-111111111111 /data ext4 nofail 0 2' \
    'UUID=22222222-2222-2222-2222-222222222222 /home ext4 defaults 0 2' >"$work/fstab"
fstab_generator=/usr/lib/systemd/system-generators/systemd-fstab-generator
[[ -x $fstab_generator ]] || fstab_generator=/lib/systemd/system-generators/systemd-fstab-generator
SYSTEMD_FSTAB=$work/fstab "$fstab_generator" "$work/generated" "$work/generated" "$work/generated"
[[ -s $work/generated/data.mount ]] || fail "there is a unit for /data"
export SYSTEMD_UNIT_PATH=$units:$work/generated:/usr/lib/systemd/system:/lib/systemd/system
for unit in bimetal@films.service bimetal-nbd@films.service bimetal-nbd@films.socket multi-user.target local-fs.target; do
    # What is not ours to say is of no interest: this machine may lack what other units name.
    systemd-analyze verify --man=no "$unit" >"$work/verified" 2>&1 || true
    ! grep -iE 'bimetal|cycle' "$work/verified" || fail "systemd understands $unit"
done
! grep -q '^After=.*local-fs' "$contrib/systemd/bimetal@.service" || fail "it starts before local file systems"
echo "the units: ok"
sh -n "$contrib/release" && sh -n "$contrib/systemd/bimetal-generator"

# What udev asks, of what is a member and of what is none.
"$BIMETAL" udev-probe "$work/slow.img" >"$work/probed"
for line in ID_FS_TYPE=bimetal_member UDISKS_IGNORE=1 "BIMETAL_VOLUME=$id" BIMETAL_TIER=slow BIMETAL_NAME=films; do
    grep -qx "$line" "$work/probed" || { cat "$work/probed"; fail "udev is told $line"; }
done
head -c 100000 /dev/urandom >"$work/foreign"
for none in "$work/foreign" /dev/null /dev/full "$work" "$work/nothing" /dev/no-such-device; do
    [[ -z $("$BIMETAL" udev-probe "$none" 2>&1) ]] || fail "nothing is said of $none"
done
echo "the probe: ok"

# Nobody takes a member for blank.
if command -v mkfs.ext4 >/dev/null && command -v script >/dev/null; then
    for tier in fast slow; do
        cp --sparse=always "$work/$tier.img" "$work/member"
        { sleep 1; echo n; } | script -qec "mkfs.ext4 $work/member" /dev/null >"$work/asked" || true
        grep -q 'Proceed anyway' "$work/asked" && cmp "$work/$tier.img" "$work/member" ||
            { cat "$work/asked"; fail "mkfs asks before it takes the $tier device"; }
    done
    "$BIMETAL" check "$work/v.toml" >/dev/null || fail "the volume is whole"
    echo "what mkfs asks: ok"
else
    echo "what mkfs asks: not looked at, as mkfs.ext4 or script is not installed"
fi

rule=$contrib/udev/61-bimetal.rules
command -v udevadm >/dev/null || { echo "the rule: not looked at, as udevadm is not installed"; exit 0; }
if udevadm verify --help >/dev/null 2>&1; then udevadm verify "$rule" || fail "udev understands the rule"; fi
[[ $(id -u) == 0 ]] && loop=$(new_loop "$work/slow.img" 2>/dev/null) || { echo "the rule: not tried, as there is no loop device"; exit 0; }
mkdir "$work/rules"
cp /usr/lib/udev/rules.d/*.rules "$work/rules/" 2>/dev/null || cp /lib/udev/rules.d/*.rules "$work/rules/"
sed "s|/usr/bin/bimetal|$BIMETAL|" "$rule" >"$work/rules/61-bimetal.rules"
# Only this script's udev sees the rule.
unshare --mount sh -c "mount --bind '$work/rules' \"\$(readlink -f /lib/udev/rules.d)\" && exec udevadm test '/sys/class/block/${loop#/dev/}'" \
    >"$work/tested" 2>&1 || { tail -n 5 "$work/tested"; echo "the rule: not tried, as udevadm test does not work here"; exit 0; }
# What it links is of this machine all the same.
rm -f "/dev/disk/by-bimetal/$id-slow"
rmdir --ignore-fail-on-non-empty /dev/disk/by-bimetal 2>/dev/null
! grep -i "61-bimetal.*\(invalid\|unknown\|error\)" "$work/tested" || fail "udev understands the rule"
for said in ID_FS_TYPE=bimetal_member "disk/by-bimetal/$id-slow"; do
    grep -q "$said" "$work/tested" || { tail -n 40 "$work/tested"; fail "udev knows $said"; }
done
echo "the rule: ok"
