#!/usr/bin/env bash
# A volume as a block device of the machine, in a Debian guest with a kernel that has ublk and nbd: a server that is killed
# again and again under a mounted file system, one that is stopped and followed by another, a wait that ends, a device that is
# held, and what is taken where a driver is missing. See README.md.
#
#   bash tests/long/attach.sh
#
# BIMETAL is the program, KILLS how often a server is killed for each kind of device, LIMIT the seconds the guest may take,
# SUITE which Debian the guest is, BIMETAL_GUEST the folder it is kept in.
# Exit codes: 0 done, 1 a failure, 77 skipped: this machine cannot.
set -eu -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/bimetal-attach-XXXXXX")
# shellcheck source=tests/long/boot/guest.sh
. "$here/boot/guest.sh"

# A guest of its own: it has programs that the other must do without.
image=$image-attach
guest_packages+=,fio,xfsprogs,nbdfuse,fuse3

ready

mkdir -p "$work/job"
install -m 755 "$(realpath "${BIMETAL:-$here/../../target/release/bimetal}")" "$work/job/bimetal"
cp "$here"/../../contrib/udev/61-bimetal.rules "$work/job/"
echo "KILLS=${KILLS:-20}" >"$work/job/settings"
truncate -s 512M "$work/fast"
truncate -s 2G "$work/slow"
guest "attach" "${LIMIT:-1800}" "$work/fast" "$work/slow" <"$here/attach/script" ||
    fail "attach"
echo "attach: all of it held after $SECONDS s"
