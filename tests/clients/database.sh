# Databases on ext4 over nbdfuse: every transaction whose COMMIT returned is there after the server was killed, and
# the database is whole. SQLite with a rollback journal and with a write-ahead log; PostgreSQL where it is installed.
. "$(dirname "$0")/lib.sh"
need_mounts
need mkfs.ext4 e2fsck python3
python3 -c 'import sqlite3' 2>/dev/null || { echo "python3 has no module sqlite3"; exit 77; }

sqlite() { # sqlite write|check MODE DATABASE RECORD ROUND
    python3 - "$@" <<'PYTHON'
import hashlib, os, sqlite3, sys
task, mode, path, record, round = sys.argv[1:]

def rows(number):
    # Three rows in two tables, a few pages, some of them overflowing.
    text = hashlib.sha256(f"{number}".encode()).hexdigest()
    return text, text * (1 + number % 300)

if task == "write":
    base = sqlite3.connect(path, isolation_level=None)
    base.execute(f"PRAGMA journal_mode = {mode}")
    # With a rollback journal FULL does not sync the folder after the journal was deleted, so the last COMMIT may be
    # rolled back after a crash; EXTRA does. With a write-ahead log FULL is all there is.
    base.execute(f"PRAGMA synchronous = {'EXTRA' if mode == 'DELETE' else 'FULL'}")
    base.execute("CREATE TABLE IF NOT EXISTS one (number INTEGER PRIMARY KEY, text TEXT UNIQUE)")
    base.execute("CREATE TABLE IF NOT EXISTS two (number INTEGER, large TEXT)")
    out = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    number = base.execute("SELECT coalesce(max(number), 0) FROM one").fetchone()[0]
    while True:
        number += 1
        text, large = rows(number)
        base.execute("BEGIN")
        base.execute("INSERT INTO one VALUES (?, ?)", (number, text))
        base.execute("INSERT INTO two VALUES (?, ?)", (number, large))
        if number > 40:
            base.execute("DELETE FROM two WHERE number = ?", (number - 40,))
        base.execute("COMMIT")
        # Only now it is promised.
        os.write(out, f"{number}\n".encode())
base = sqlite3.connect(path)
assert base.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
promised = [int(line) for line in open(record)]
found = dict(base.execute("SELECT number, text FROM one"))
missing = [number for number in promised if found.get(number) != rows(number)[0]]
assert not missing, f"committed and not there: {missing[:10]}, {len(missing)} of {len(promised)}"
# At most the one that was on its way is there, too, and nothing is there by half.
last = max(found)
assert sorted(found) == list(range(1, last + 1)) and last <= max(promised) + 1, (last, max(promised))
large = dict(base.execute("SELECT number, large FROM two"))
assert large == {number: rows(number)[1] for number in range(max(1, last - 39), last + 1)}
print(f"sqlite, {mode.lower()}, kill {round}: {len(promised)} commits are there")
PYTHON
}

lines() { [[ ! -e $1 ]] && echo 0 || wc -l <"$1"; }

# until_more FILE COUNT WRITER: waits until it has that many lines more
until_more() {
    local i begin
    begin=$(lines "$1")
    for ((i = 0; i < 600; i++)); do
        (($(lines "$1") < begin + $2)) || return 0
        kill -0 "$3" 2>/dev/null || { cat "$work/writer.log"; echo "the database stopped by itself"; exit 1; }
        sleep 0.05
    done
    echo "only $(($(lines "$1") - begin)) commits in 30 s"
    exit 1
}

back() { # the server, the file system and its journal
    start
    attach
    mount "$loop" "$work/mnt"
}

create 128M 640M --chunk 256K
start
attach
mkfs.ext4 -q -F "$loop"
mount "$loop" "$work/mnt"
for round in 1 2 3; do
    for mode in DELETE WAL; do
        sqlite write $mode "$work/mnt/$mode.sqlite" "$work/$mode.record" $round 2>"$work/writer.log" &
        writer=$!
        until_more "$work/$mode.record" $((40 + RANDOM % 60)) $writer
        crash
        # It notices by itself: a COMMIT that cannot be kept is not reported.
        for ((i = 0; i < 100; i++)); do kill -0 $writer 2>/dev/null || break; sleep 0.05; done
        kill -KILL $writer 2>/dev/null || true
        wait $writer 2>/dev/null || true
        abandon
        back
        sqlite check $mode "$work/mnt/$mode.sqlite" "$work/$mode.record" $round || exit 1
    done
