#!/usr/bin/env bash
# The SSD of a protected volume dies under ext4 and a database that is being written to: what is served then is a file system that
# mounts after a replay of its journal, with every transaction that was done the time of protection before. The volume goes on with
# it, is killed once more, gets another SSD while it is used, and is whole. See README.md.
#
#   bash tests/long/protected.sh
#
# At the end the image takes its place again and again, killed on the way: what is there then is the image, to the byte.
#
# BIMETAL is the program, SECONDS_OLD how old the image may be, ROUNDS how often the SSD dies, TAKES how often its place is taken.
# Exit codes: 0 done, 1 a failure, 77 skipped: this machine cannot.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/clients/lib.sh
. "$here/../clients/lib.sh"
need_mounts
need mkfs.ext4 e2fsck jq python3 nbdcopy fio
python3 -c 'import sqlite3' 2>/dev/null || { echo "python3 has no module sqlite3"; exit 77; }
old=${SECONDS_OLD:-10}

# rows FROM: transactions of a database, of a row each with the time at which it was done, until it is killed
rows() {
    exec python3 - "$work/mnt/base.db" "$1" "$work/done" <<'PYTHON'
import random, sqlite3, sys, time
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute("PRAGMA synchronous = EXTRA")
base.execute("CREATE TABLE IF NOT EXISTS t (number INTEGER PRIMARY KEY, text TEXT)")
done = open(sys.argv[3], "a", buffering=1)
for number in range(int(sys.argv[2]), 1 << 40):
    base.execute("INSERT INTO t VALUES (?, ?)", (number, "%d " % number * 400))
    base.execute("UPDATE t SET text = ? WHERE number = ?", ("%d " % number * 400, random.randrange(number + 1)))
    print(number, time.time(), file=done)
PYTHON
}

# rewrite: a large file beside it, written over and over, until it is killed
rewrite() {
    exec python3 - "$work/mnt/large" <<'PYTHON'
import os, random, sys, time
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
while True:
    for _ in range(20):
        os.pwrite(file, random.randbytes(65536), random.randrange(4000) * 65536)
    os.fsync(file)
    time.sleep(0.05)
PYTHON
}

image() { "$BIMETAL" status "$work/v.toml" --json | jq -r ".protection.$1"; }

# until_image: until there is one that is not too old
until_image() {
    for ((i = 0; i < 600; i++)); do
        [ "$(image state)" = image ] && (($(image exposed_seconds) <= old)) && return
        sleep 0.2
    done
    fail "there is an image: it is $(image state), $(image exposed_seconds) s old"
}

# newest: how many transactions there are, all of them up to the newest
newest() {
    python3 - "$work/mnt/base.db" <<'PYTHON'
import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
numbers = [number for number, in base.execute("SELECT number FROM t ORDER BY number")]
assert numbers == list(range(len(numbers)))
print(len(numbers))
PYTHON
}

create 256M 3G --protect "${old}s"
start
attach
mkfs.ext4 -q -E nodiscard "$loop" || fail "mkfs.ext4"
from=0
for ((round = 0; round < ${ROUNDS:-3}; round++)); do
    mount "$loop" "$work/mnt"
    rm -f "$work/done"
    rows "$from" &
    writers=$!
    rewrite &
    writers="$writers $!"
    sleep $((2 * old))
    until_image
    sleep $((old / 2))
    until_image
    died=$(date +%s)
    crash
    # shellcheck disable=SC2086
    kill -KILL $writers
    wait $writers 2>/dev/null || true
    abandon
    rm "$work/fast.img"

    start --degraded
    as_of=$("$BIMETAL" status "$work/v.toml" --json | jq .loss.as_of_unix_s)
    stop
    start --degraded --writable
    attach
    e2fsck -fp "$loop" >"$work/fsck" || (($? < 4)) || { cat "$work/fsck"; fail "the file system is one"; }
    mount "$loop" "$work/mnt" || fail "it mounts"
    have=$(newest) || fail "the database is one"
    must=$(awk -v until=$((died - old - 1)) '$2 < until { number = $1 + 1 } END { print number + 0 }' "$work/done")
    echo "round $round: the image is $((died - as_of)) s old, and has $have transactions, of which $must must be there of $(wc -l <"$work/done") since $from"
    ((have >= must)) || fail "$must transactions are $old s old"
    ((died - as_of <= old + 1)) || fail "the image is $((died - as_of)) s old"
    # Used without an SSD, killed, and used again.
    rows "$have" &
    writers=$!
    sleep 2
    kill -KILL $writers
    wait $writers 2>/dev/null || true
    sync -f "$work/mnt"
    have=$(newest)
    crash
    abandon
    start
    attach
    mount "$loop" "$work/mnt" || fail "it mounts"
    (($(newest) == have)) || fail "what was flushed without an SSD is there"
    rewrite &
    writers=$!
    "$BIMETAL" replace "$work/v.toml" --fast "$work/fast.img?size=256M" || fail "it gets another SSD"
    kill -KILL $writers
    wait $writers 2>/dev/null || true
    until_image
    umount "$work/mnt"
    from=$have
done
detach
stop
"$BIMETAL" check "$work/v.toml" || fail "it is whole"

# The image, as it is looked at.
start
fio --name=random --ioengine=nbd --uri="$uri" --rw=randwrite --bs=16k --iodepth=8 --size=320M --io_size=96M \
    --output="$work/fio" || fail "fio writes"
until_image
crash
rm "$work/fast.img"
cp --sparse=always "$work/slow.img" "$work/slow.left"
start --degraded
nbdcopy "$uri" "$work/image"
stop
cmp "$work/slow.img" "$work/slow.left" || fail "looking changes nothing"
# taken: whether a server that takes the place is ready before it is killed, after so many hundredths of a second
taken() {
    local i
    : >"$work/out"
    "$BIMETAL" serve "$work/v.toml" --nbd "unix:$socket" --degraded --writable >"$work/out" 2>/dev/null &
    server=$!
    for ((i = 0; i < $1; i++)); do
        ! grep -q '^ready: ' "$work/out" || return 0
        kill -0 "$server" 2>/dev/null || fail "it takes the place"
        sleep 0.01
    done
    crash
    return 1
}
for ((take = 0; take < ${TAKES:-6}; take++)); do
    cp --sparse=always "$work/slow.left" "$work/slow.img"
    kills=0
    while ! taken $((RANDOM % (10 + kills * 6))); do
        kills=$((kills + 1))
        ((kills < 500)) || fail "it comes to its end"
    done
    nbdcopy "$uri" "$work/now"
    stop
    cmp "$work/image" "$work/now" || fail "it is the image after $kills kills"
    "$BIMETAL" check "$work/v.toml" >/dev/null || fail "it is clean after $kills kills"
    echo "the place is taken after $kills kills"
done
