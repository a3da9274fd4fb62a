#!/usr/bin/env bash
# What docs/SERVICE.md recommends under Recipes, as it stands there, in a Debian guest: /home on a volume, LUKS and thin
# snapshots above one, a mirror below its fast tier, a virtual machine's disk over kills of the server, and a disk that is pulled
# under a mount. See README.md.
#
#   bash tests/long/recipes.sh [home|luks|thin|mirror|machine|pulled]...
#
# BIMETAL is the program, LIMIT the seconds that each boot may take, SUITE which Debian the guest is, BIMETAL_GUEST the folder
# it is kept in.
# Exit codes: 0 done, 1 a failure, 77 skipped: this machine cannot.
set -eu -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/bimetal-recipes-XXXXXX")
# shellcheck source=tests/long/boot/guest.sh
. "$here/boot/guest.sh"

# A guest of its own: it has programs that the other must do without.
image=$image-recipes
guest_packages+=,passwd,cryptsetup,lvm2,thin-provisioning-tools,mdadm,qemu-utils
limit=${LIMIT:-900}

# new: a guest as it was installed, and empty disks
new() {
    rm -f "$work"/overlay "$work"/{fast,mirror,slow}
    truncate -s 256M "$work/fast" "$work/mirror"
    truncate -s 1G "$work/slow"
}

# boot RECIPE PART [DISK...]: a boot in which that part of the recipe's file must succeed
boot() {
    local recipe=$1 part=$2 disks=()
    shift 2
    (($# == 0)) || disks=("${@/#/$work/}")
    cat "$here/recipes/words" "$here/recipes/$recipe" - <<<"$part" >"$work/script"
    guest "$recipe, $part" "$limit" "${disks[@]}" <"$work/script" || fail "$recipe, $part"
    [[ $off_seconds -le 60 ]] || fail "$recipe, $part: it took $off_seconds s to power off"
}

# Whether one of the two devices holds what the recipes write in clear.
in_clear() { grep -qa 'a secret of the recipes' "$work/fast" "$work/slow"; }

home() {
    boot home first fast slow
    in_clear || fail "home: without encryption a device shows what is on it"
    boot home second fast slow
    boot home third fast slow
}
luks() {
    boot luks first fast slow
    boot luks second fast slow
    ! in_clear || fail "luks: neither device shows what is on the volume"
}
thin() {
    boot thin first fast slow
    boot thin second fast slow
}
mirror() {
    boot mirror first fast mirror slow
    # The leg that is left, alone.
    boot mirror second fast slow
}
machine() { boot machine first fast slow; }
pulled() { boot pulled first fast slow; }

all=(home luks thin mirror machine pulled)
chosen=("$@")
((${#chosen[@]})) || chosen=("${all[@]}")
for recipe in "${chosen[@]}"; do
    [[ " ${all[*]} " == *" $recipe "* ]] || { echo "recipes.sh: there is no recipe '$recipe'; there are: ${all[*]}" >&2; exit 1; }
done
ready
mkdir -p "$work/job"
root=$(realpath "$here/../..")
cp "$root/$("$root/package")" "$work/job/bimetal.deb"
for recipe in "${chosen[@]}"; do
    new
    "$recipe"
done
echo "recipes: ${chosen[*]}: all of it held after $SECONDS s"
