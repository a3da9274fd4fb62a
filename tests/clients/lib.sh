# Common to the scripts beside it: a volume in a directory of its own, a server on a unix socket.
# BIMETAL is the program under test.
set -eu -o pipefail

BIMETAL=${BIMETAL:-target/release/bimetal}
BIMETAL=$(realpath "$BIMETAL")
work=$(mktemp -d "${TMPDIR:-/tmp}/bimetal-clients-XXXXXX")
export XDG_RUNTIME_DIR=$work
socket=$work/nbd.sock
uri="nbd+unix:///?socket=$socket"
server=

finish() {
    local code=$?
    ! declare -F before_finish >/dev/null || before_finish || true
    if [[ -n $server ]]; then
        kill -KILL "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
    exit $code
}
trap finish EXIT
trap 'exit 1' INT TERM

# need PROGRAM...: skips the whole script where one is missing
need() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "$program is not installed"; exit 77; }
    done
}

# fail WHAT...: ends the script, for this is not so
fail() { echo "not so: $*"; exit 1; }

# holds FILTER FILE: ends it unless the filter says so of a JSON document
holds() { jq -e "$1" "$2" >/dev/null || { jq -c 'del(.run, .points)' "$2" | cut -c1-2000; fail "$1 of $2"; }; }

# create FAST SLOW [OPTION...]: makes the volume
create() {
    local fast=$1 slow=$2
    shift 2
    "$BIMETAL" create "$work/v.toml" --fast "$work/fast.img?size=$fast" --slow "$work/slow.img?size=$slow" "$@" >/dev/null
}

# start [OPTION...]: serves the volume and waits until it is ready
start() {
    : >"$work/out"
    "$BIMETAL" serve "$work/v.toml" --nbd "unix:$socket" "$@" >"$work/out" &
    server=$!
    local i
    for ((i = 0; i < 600; i++)); do
        grep -q '^ready: ' "$work/out" && return 0
        kill -0 "$server" 2>/dev/null || { echo "the server ended before it was ready"; exit 1; }
        sleep 0.05
    done
    echo "the server is not ready after 30 s"
    exit 1
}

# stop: SIGTERM, and exit code 0 within seconds
stop() {
    local begin=$SECONDS
    kill -TERM "$server"
    wait "$server" || { echo "the server ended with $? after SIGTERM"; server=; exit 1; }
    server=
    ((SECONDS - begin <= 15)) || { echo "the server took $((SECONDS - begin)) s to stop"; exit 1; }
}

# crash: SIGKILL
crash() {
    kill -KILL "$server"
    wait "$server" 2>/dev/null || true
    server=
}

# clean: the closed volume is clean
clean() {
    "$BIMETAL" check "$work/v.toml" --json >"$work/check.json" || { cat "$work/check.json"; exit 1; }
    grep -q '"clean": true' "$work/check.json"
}

# renew LOOP: removes a free loop device and adds it again. A discard limit of 0 stays with a loop device when its
# file goes, and cannot be raised again.
renew() {
    python3 -c 'import fcntl, sys
control = open("/dev/loop-control", "wb")
for command in 0x4c81, 0x4c80:
    fcntl.ioctl(control, command, int(sys.argv[1]))' "${1#/dev/loop}" 2>/dev/null
}

# new_loop FILE [OPTION...]: a loop device that can discard, if there is one
new_loop() {
    local loop try
    for try in 1 2 3 4; do
        loop=$(losetup --find --show "${@:2}" "$1") || return 1
        [[ $(<"/sys/block/${loop#/dev/}/queue/discard_max_bytes") == 0 && $try != 4 ]] || break
        losetup --detach "$loop"
        renew "$loop" || true
    done
    echo "$loop"
}

# A file system on the volume, for scripts that called need_mounts: nbdfuse shows the volume as a file, a loop
# device makes it a block device ($loop), and $work/mnt is where it is mounted.
need_mounts() {
    PATH=$PATH:/usr/sbin:/sbin
    need nbdinfo nbdfuse losetup mount umount
    [[ $(id -u) == 0 && -e /dev/fuse ]] || { echo "mounting needs root and /dev/fuse"; exit 77; }
    mkdir "$work/fuse" "$work/mnt"
    fuse= loop= attached=
    before_finish() { abandon; }
}

# mounted FOLDER: asked of the kernel's table, not of the folder: a file system that has shut itself down after an
# error answers nothing, not even what mountpoint(1) asks, and is mounted all the same
mounted() { grep -qF " $1 " /proc/self/mounts; }

# attach: sets loop; a machine that cannot is found out the first time, later it is a failure
attach() {
    nbdinfo --size "$uri" >/dev/null || exit 1
    nbdfuse "$work/fuse" "$uri" 2>"$work/nbdfuse.log" &
    fuse=$!
    local i no=77
    [[ -z $attached ]] || no=1
    for ((i = 0; i < 200; i++)); do
        [[ ! -e $work/fuse/nbd ]] || break
        kill -0 "$fuse" 2>/dev/null || { cat "$work/nbdfuse.log"; echo "nbdfuse cannot mount"; fuse=; exit $no; }
        sleep 0.05
    done
    loop=$(new_loop "$work/fuse/nbd" 2>"$work/losetup.log") || {
        loop=
        cat "$work/losetup.log"
        echo "no loop device"
        exit $no
    }
    attached=1
}

# detach: in good order, and everything written is at the server
detach() {
    ! mounted "$work/mnt" || umount "$work/mnt"
    losetup --detach "$loop"
    loop=
    fusermount3 -u "$work/fuse" 2>/dev/null || umount "$work/fuse"
    wait "$fuse" || { echo "nbdfuse ended with $?"; cat "$work/nbdfuse.log"; fuse=; exit 1; }
    fuse=
}

# abandon: when the server is gone, or nothing is to be kept. Without nbdfuse every request of the file system
# fails at once, so nothing here waits for anybody.
abandon() {
    if [[ -n $fuse ]]; then
        kill -KILL "$fuse" 2>/dev/null || true
        wait "$fuse" 2>/dev/null || true
    fi
    fuse=
    local i
    # Programs that still have a file open are about to meet the error.
    for ((i = 0; i < 100; i++)); do
        mounted "$work/mnt" || break
        umount "$work/mnt" 2>/dev/null || sleep 0.05
    done
    ! mounted "$work/mnt" || umount -l "$work/mnt" || true
    if [[ -n $loop ]]; then
        losetup --detach "$loop" 2>/dev/null || true
        for ((i = 0; i < 100; i++)); do losetup "$loop" >/dev/null 2>&1 || break; sleep 0.05; done
    fi
    loop=
    umount -l "$work/fuse" 2>/dev/null || true
}
