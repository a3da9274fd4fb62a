#!/usr/bin/env bash
# The Debian package: it can be built of the program under test, holds what it should where it should, and lintian finds no
# error in it. What it does when it is installed is tested in a guest (tests/long/boot.sh).
source "$(dirname "$0")/lib.sh"
root=$(realpath "$(dirname "$0")/../..")
need dpkg-deb dpkg-shlibdeps gzip strip

deb=$(cd "$root" && BIMETAL=$BIMETAL ./package)
deb=$root/$deb
dpkg-deb -f "$deb" >"$work/control"
grep -qx "Version: $("$BIMETAL" --version | cut -d' ' -f2)" "$work/control" || fail "its version is the program's"
grep -q '^Depends: .*libc6' "$work/control" || fail "it depends on the C library"
! grep -q '@' <(grep -v '^Maintainer' "$work/control") || fail "nothing is left to be filled in"
dpkg-deb -x "$deb" "$work/x"
for file in usr/bin/bimetal usr/lib/systemd/system/bimetal@.service usr/lib/systemd/system/bimetal-nbd@.service \
    usr/lib/systemd/system/bimetal-nbd@.socket usr/lib/systemd/system-generators/bimetal-generator \
    usr/lib/udev/rules.d/61-bimetal.rules usr/lib/bimetal/release usr/lib/sysusers.d/bimetal.conf etc/bimetal/README \
    usr/share/bash-completion/completions/bimetal usr/share/doc/bimetal/README.Debian usr/share/doc/bimetal/copyright; do
    [[ -s $work/x/$file ]] || fail "$file is in it"
done
for page in bimetal bimetal-serve bimetal-import bimetal-export; do
    gzip -t "$work/x/usr/share/man/man1/$page.1.gz" || fail "the page of $page is in it"
done
[[ ! -e $work/x/usr/share/man/man1/bimetal-udev-probe.1.gz ]] || fail "what only other programs call has no page"
"$work/x/usr/bin/bimetal" --version >/dev/null || fail "its program runs"
[[ -z $(find "$work/x/etc" -name '*.toml') ]] || fail "it brings no volume"
dpkg-deb -e "$deb" "$work/e"
for script in postinst prerm postrm; do sh -n "$work/e/$script" || fail "$script is a script"; done
(cd "$work/x" && md5sum --quiet -c "$work/e/md5sums") || fail "its sums are right"

# No step of a removal looks for volumes to remove.
! grep -E 'rm .*(toml|/dev/)|destroy' "$work/e/postrm" "$work/e/prerm" || fail "volumes are left alone"
if command -v lintian >/dev/null; then
    lintian --fail-on error --no-tag-display-limit --allow-root "$deb" >"$work/lintian" 2>&1 ||
        { grep '^E:' "$work/lintian"; fail "lintian finds no error"; }
    echo "lintian: $(grep -c '^W:' "$work/lintian" || true) warnings, no error"
fi
echo "the package: $(stat -c %s "$deb") bytes, $(grep '^Depends' "$work/control")"
