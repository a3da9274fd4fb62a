#!/usr/bin/env bash
# The Linux kernel's own nbd driver as a client: ext4 and xfs in an emulated guest, over fstrim, a reconnect, and a
# SIGKILL of the server under load. See README.md.
#
#   bash tests/long/kernel-nbd.sh
#
# BIMETAL is the program, LIMIT the seconds all of it may take, SLOW the size of the slow device, BIMETAL_GUEST the
# folder of downloaded packages.
# Exit codes: 0 done, 1 a failure, 77 skipped: this machine cannot.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/clients/lib.sh
. "$here/../clients/lib.sh"

limit=${LIMIT:-900}
slow=${SLOW:-512M}
cache=${BIMETAL_GUEST:-${XDG_CACHE_HOME:-$HOME/.cache}/bimetal-guest}
packages=(linux-image-cloud-amd64 busybox-static nbd-client fio e2fsprogs xfsprogs)
tools=(nbd-client fio mkfs.ext4 e2fsck mkfs.xfs xfs_repair)
modules=(virtio_pci virtio_net nbd xfs)
qemu=
stage=

skip() { echo "skipped: $*"; exit 77; }
fail() {
    stage=
    echo "FAILED: $*"
    if [[ -s $work/console ]]; then
        cp "$work/console" "${TMPDIR:-/tmp}/bimetal-guest-console.log"
        echo "the guest's last words (all of them: ${TMPDIR:-/tmp}/bimetal-guest-console.log):"
        tail -n 50 "$work/console"
    fi
    exit 1
}
# Where no test failed but a command of this script did: `set -e`.
end() {
    local code=$?
    if [[ -n $qemu ]]; then
        kill -KILL "$qemu" 2>/dev/null || true
        wait "$qemu" 2>/dev/null || true
    fi
    [[ -z $stage || $code == 0 || $code == 77 ]] || echo "FAILED while $stage"
    (exit "$code") || finish # which ends with this code
    finish
}
trap end EXIT

# Programs of this machine that are needed, from Debian's archive where they are missing.
install_missing() {
    local wanted=() as_root=()
    command -v qemu-system-x86_64 >/dev/null || wanted+=(qemu-system-x86)
    command -v socat >/dev/null || wanted+=(socat)
    command -v jq >/dev/null || wanted+=(jq)
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

# The guest's packages with all they depend on, as if nothing were installed, into the cache; nothing is installed.
download() {
    local state=$work/apt
    mkdir -p "$state/partial" "$cache/debs/partial"
    : >"$state/status"
    # Of another day: two kernels would not do.
    rm -f "$cache/key" "$cache"/debs/*.deb
    echo "downloading the guest's packages to $cache"
    apt-get -qq --yes --download-only --no-install-recommends -o Debug::NoLocking=1 -o APT::Sandbox::User= \
        -o Dir::State::status="$state/status" -o Dir::Cache="$state" -o Dir::Cache::archives="$cache/debs" \
        install "${packages[@]}" >"$work/apt.log" 2>&1 ||
        { tail -n 3 "$work/apt.log"; skip "the guest's packages cannot be downloaded (apt-get update may help)"; }
}

# vmlinuz and the initramfs without our own /init, into the cache.
build() {
    local root=$work/root image=$work/image deb name file version loader path
    echo "building the guest"
    mkdir -p "$root" "$work/tree" "$image"/{bin,tools,lib64,lib/x86_64-linux-gnu}
    for deb in "$cache"/debs/*.deb; do
        case ${deb##*/} in perl* | libperl* | python* | libpython* | udev* | initramfs* | dpkg*) continue ;; esac
        dpkg-deb -x "$deb" "$root"
    done
    cp "$root/bin/busybox" "$image/bin/"
    # The programs, and every library that their loader finds for them.
    cp -L "$root/lib64/ld-linux-x86-64.so.2" "$image/lib64/"
    loader=$image/lib64/ld-linux-x86-64.so.2
    path=
    for name in lib usr/lib; do
        path+=${path:+:}$root/$name/x86_64-linux-gnu:$root/$name/x86_64-linux-gnu/ceph
    done
    for name in "${tools[@]}"; do
        file=$(find "$root/bin" "$root/sbin" "$root/usr/bin" "$root/usr/sbin" -name "$name" | head -n 1)
        cp -L "$file" "$image/tools/$name"
        "$loader" --inhibit-cache --library-path "$path" --list "$image/tools/$name" >"$work/list"
        sed -n "s|.* => \($root/.*\) (.*|\1|p" "$work/list" >>"$work/libraries"
    done
    sort -u "$work/libraries" | xargs -d '\n' cp -Lt "$image/lib/x86_64-linux-gnu"
    # The modules, with those they depend on.
    mv "$root/lib" "$work/tree/lib"
    version=$(ls "$work/tree/lib/modules")
    "$root/bin/busybox" depmod -b "$work/tree" "$version"
    for name in "${modules[@]}"; do
        grep "/$name\.ko:" "$work/tree/lib/modules/$version/modules.dep"
    done | tr -d ':' | tr ' ' '\n' | sed '/^$/d' | sort -u >"$work/modules"
    mkdir -p "$image/lib/modules/$version"
    (cd "$work/tree/lib/modules/$version" && xargs cp --parents -t "$image/lib/modules/$version" <"$work/modules")
    "$root/bin/busybox" depmod -b "$image" "$version"
    (cd "$image" && find . | "$root/bin/busybox" cpio -o -H newc >"$work/base" 2>/dev/null)
    mv "$root/boot/vmlinuz-$version" "$cache/vmlinuz"
    mv "$root/bin/busybox" "$cache/busybox"
    mv "$work/base" "$cache/base"
    echo "$key" >"$cache/key"
    rm -rf "$root" "$image" "$work/tree"
}

