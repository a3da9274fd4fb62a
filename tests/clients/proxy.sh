# nbdkit between the clients and the server: injected errors reach the client and change nothing, retries make them
# succeed, and what the volume holds afterwards is exactly what was acknowledged. A proxy that retries also hides
# that the server was killed.
. "$(dirname "$0")/lib.sh"
need nbdkit nbdcopy nbdinfo python3 qemu-img
py=$(command -v /usr/bin/python3 || command -v python3)
"$py" -c 'import nbd' 2>/dev/null || { echo "python3 has no module nbd"; exit 77; }
nbdkit nbd --dump-plugin >/dev/null 2>&1 || { echo "nbdkit has no plugin nbd"; exit 77; }
for filter in error delay retry retry-request blocksize-policy blocksize cow; do
    nbdkit --filter=$filter null --dump-plugin >/dev/null 2>&1 || { echo "nbdkit has no filter $filter"; exit 77; }
done

through="nbd+unix:///?socket=$work/proxy.sock"
nbdkit= threads=16
before_finish() { [[ -z $nbdkit ]] || kill -KILL "$nbdkit" 2>/dev/null; }
proxy() { # proxy FILTER... PARAMETER=VALUE...: the first filter is next to the client
    local filters=() rest=() word i
    for word in "$@"; do
        case $word in *=*) rest+=("$word") ;; *) filters+=("--filter=$word") ;; esac
    done
    rm -f "$work/proxy.sock" "$work/proxy.pid"
    nbdkit --foreground --threads $threads --pidfile "$work/proxy.pid" --unix "$work/proxy.sock" "${filters[@]}" \
        nbd "uri=$uri" "${rest[@]}" 2>"$work/proxy.log" &
    nbdkit=$!
    for ((i = 0; i < 200; i++)); do
        [[ ! -s $work/proxy.pid ]] || return 0
        kill -0 "$nbdkit" 2>/dev/null || { cat "$work/proxy.log"; nbdkit=; exit 1; }
        sleep 0.05
    done
    exit 1
}
end_proxy() {
    kill -TERM "$nbdkit" || { cat "$work/proxy.log"; exit 1; }
    wait "$nbdkit" || { echo "nbdkit ended with $?"; cat "$work/proxy.log"; nbdkit=; exit 1; }
    nbdkit=
}
sh_nbd() {
    "$py" - "$uri" "$through" "$work" <<END
import errno, json, nbd, os, random, sys, threading, time
direct, through, work = sys.argv[1:]
K, M = 1 << 10, 1 << 20
def connect(uri):
    h = nbd.NBD()
    h.set_strict_mode(0)
    h.connect_uri(uri)
    return h
def pattern(stamp, at, length):
    return random.Random(stamp * 1000003 + at).randbytes(length)
$(cat)
END
}

create 64M 320M --chunk 64K
start
size=$(nbdinfo --size "$uri")

# A fifth of all writes, reads, zeroes and trims fails. Each block's value is that of the last request that was
# answered well, on both sides of the proxy and over a kill.
proxy error delay error-pwrite=EIO error-pwrite-rate=20% error-pread=EIO error-pread-rate=20% \
    error-zero=ENOSPC error-zero-rate=20% error-trim=EIO error-trim-rate=20% delay-write=1ms delay-read=1ms
sh_nbd <<'END'
at_once, rounds = 4, 600
values, counts, lock = {}, {}, threading.Lock()
def count(what, good):
    with lock:
        found = counts.setdefault(what, [0, 0])
        found[good] += 1
def client(number):
    h, draw = connect(through), random.Random(number)
    # A range of its own, in units that are no multiple of anything.
    unit, base = 5003, number * 40 * M + 777
    for stamp in range(1, rounds):
        n = draw.randrange(200)
        at, what = base + n * unit, draw.choice(["write"] * 5 + ["zero", "trim", "read", "read"])
        data = pattern(stamp, at, unit) if what == "write" else bytes(unit)
        try:
            if what == "write":
                h.pwrite(data, at)
            elif what == "zero":
                h.zero(unit, at)
            elif what == "trim":
                h.trim(unit, at)
            else:
                assert h.pread(unit, at) == values.get(at, bytes(unit)), f"block at {at} is not what was written"
            count(what, True)
        except nbd.Error as error:
            assert error.errnum == (errno.ENOSPC if what == "zero" else errno.EIO), error
            count(what, False)
            continue
        if what == "trim":
            # May be left as it is, where the block is not all of a piece: whatever it reads now is the value.
            while True:
                try:
                    data = h.pread(unit, at)
                    break
                except nbd.Error:
                    pass
            old = values.get(at, bytes(unit))
            assert all(new in (0, was) for new, was in zip(data, old)), f"trimmed to something else at {at}"
        if what != "read":
            with lock:
                values[at] = data
    h.flush()
threads, failed = [], []
def run(number):
    try:
        client(number)
    except BaseException as error:
        failed.append(error)
for number in range(at_once):
    threads.append(threading.Thread(target=run, args=(number,)))
    threads[-1].start()
