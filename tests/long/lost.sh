#!/usr/bin/env bash
# The SSD of a volume with strict marks dies under ext4 and a database: what is called good is what was flushed last, to the byte, and
# the rest is an error; where the file system can be mounted, every file that is not what it was is named, and none that is whole.
# See README.md.
#
#   bash tests/long/lost.sh
#
# BIMETAL is the program, FILES how many files there are at first.
# Exit codes: 0 done, 1 a failure, 77 skipped: this machine cannot.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/clients/lib.sh
. "$here/../clients/lib.sh"
need_mounts
need mkfs.ext4 jq python3 sha256sum nbdcopy
python3 -c 'import sqlite3' 2>/dev/null || { echo "python3 has no module sqlite3"; exit 77; }

# rows FROM TO: transactions of a database, each of one row
rows() {
    python3 - "$work/mnt/base.db" "$1" "$2" <<'PYTHON'
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute("PRAGMA synchronous = EXTRA")
base.execute("CREATE TABLE IF NOT EXISTS t (number INTEGER PRIMARY KEY, text TEXT)")
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    base.execute("INSERT INTO t VALUES (?, ?)", (number, "%d " % number * 200))
PYTHON
}

# file NAME: random bytes, from 4 KiB to 1 MiB
file() {
    head -c "$((4096 + RANDOM * 32))" /dev/urandom >"$work/mnt/$1"
}

# suspect: what would be suspect now
suspect() { "$BIMETAL" status "$work/v.toml" --json | jq .marks.suspect_bytes; }

create 192M 2G --marks strict
start
attach
mkfs.ext4 -q -E nodiscard "$loop" || fail "mkfs.ext4"
mount "$loop" "$work/mnt"
mkdir "$work/mnt/d"
for ((i = 0; i < ${FILES:-1200}; i++)); do file "d/$i"; done
rows 0 300
sync -f "$work/mnt"
echo "$(du -sm "$work/mnt" | cut -f1) MiB are written"
# The disk says of most of it that it is good a minute after it was written last.
for ((i = 0; i < 150; i++)); do
    (($(suspect) > 200 << 20)) || break
    sleep 2
done
echo "$(($(suspect) >> 20)) MiB would be suspect after $SECONDS s"
# What comes then is the newest, and some of it is only on the SSD.
for ((i = 0; i < 40; i++)); do file "d/$((RANDOM % ${FILES:-1200}))"; file "new-$i"; done
rows 300 330
sync -f "$work/mnt"
(cd "$work/mnt" && find . -type f -print0 | xargs -0 sha256sum) >"$work/sums"
crash
abandon

# What was flushed: the volume as both devices have it. Opening it makes the marks say that all may be stale, so that is done last.
cp --sparse=always "$work/slow.img" "$work/slow.left"
start
nbdcopy "$uri" "$work/both"
crash
rm "$work/fast.img"
mv "$work/slow.left" "$work/slow.img"

"$BIMETAL" serve "$work/v.toml" --nbd "unix:$socket" 2>"$work/refused" && fail "it is served as if nothing were missing"
grep -q -- --degraded "$work/refused" || { cat "$work/refused"; fail "it says what can be done"; }
start --degraded
attach
"$BIMETAL" lost "$work/v.toml" --json >"$work/lost.json" || fail "what is lost is listed"
jq -c '{missing, as_of_unix_s, good_bytes, lost: (.lost | map(.length) | add), suspect: (.suspect | map(.length) | add)}' \
    "$work/lost.json"
python3 - "$work" <<'PYTHON' || fail "what is good is what was flushed, and the rest is an error"
import json, os, pathlib, sys
work = pathlib.Path(sys.argv[1])
lost = json.loads((work / "lost.json").read_text())
both, left = os.open(work / "both", os.O_RDONLY), os.open(work / "fuse/nbd", os.O_RDONLY)
size = os.fstat(both).st_size
bad = sorted((range["offset"], range["offset"] + range["length"]) for range in lost["lost"] + lost["suspect"])
at, good, nonzero = 0, 0, 0
for begin, end in bad + [(size, size)]:
    while at < begin:
        length = min(begin - at, 1 << 20)
        here = os.pread(left, length, at)
        if here != os.pread(both, length, at):
            sys.exit(f"what is good at {at} is not what was flushed")
        good, nonzero, at = good + length, nonzero + (length if any(here) else 0), at + length
    at = end
errors = 0
for begin, end in bad:
    try:
        os.pread(left, 4096, begin)
    except OSError:
        errors += 1
print(f"{good >> 20} MiB are good, {nonzero >> 20} of them not blank, and as they were flushed; {errors} of {len(bad)} other ranges are errors")
sys.exit(0 if good == lost["good_bytes"] and errors == len(bad) and nonzero else "not as listed")
PYTHON
if ! mount -o ro,noload "$loop" "$work/mnt" 2>/dev/null && ! mount -o ro,noload,sb=131072 "$loop" "$work/mnt" 2>/dev/null; then
    echo "the file system's own blocks were on the SSD alone, and it cannot be mounted: nothing can be said of its files"
    detach
    stop
    exit 0
fi
"$BIMETAL" lost "$work/v.toml" --json --files "$work/mnt" >"$work/lost.json" || fail "files are listed"
python3 - "$work" <<'PYTHON' || fail "the files that are named are those that are bad"
import hashlib, json, os, pathlib, sys
work = pathlib.Path(sys.argv[1])
lost = json.loads((work / "lost.json").read_text())
named = {file["path"] for file in lost["files"]}
unknowable = lost["unknowable"]
bad, good = set(), set()
for line in (work / "sums").read_text().splitlines():
    digest, name = line.split("  ", 1)
    path = os.path.normpath(work / "mnt" / name)
    try:
        same = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest() == digest
    except OSError:
        same = False
    (good if same else bad).add(path)
missed = [path for path in bad if path not in named and not any(path.startswith(above) for above in unknowable)]
whole = sorted(named & good)
print(f"{len(bad)} files are bad, {len(good)} are whole; named are {len(named)}, and {len(unknowable)} places where nothing can be known")
sys.exit(f"missed: {missed[:10]}; whole, and named: {whole[:10]}" if missed or whole or not bad or not good else 0)
PYTHON
detach
stop
echo "lost: every file that is not what it was is named, and none that is whole"
