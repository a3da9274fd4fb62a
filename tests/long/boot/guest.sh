# A Debian guest with systemd, for boot.sh: built once, booted as often as is asked. To be sourced; $work is a folder for what
# is temporary.
#
# It runs without hardware virtualization, so it is slow, and the same everywhere. Its root is on NVMe, which the kernel has
# built in, so there is no initramfs; disks of the test are virtio.

# Where the guest is kept, and which Debian it is.
cache=${BIMETAL_GUEST:-${XDG_CACHE_HOME:-$HOME/.cache}/bimetal-boot-guest}
suite=${SUITE:-bookworm}
image=$cache/$suite
guest_packages=systemd,systemd-sysv,udev,dbus,kmod,util-linux,mount,procps,e2fsprogs,apt
qemu=

skip() { echo "skipped: $*"; exit 77; }
fail() {
    echo "FAILED: $*"
    [[ ! -s $work/console ]] || { echo "the console's end:"; tail -n 30 "$work/console" | tr -d '\r'; }
    exit 1
}
end() {
    local code=$?
    if [[ -n $qemu ]]; then
        kill -KILL "$qemu" 2>/dev/null || true
        wait "$qemu" 2>/dev/null || true
    fi
    rm -rf "$work"
    exit $code
}
trap end EXIT
trap 'exit 143' INT TERM

