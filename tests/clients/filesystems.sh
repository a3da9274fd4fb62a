# File systems, ext4 and XFS, on a loop device over nbdfuse: a synced tree of files is whole after the server was
# killed under further writes, the file system's journal is replayed and its checker finds nothing; what is deleted
# and trimmed gives its space back.
. "$(dirname "$0")/lib.sh"
need_mounts
need jq fstrim python3 sha256sum
tree=3000

make_tree() { # make_tree FOLDER: files of 0 to 32 KiB in folders, a few large and sparse ones, links
    python3 - "$1" "$tree" <<'PYTHON'
import os, random, sys
root, count = sys.argv[1], int(sys.argv[2])
random.seed(7)
for n in range(count):
    folder = os.path.join(root, str(n % 40), str(n % 7))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"file-{n}"), "wb") as file:
        file.write(random.randbytes(random.randrange(32768)))
for n in range(4):
    with open(os.path.join(root, f"sparse-{n}"), "wb") as file:
        file.write(random.randbytes(3000000))
        file.seek(20000000 + n)
        file.write(random.randbytes(100001))
os.symlink("0/0/file-0", os.path.join(root, "symbolic"))
os.link(os.path.join(root, "sparse-0"), os.path.join(root, "hard"))
PYTHON
}
used() { "$BIMETAL" status "$work/v.toml" --json | jq '.tiers | map(.used_bytes) | add'; }
check() { # check KIND
    local code=0
    case $1 in
        ext4) e2fsck -fn "$loop" >"$work/fsck.log" 2>&1 || code=$? ;;
        xfs) xfs_repair -n "$loop" >"$work/fsck.log" 2>&1 || code=$? ;;
    esac
    [[ $code == 0 ]] || { cat "$work/fsck.log"; echo "$1 is damaged"; exit 1; }
}
stop_clean() { detach; stop; clean; }

make_tree "$work/tree"
(cd "$work/tree" && find . -type f -exec sha256sum {} +) >"$work/sums"
done=0
for kind in ext4:e2fsck xfs:xfs_repair; do
    checker=${kind#*:} kind=${kind%:*}
    for program in "mkfs.$kind" "$checker"; do
        command -v "$program" >/dev/null || { echo "$kind is left out: $program is not installed"; continue 2; }
    done
    rm -f "$work"/*.img "$work/v.toml"
    create 128M 896M --chunk 256K
    start
    attach
    case $kind in
        ext4) mkfs.ext4 -q -F "$loop" ;;
        xfs) mkfs.xfs -q -f "$loop" ;;
    esac
    mount "$loop" "$work/mnt" 2>"$work/mount.log" ||
        { cat "$work/mount.log"; echo "$kind is left out: the kernel does not mount it"; detach; stop; continue; }
    blank=$(used)
    cp -a "$work/tree" "$work/mnt/kept"
    sync -f "$work/mnt"
    # More, until it fails: new files, appended ones, renamed and deleted ones.
    (
        for ((n = 0; ; n++)); do
            cp -a "$work/tree" "$work/mnt/more-$n"
            mv "$work/mnt/more-$n/1" "$work/mnt/more-$n/moved"
            rm -r "$work/mnt/more-$n/2"
            cat "$work/tree/sparse-0" >>"$work/mnt/long"
            ((n % 3 != 2)) || rm -r "$work/mnt/more-$((n - 1))"
        done
    ) >/dev/null 2>&1 &
    writer=$!
    sleep "1.$((RANDOM % 10))"
    for ((i = 0; i < 600; i++)); do [[ ! -e $work/mnt/more-2/20 ]] || break; sleep 0.05; done
    [[ -e $work/mnt/more-2/20 ]] || { echo "nothing was being written"; exit 1; }
    # So that there is more to delete again than to keep, however slow the machine is.
    sync -f "$work/mnt"
    # Wherever it happens to be.
    crash
    kill -KILL "$writer" 2>/dev/null || true
    wait "$writer" 2>/dev/null || true
    abandon

    start
    attach
    if [[ $kind == ext4 ]]; then
        dumpe2fs -h "$loop" 2>/dev/null | grep -q needs_recovery || { echo "there is no journal to replay"; exit 1; }
    fi
    mount "$loop" "$work/mnt"
    (cd "$work/mnt/kept" && sha256sum --quiet -c "$work/sums") || { echo "what was synced is not there"; exit 1; }
    [[ $(readlink "$work/mnt/kept/symbolic") == 0/0/file-0 ]]
    [[ $work/mnt/kept/hard -ef $work/mnt/kept/sparse-0 ]]
    umount "$work/mnt"
    check "$kind"
    stop_clean
    start
    attach

    mount "$loop" "$work/mnt"
    (cd "$work/mnt/kept" && sha256sum --quiet -c "$work/sums")
    if [[ $(<"/sys/block/${loop#/dev/}/queue/discard_max_bytes") == 0 ]]; then
        echo "$kind: $(wc -l <"$work/sums") files are whole after a kill; trimming is left out: no discards here"
        stop_clean
        done=$((done + 1))
        continue
    fi
    full=$(used)
    rm -rf "$work"/mnt/more-* "$work/mnt/long"
    find "$work/mnt/kept" -name 'file-*[1-9]' -delete
    rm "$work"/mnt/kept/sparse-[123]
    sync -f "$work/mnt"
    trimmed=$(fstrim -v "$work/mnt") || { echo "fstrim fails"; exit 1; }
    # Slots are given back as the volume goes on.
    for ((i = 0; i < 60; i++)); do
        empty=$(used)
        ((empty - blank > (full - blank) / 2)) || break
        echo "$i" >"$work/mnt/tick"
        sync -f "$work/mnt"
        sleep 0.2
    done
    ((empty - blank <= (full - blank) / 2)) ||
        { echo "$kind: $trimmed, but $empty of $full bytes are still used, $blank when new"; exit 1; }
    grep 'file-[0-9]*0$\|sparse-0' "$work/sums" >"$work/rest"
    (cd "$work/mnt/kept" && sha256sum --quiet -c "$work/rest") || { echo "trimmed too much"; exit 1; }
    umount "$work/mnt"
    check "$kind"
    stop_clean
    echo "$kind: $(wc -l <"$work/sums") files are whole after a kill; $trimmed;" \
        "$((full >> 20)) MiB used, then $((empty >> 20))"
    done=$((done + 1))
done
((done)) || exit 77
