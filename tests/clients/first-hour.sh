#!/usr/bin/env bash
# What a newcomer meets: `up` in a folder whose name a shell would take apart, the recipe that it prints pasted as it is,
# Ctrl-C while the file system is mounted, the way out that is told then, and all of it once more.
source "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
need nbdinfo nbdfuse mkfs.ext4 mount umount
[[ $(id -u) == 0 && -e /dev/fuse ]] || { echo "mounting needs root and /dev/fuse"; exit 77; }

home="$work/it's a first day"
dir="$home/my volume"
mkdir -p "$home"
export HOME=$home
unset XDG_DATA_HOME
export XDG_CONFIG_HOME=$home/.config
before_finish() {
    umount "$dir/files" 2>/dev/null || umount -l "$dir/files" 2>/dev/null || true
    umount "$dir/nbd" 2>/dev/null || umount -l "$dir/nbd" 2>/dev/null || true
}

mounted_now() { grep -q 'my\\040volume' /proc/self/mounts; }

open_up() {
    # What the one before has said is not what this one says.
    rm -f "$work/out"
    # What runs in the background of a script takes no Ctrl-C otherwise.
    python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$BIMETAL" up --dir "$dir" --slow-model none >"$work/out" 2>"$work/err" &
    server=$!
    local i
    for ((i = 0; i < 600; i++)); do
        ! grep -qs 'opens it again' "$work/out" || return 0
        kill -0 "$server" 2>/dev/null || { cat "$work/err"; fail "up is ready"; }
        sleep 0.05
    done
    fail "up is ready within 30 s"
}

# recipe: the lines to be pasted
recipe() { sed -n '/^As a drive/,/^Later/p' "$work/out" | grep '^  '; }

end_up() {
    kill -INT "$server"
    wait "$server" || { cat "$work/err"; fail "Ctrl-C closes it"; }
    server=
}

open_up
"$BIMETAL" list | grep -q "served.*" || fail "list shows what up serves"
"$BIMETAL" list | grep -qF "$dir/volume.toml" || fail "list names its file"
recipe >"$work/recipe.sh"
(cd / && bash -e "$work/recipe.sh" >"$work/recipe.log" 2>&1 &&
    ls "$dir/files/lost+found" >/dev/null && echo kept >"$dir/files/kept") || { cat "$work/recipe.log"; fail "the recipe works"; }

kill -INT "$server"
for ((i = 0; i < 100; i++)); do ! grep -q 'Ctrl-C again' "$work/err" || break; sleep 0.05; done
kill -0 "$server" || fail "it serves on while somebody is connected"
grep -q 'nbdfuse (process [0-9]*) is connected to volume, over' "$work/err" || { cat "$work/err"; fail "it says who is connected"; }
sed -n 's/.*; to leave it in good order: //p' "$work/err" >"$work/leave.sh"
[[ -s $work/leave.sh ]] || { cat "$work/err"; fail "it says what to unmount"; }
bash -e "$work/leave.sh" || { cat "$work/leave.sh"; fail "what it says can be done"; }
! mounted_now || fail "all of it is unmounted"
wait "$server" || { cat "$work/err"; fail "it closes when they have left"; }
server=

# Once more, without what erases.
again=$(sed -n 's/^Ctrl-C closes it; `\(.*\)` opens it again\.$/\1/p' "$work/out")
[[ $again == *"--dir"* ]] || fail "the folder is named again"
open_up
recipe | grep -v mkfs >"$work/recipe.sh"
(cd / && bash -e "$work/recipe.sh" >"$work/recipe.log" 2>&1) || { cat "$work/recipe.log"; fail "the recipe works again"; }
[[ $(<"$dir/files/kept") == kept ]] || fail "the file is there again"
sed -n '/^Later/,$p' "$work/out" | grep '^  umount' >"$work/leave.sh"
bash -e "$work/leave.sh" || fail "the recipe's own way out works"
end_up