# The archive of this machine's apt that has a label.
archive() { apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' "Label: $1" | head -n 1; }

# Programs of this machine that are needed, from Debian's archive where they are missing.
install_missing() {
    local need wanted=() as_root=()
    for need in mmdebstrap:mmdebstrap qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils mke2fs:e2fsprogs depmod:kmod \
        xz:xz-utils zstd:zstd dpkg-shlibdeps:dpkg-dev; do
        PATH=$PATH:/usr/sbin:/sbin command -v "${need%%:*}" >/dev/null || wanted+=("${need##*:}")
    done
    ((${#wanted[@]})) || return 0
    if [[ $(id -u) != 0 ]]; then
        sudo -n true 2>/dev/null || skip "not installed, and no rights to: ${wanted[*]}"
        as_root=(sudo -n)
    fi
    echo "installing from Debian: ${wanted[*]}"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update >/dev/null 2>&1 || true
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends "${wanted[@]}" >"$work/apt.log" 2>&1 ||
        { tail -n 3 "$work/apt.log"; skip "these cannot be installed: ${wanted[*]}"; }
}

# The root of the guest, with what runs a test's script in it.
build_root() {
    local root=$1 main security kernel=linux-image-cloud-amd64 sources version etc unit
    main=$(archive Debian)
    security=$(archive Debian-Security)
    [[ -n $main ]] || skip "apt here knows no archive of Debian; apt-get update may help"
    sources=("deb $main $suite main" "deb $main $suite-updates main")
    [[ -z $security ]] || sources+=("deb $security $suite-security main")
    # Bookworm's own kernel is from before ublk could be recovered.
    [[ $suite != bookworm ]] || { sources+=("deb $main bookworm-backports main") && kernel+=/bookworm-backports; }
    apt-config dump | grep -iE '^Acquire::(http|https|Check|Retries)' >"$work/apt.conf" || true
    INITRD=No mmdebstrap --quiet --mode=root --variant=minbase --format=directory --aptopt="$work/apt.conf" \
        --aptopt='Acquire::Languages "none"' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --include="$guest_packages,$kernel" "$suite" "$root" "${sources[@]}" >"$work/mmdebstrap.log" 2>&1 ||
        { tail -n 5 "$work/mmdebstrap.log"; skip "the guest's packages cannot be installed"; }
    version=$(ls "$root/lib/modules")
    etc=$root/etc/systemd/system
    unpack_kernel "$root/boot/vmlinuz-$version"
    find "$root/lib/modules" -name '*.ko.xz' -print0 | xargs -0r xz -d
    depmod -b "$root" "$version"
    install -m 755 "$here/boot/job" "$root/usr/local/lib/guest-job"
    printf '%s\n' '[Unit]' 'After=multi-user.target' '[Service]' 'ExecStart=/usr/local/lib/guest-job' >"$etc/guest-job.service"
    mkdir -p "$etc/multi-user.target.wants"
    ln -s ../guest-job.service "$etc/multi-user.target.wants/"
    # What serves no test of storage but costs emulated seconds.
    for unit in getty.target getty@tty1.service serial-getty@ttyS0.service e2scrub_reap.service systemd-firstboot.service \
        systemd-binfmt.service systemd-pstore.service modprobe@drm.service modprobe@efi_pstore.service dev-hugepages.mount \
        dev-mqueue.mount sys-kernel-tracing.mount proc-sys-fs-binfmt_misc.automount e2scrub_all.timer apt-daily.timer \
        apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer systemd-networkd.service; do
        ln -sf /dev/null "$etc/$unit"
    done
    # Emergency mode would wait for ever: say why on the console, and power off.
    printf '%s\n' '[Unit]' DefaultDependencies=no '[Service]' Type=oneshot StandardOutput=tty TTYPath=/dev/ttyS0 \
        "ExecStart=-sh -c 'systemctl --failed --no-legend --plain; journalctl -b -p warning -o cat -n 20'" \
        'ExecStart=systemctl poweroff --force --force' >"$etc/emergency.service"
    sed -i 's/^update_initramfs=.*/update_initramfs=no/' "$root/etc/initramfs-tools/update-initramfs.conf" 2>/dev/null || true
    echo guest >"$root/etc/hostname"
    mkdir -p "$root/var/log/journal"
    tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
    touch "$root/etc/.updated" "$root/var/.updated"
}

# An emulated processor is slow at unpacking, so it is done here: the payload is where the kernel's header says, less four
# bytes at its end, and QEMU boots the ELF file in it.
unpack_kernel() {
    local kernel=$1
    field() { od -An -t"u$2" -j"$1" -N"$2" "$kernel" | tr -d ' '; }
    dd if="$kernel" iflag=skip_bytes,count_bytes bs=1M status=none skip=$((($(field 497 1) + 1) * 512 + $(field 584 4))) \
        count=$(($(field 588 4) - 4)) | zstd -dcq >"$work/vmlinux" || skip "the guest's kernel is not packed as expected"
}

build_guest() {
    local key root=$work/guest
    key="$suite $guest_packages $(declare -f build_root unpack_kernel | cat - "$here/boot/job" | sha256sum | cut -c1-16)"
    mkdir -p "$image"
    exec 9>"$image/lock"
    flock 9
    if [[ -s $image/key && $(<"$image/key") == "$key" ]]; then flock -u 9; return 0; fi
    echo "building the guest in $image"
    build_root "$root"
    truncate -s 2G "$work/root.img"
    mke2fs -q -F -t ext4 -m 0 -L guest -E lazy_itable_init=0,nodiscard -d "$root" "$work/root.img"
    rm -rf "$image/key" "$root"
    mv "$work/root.img" "$work/vmlinux" "$image/"
    echo "$key" >"$image/key"
    flock -u 9
}

# guest NAME LIMIT [DISK...]: boots, runs the script on standard input as root, and powers off; what the guest changes on its
# root is kept for the next one. Gives the script's exit code; 124 after LIMIT seconds, 125 where no script was reached.
# kill_after: a number of seconds after the script said `writing`, after which the guest is reset, which is 137.
# off_seconds is how long it took to power off.
guest() {
    local name=$1 limit=$2 begun=$SECONDS code= disk n=0 devices=() ended=
    shift 2
    off_seconds=
    [[ -e $work/overlay ]] || qemu-img create -q -f qcow2 -F raw -b "$image/root.img" "$work/overlay"
    mkdir -p "$work/job"
    cat "$here/boot/words" - >"$work/job/script.sh"
    tar -cf "$work/job.tar" -C "$work/job" .
    for disk; do
        devices+=(-drive "if=none,id=disk$n,format=raw,discard=unmap,file=$disk"
            -device "virtio-blk-pci,drive=disk$n,serial=${disk##*/}")
        n=$((n + 1))
    done
    : >"$work/state"
    : >"$work/said"
    [[ -p $work/in ]] || mkfifo "$work/in"
    # Were its input at an end, QEMU would close the port `out`.
    exec 8<>"$work/in"
    # One processor without cmpxchg16b: with more, or with it, QEMU 7.2 lets the kernel panic now and then.
    qemu-system-x86_64 -accel tcg -cpu Nehalem,-cx16,+rdrand -smp 1 -m 1024 \
        -machine q35,sata=off,smbus=off,i8042=off,vmport=off,hpet=off,usb=off -nodefaults -no-user-config -display none \
        -no-reboot -kernel "$image/vmlinux" -append "root=/dev/nvme0n1 rw rootfstype=ext4 console=ttyS0 quiet panic=-1 \
no_timer_check mitigations=off" -serial "file:$work/console" \
        -drive "if=none,id=root,format=qcow2,discard=unmap,file=$work/overlay" -device nvme,drive=root,serial=guest \
        "${devices[@]}" -drive "if=none,id=job,format=raw,readonly=on,file=$work/job.tar" \
        -device virtio-blk-pci,drive=job,serial=job -device virtio-rng-pci -device virtio-serial-pci \
        -chardev stdio,id=out,signal=off -device virtserialport,chardev=out,name=out \
        -chardev "file,id=state,path=$work/state" -device virtserialport,chardev=state,name=state <&8 >"$work/said" &
    qemu=$!
    while kill -0 "$qemu" 2>/dev/null; do
        if [[ -n ${kill_after:-} ]] && grep -q '^writing' "$work/said"; then
            sleep "$kill_after"
            code=137
        fi
        [[ -n $ended ]] || ! grep -q end "$work/state" || ended=$SECONDS
        ((SECONDS - begun < limit)) || code=124
        [[ -z $code ]] || { kill -KILL "$qemu" 2>/dev/null || true; break; }
        sleep 0.2
    done
    wait "$qemu" 2>/dev/null || true
    qemu=
    cat "$work/said"
    [[ -z $ended ]] || off_seconds=$((SECONDS - ended))
    [[ $code != 124 ]] || { echo "$name: not over after $limit s"; return 124; }
    # shellcheck disable=SC2034
    [[ -z $(sed -n 's/^end //p' "$work/state") ]] || code=$(sed -n 's/^end //p' "$work/state")
    [[ -n $code ]] || { grep -q begin "$work/state" && code=137 || code=125; }
    printf '%4d s  %s: exit code %s%s\n' $((SECONDS - begun)) "$name" "$code" "${off_seconds:+, powered off in $off_seconds s}"
    return "$code"
}

# The guest is there, or why it cannot be is said.
ready() {
    [[ $(uname -m) == x86_64 ]] || skip "this machine is no x86-64"
    [[ $(id -u) == 0 ]] || skip "building the guest needs root"
    command -v apt-get >/dev/null || skip "there is no apt-get: this needs Debian"
    install_missing
    PATH=$PATH:/usr/sbin:/sbin
    build_guest
    echo "guest ready after $SECONDS s"
}