for thread in threads:
    thread.join()
if failed:
    raise failed[0]
for what, (bad, good) in sorted(counts.items()):
    assert bad and good, counts
with open(work + "/values", "w") as out:
    json.dump({str(at): data.hex() for at, data in values.items()}, out)
print("answered and refused:", ", ".join(f"{what} {good}/{bad}" for what, (bad, good) in sorted(counts.items())))
END
end_proxy
all_there() {
    sh_nbd <<'END'
h = connect(direct)
values = json.load(open(work + "/values"))
for at, data in values.items():
    assert h.pread(len(data) // 2, int(at)).hex() == data, f"block at {at} is not what was acknowledged"
END
}
all_there
crash
start
all_there
stop
clean
start

# nbdcopy reports such an error and does not go on as if nothing was; with retries between, it comes to its end.
head -c 30000000 /dev/urandom >"$work/in.img"
truncate -s "$size" "$work/in.img"
# One request at a time: nbdkit 1.32 fails an assertion when a client leaves with several on their way.
threads=1
proxy error error-pwrite=EIO error-pwrite-rate=20%
! nbdcopy --request-size=262144 "$work/in.img" "$through" 2>"$work/stderr" ||
    { echo "nbdcopy in: no error seen"; exit 1; }
grep -qi 'input/output error' "$work/stderr" || { cat "$work/stderr"; exit 1; }
end_proxy
proxy error error-pread=EIO error-pread-rate=20%
! nbdcopy --request-size=262144 --no-extents "$through" "$work/out.img" 2>"$work/stderr" ||
    { echo "nbdcopy out: no error seen"; exit 1; }
grep -qi 'input/output error' "$work/stderr" || { cat "$work/stderr"; exit 1; }
end_proxy
threads=16
proxy retry-request delay error retry-request-retries=20 retry-request-delay=1 error-rate=5% error=EIO \
    delay-write=1ms delay-zero=1ms
nbdcopy --flush --request-size=262144 "$work/in.img" "$through"
nbdcopy --request-size=262144 "$through" "$work/out.img"
end_proxy
injected=$(grep -c injecting "$work/proxy.log") || { echo "nothing was injected"; exit 1; }
cmp "$work/in.img" "$work/out.img"
qemu-img compare -q -f raw -F raw "$work/in.img" "$uri"

# The server is killed below the proxy, which opens it again: the client sees no error, and what it wrote with FUA
# or flushed is there.
proxy retry retries=8 retry-delay=1 retry-exponential=no
: >"$work/steps"
sh_nbd >"$work/steps" <<'END' &
h = connect(through)
for n in range(60):
    h.pwrite(pattern(n, 0, 70001), 1000003 * n, nbd.CMD_FLAG_FUA)
    print(n, flush=True)
    time.sleep(0.03)
END
client=$!
for kill in 10 30; do
    for ((i = 0; i < 600; i++)); do
        (($(wc -l <"$work/steps") < kill)) || break
        sleep 0.02
    done
    kill -0 $client 2>/dev/null || { cat "$work/proxy.log"; echo "the client ended before kill $kill"; exit 1; }
    crash
    start
done
wait $client || { cat "$work/proxy.log"; echo "the client saw the kill"; exit 1; }
crash
start
end_proxy
sh_nbd <<'END'
h = connect(direct)
for n in range(60):
    assert h.pread(70001, 1000003 * n) == pattern(n, 0, 70001), f"write {n} is not there"
END

# Filters that change what arrives: only aligned requests, read-modify-write by the proxy, and a private copy.
proxy blocksize-policy blocksize-minimum=4K blocksize-error-policy=error
sh_nbd <<'END'
h = connect(through)
h.pwrite(b"a" * 8192, 100 * M)
for call in lambda: h.pwrite(b"b" * 512, 100 * M), lambda: h.pread(4096, 100 * M + 1):
    try:
        call()
        raise AssertionError("an unaligned request is let through")
    except nbd.Error as error:
        assert error.errnum == errno.EINVAL, error
assert connect(direct).pread(8192, 100 * M) == b"a" * 8192
END
end_proxy
proxy blocksize minblock=64K maxdata=128K
sh_nbd <<'END'
h = connect(through)
h.pwrite(b"c" * 300001, 100 * M + 5)
h.flush()
assert connect(direct).pread(300011, 100 * M) == b"a" * 5 + b"c" * 300001 + bytes(5)
END
end_proxy
proxy cow
nbdcopy "$uri" "$work/before.img"
sh_nbd <<'END'
h = connect(through)
h.pwrite(b"d" * M, 100 * M)
h.pwrite(bytes(M), 0)
assert h.pread(M, 100 * M) == b"d" * M and h.pread(M, 0) == bytes(M)
END
end_proxy
qemu-img compare -q -f raw -F raw "$work/before.img" "$uri"
stop
clean
echo "errors reach clients, nbdcopy ends well over $injected retried ones, and the volume holds what was acknowledged"