done

bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
if [[ -z $bin || ! -x $bin/initdb ]] || ! command -v setpriv >/dev/null || ! id postgres >/dev/null 2>&1; then
    echo "PostgreSQL is left out: it is not installed"
else
    as() {
        setpriv --reuid=postgres --regid=postgres --clear-groups \
            env -C / LC_ALL=C PGHOST="$work/pg" PGUSER=postgres "$@"
    }
    chmod 755 "$work" "$work/mnt"
    mkdir "$work/pg" "$work/mnt/pg"
    chown postgres "$work/pg" "$work/mnt/pg"
    as "$bin/initdb" --pgdata "$work/mnt/pg" --auth trust >"$work/pg.log" 2>&1 || { cat "$work/pg.log"; exit 1; }
    postgres=
    serve_pg() {
        as "$bin/postgres" -D "$work/mnt/pg" -k "$work/pg" -c listen_addresses= -c shared_buffers=16MB \
            -c max_wal_size=48MB -c checkpoint_timeout=30s >>"$work/pg.log" 2>&1 &
        postgres=$!
        local i
        for ((i = 0; i < 600; i++)); do
            ! as "$bin/psql" -qAtc 'SELECT 1' >/dev/null 2>&1 || return 0
            kill -0 $postgres 2>/dev/null || { cat "$work/pg.log"; echo "PostgreSQL does not start"; exit 1; }
            sleep 0.05
        done
        exit 1
    }
    # Only the one this script started: killed without a word, its children end by themselves.
    end_pg() {
        [[ -z $postgres ]] || kill -"$1" "$postgres" 2>/dev/null || true
        [[ -z $postgres ]] || wait "$postgres" 2>/dev/null || true
        postgres=
    }
    before_finish() { end_pg QUIT; abandon; }
    serve_pg
    as "$bin/psql" -qc 'CREATE TABLE one (number int PRIMARY KEY, text text)'
    : >"$work/pg.record"
    for round in 1 2; do
        # psql prints RETURNING's row after the COMMIT of its own was answered.
        begin=$(as "$bin/psql" -qAtc 'SELECT coalesce(max(number), 0) FROM one')
        (for ((n = begin + 1; ; n++)); do
            echo "INSERT INTO one VALUES ($n, repeat(md5('$n'), $n % 200)) RETURNING number;"
        done) 2>/dev/null |
            as "$bin/psql" -qAt -v ON_ERROR_STOP=1 >>"$work/pg.record" 2>"$work/writer.log" &
        writer=$!
        until_more "$work/pg.record" $((200 + RANDOM % 200)) $writer
        crash
        wait $writer 2>/dev/null || true
        end_pg QUIT
        abandon
        back
        rm -f "$work/mnt/pg/postmaster.pid"
        serve_pg
        as "$bin/psql" -qAtc "SELECT number FROM one WHERE text = repeat(md5(number::text), number % 200)" \
            >"$work/found"
        missing=$(sort "$work/pg.record" | comm -23 - <(sort "$work/found") | wc -l)
        [[ $missing == 0 ]] ||
            { echo "PostgreSQL: $missing commits of $(wc -l <"$work/pg.record") are not there"; exit 1; }
        as "$bin/psql" -qAtc 'SELECT count(*) FROM one; REINDEX TABLE one' >/dev/null
        echo "postgresql, kill $round: $(wc -l <"$work/pg.record") commits are there"
    done
    as "$bin/pg_ctl" -D "$work/mnt/pg" -m fast stop >/dev/null
    end_pg QUIT
fi
umount "$work/mnt"
e2fsck -fn "$loop" >"$work/fsck.log" 2>&1 || { cat "$work/fsck.log"; exit 1; }
detach
stop
clean