# The guest's console from the last marker on; markers come in the order in which they are waited for.
seen=0
line=
# marker PATTERN: waits for a line `@@ PATTERN...` behind those seen before; $line is what stands behind the `@@`
marker() {
    local found number
    while :; do
        # The console ends lines with CR LF; a line without its end is still being written.
        found=$(tail -n "+$((seen + 1))" "$work/console" | grep -an -m 1 -e "^@@ $1.*"$'\r' -e '^@@ [a-z0-9]* FAILED' || true)
        if [[ -n $found ]]; then
            number=${found%%:*}
            seen=$((seen + number))
            line=${found#*@@ }
            line=${line%$'\r'}
            [[ $line != *FAILED* ]] || fail "in the guest: $line"
            return 0
        fi
        kill -0 "$qemu" 2>/dev/null || fail "the guest ended before it said: $1"
        ((SECONDS < limit)) || fail "the time limit of $limit s passed before the guest said: $1"
        sleep 0.2
    done
}
told() { marker "$1"; printf '%4d s  %s\n' $SECONDS "$line"; }
answer() { echo go >&"$to_guest"; }

used() { timeout 20 "$BIMETAL" status "$work/v.toml" --json | jq '[.tiers[].used_bytes] | add'; }
mib() { echo "$((($1 + 524288) / 1048576)) MiB"; }

# The same rounds in the guest: kernel-nbd/init.
round() {
    local fs=$1 before after number i
    told "$fs mkfs done"
    told "$fs mounted"
    told "$fs fio verified"
    told "$fs synced all"

    marker "$fs before-trim"
    before=$(used)
    answer
    told "$fs trimmed"
    # Slots are free once that is durable. 32 MiB were deleted; what shares a chunk with other files stays.
    for ((i = 0; i < 50; i++)); do
        after=$(used)
        ((before - after < 24 << 20)) || break
        sleep 0.2
    done
    answer
    printf '%6s  used on both tiers: %s before fstrim, %s after\n' '' "$(mib "$before")" "$(mib "$after")"
    ((i < 50)) || fail "fstrim gave back $(mib $((before - after))) of 32 MiB deleted"

    told "$fs disconnected"
    told "$fs connected again"
    told "$fs fsck clean"
    told "$fs hashes equal after connecting again"

    marker "$fs kill me"
    for number in 0 4 9; do marker "$fs synced $number"; done
    crash
    printf '%4d s  %s\n' $SECONDS "SIGKILL to the server while the guest writes"
    told "$fs writing failed after"
    told "$fs lost the server"
    start
    told "$fs connected after the kill"
    told "$fs journal replayed"
    told "$fs hashes equal after the kill"
    told "$fs fsck after the kill clean"
    told "$fs round took"
}

[[ $(uname -m) == x86_64 ]] || skip "this machine is no x86-64"
for program in apt-get dpkg-deb; do command -v "$program" >/dev/null || skip "$program is not there: this needs Debian"; done
install_missing

stage="building the guest"
key=$(declare -f build download | sha256sum - | cut -d' ' -f1)" ${packages[*]} ${tools[*]} ${modules[*]}"
if [[ ! -s $cache/key || $(cat "$cache/key") != "$key" ]]; then
    download
    build
fi
mkdir "$work/own"
install -m 755 "$here/kernel-nbd/init" "$work/own/init"
(cd "$work/own" && echo init | "$cache/busybox" cpio -o -H newc 2>/dev/null) >"$work/own.cpio"
cat "$cache/base" "$work/own.cpio" >"$work/initrd"
echo "guest ready after $SECONDS s ($(du -h "$work/initrd" | cut -f1) initramfs)"

stage="starting the server"
create 64M "$slow"
start

stage="running the guest"
: >"$work/console"
mkfifo "$work/input"
# Every connection of the guest to 10.0.2.100:10809 becomes one of socat's to the server's socket. restrict=on: the
# guest reaches nothing else.
qemu-system-x86_64 -accel tcg,thread=multi -cpu Nehalem,+rdrand -smp 2 -m 1024 -nodefaults -no-user-config \
    -display none -no-reboot -kernel "$cache/vmlinuz" -initrd "$work/initrd" \
    -append 'console=ttyS0 quiet loglevel=1 mitigations=off panic=-1' \
    -chardev stdio,id=console,signal=off -serial chardev:console \
    -netdev "user,id=net,restrict=on,guestfwd=tcp:10.0.2.100:10809-cmd:socat -lf $work/socat.log - UNIX-CONNECT:$socket" \
    -device virtio-net-pci,netdev=net,romfile= <"$work/input" >>"$work/console" 2>&1 &
qemu=$!
exec {to_guest}>"$work/input"

told "guest booted"
told "guest modules loaded"
told "guest connected"
told "guest size"
size=$(timeout 20 "$BIMETAL" status "$work/v.toml" --json | jq .size_bytes)
[[ $line == "guest size $size" ]] || fail "the volume has $size bytes"
told "guest blocks"
round ext4
round xfs
told "guest off"

stage="ending"
for ((i = 0; i < 200; i++)); do kill -0 "$qemu" 2>/dev/null || break; sleep 0.1; done
kill -0 "$qemu" 2>/dev/null && fail "the guest does not power off"
wait "$qemu" || fail "QEMU ended with $?"
qemu=
stop
clean
echo "the kernel's nbd driver: ext4 and xfs are whole after $SECONDS s; the volume is clean"
