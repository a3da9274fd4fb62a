# The protocol as real clients speak it: structured reads, holes, block status, CACHE, FAST_ZERO, what is too
# large, read-only and TCP exports, inherited sockets, and a flush on one connection for the writes of another.
. "$(dirname "$0")/lib.sh"
need nbdinfo nbdsh jq python3
py=$(command -v /usr/bin/python3 || command -v python3)
"$py" -c 'import nbd' 2>/dev/null || { echo "python3 has no module nbd"; exit 77; }

# sh_nbd: a Python program on standard input, with `uri` and the module nbd, and a few helpers.
sh_nbd() {
    "$py" - "$uri" "$@" <<EOF
import errno, nbd, os, sys
uri, args = sys.argv[1], sys.argv[2:]
K, M = 1 << 10, 1 << 20

def connect(contexts=(), to=uri):
    h = nbd.NBD()
    for context in contexts:
        h.add_meta_context(context)
    # What is forbidden is asked for on purpose: the server is under test, not the library.
    h.set_strict_mode(0)
    h.connect_uri(to)
    return h

def fails(number, call, *rest, **named):
    try:
        call(*rest, **named)
    except nbd.Error as error:
        assert error.errnum == number, f"{error} is not {errno.errorcode[number]}"
        return
    raise AssertionError(f"{call} does not fail with {errno.errorcode[number]}")

def extents(h, context, length, offset, flags=0):
    found = []
    def note(name, at, entries, error):
        if name == context:
            assert at == offset and not found, (at, offset, found)
            found.extend(zip(entries[::2], entries[1::2]))
    h.block_status(length, offset, note, flags)
    assert found and sum(length for length, _ in found) <= length, found
    return found

def chunks(h, length, offset, flags=0):
    found = []
    def note(data, at, status, error):
        found.append((at - offset, len(data), status))
    data = h.pread_structured(length, offset, note, flags)
    return data, found

$(cat)
EOF
}

create 256M 1G --chunk 64K
start
size=$(nbdinfo --size "$uri")

nbdinfo --json "$uri" >"$work/info.json"
jq -e '.structured and (.exports | length == 1) and (.exports[0] | .["export-name"] == "v"
       and (.description | contains("v")) and .["export-size"] == '"$size"'
       and (.contexts == ["base:allocation", "x-bimetal:tier"])
       and .can_cache and .can_df and .can_fast_zero and .can_flush and .can_fua and .can_multi_conn
       and .can_trim and .can_zero and (.is_read_only | not) and (.is_rotational | not)
       and .block_size_minimum == 1 and .block_size_preferred == 4096
       and .block_size_maximum == 33554432)' "$work/info.json" >/dev/null || { cat "$work/info.json"; exit 1; }
nbdinfo --list --json "$uri" | jq -e '.exports | map(.["export-name"]) == ["v"]' >/dev/null
nbdinfo --json "nbd+unix:///v?socket=$socket" | jq -e '.exports[0]["export-name"] == "v"' >/dev/null
! nbdinfo "nbd+unix:///w?socket=$socket" >/dev/null 2>&1 || { echo "an export that does not exist"; exit 1; }

# Blank: one hole.
nbdinfo --map --json "$uri" | jq -e 'length == 1 and .[0].type == 3 and .[0].length == '"$size" >/dev/null
nbdinfo --map=x-bimetal:tier --json "$uri" | jq -e 'length == 1 and .[0].type == 0' >/dev/null

sh_nbd <<'EOF'
h = connect([nbd.CONTEXT_BASE_ALLOCATION, "x-bimetal:tier", "no:such"])
size = h.get_size()
assert h.get_structured_replies_negotiated() and h.can_df() and h.can_cache() and h.can_fast_zero()
assert h.can_meta_context("x-bimetal:tier") and not h.can_meta_context("no:such")
assert h.get_block_size(nbd.SIZE_MAXIMUM) == 32 * M

# Holes: whole, at either end, in the middle; DF keeps a mixed range in one piece, and a blank one is a hole.
assert chunks(h, 8 * M, 0) == (bytes(8 * M), [(0, 8 * M, nbd.READ_HOLE)])
h.pwrite(b"x" * 64 * K, 64 * K)
data, found = chunks(h, 192 * K, 0)
assert data == bytes(64 * K) + b"x" * 64 * K + bytes(64 * K)
assert found == [(0, 64 * K, nbd.READ_HOLE), (64 * K, 64 * K, nbd.READ_DATA), (128 * K, 64 * K, nbd.READ_HOLE)], found
data, found = chunks(h, 192 * K, 0, nbd.CMD_FLAG_DF)
assert found == [(0, 192 * K, nbd.READ_DATA)] and data == bytes(64 * K) + b"x" * 64 * K + bytes(64 * K), found
assert chunks(h, M, M, nbd.CMD_FLAG_DF)[1] == [(0, M, nbd.READ_HOLE)]
# Not aligned to anything.
data, found = chunks(h, 70000, 64 * K - 1000)
assert data == bytes(1000) + b"x" * 64 * K + bytes(70000 - 1000 - 64 * K), found
# More fragments than one reply has chunks.
for n in range(40):
    h.pwrite(b"y" * 4096, 16 * M + 8192 * n)
data, found = chunks(h, 8192 * 40, 16 * M)
assert data == (b"y" * 4096 + bytes(4096)) * 40 and len(found) <= 16, found

# Block status.
assert extents(h, "base:allocation", 192 * K, 0) == [(64 * K, 3), (64 * K, 0), (64 * K, 3)]
tier = extents(h, "x-bimetal:tier", 192 * K, 0)
assert [word for _, word in tier] in ([0, 1, 0], [0, 3, 0]), tier
assert extents(h, "base:allocation", 192 * K, 0, nbd.CMD_FLAG_REQ_ONE) == [(64 * K, 3)]
assert extents(h, "base:allocation", 1, 64 * K - 1) == [(1, 3)]
assert extents(h, "base:allocation", 2, 64 * K - 1) == [(1, 3), (1, 0)]
assert extents(h, "base:allocation", 1, size - 1) == [(1, 3)]
many = extents(h, "base:allocation", 16 * M, 16 * M)
assert many[:4] == [(4096, 0), (4096, 3), (4096, 0), (4096, 3)], many[:4]
fails(errno.EINVAL, extents, h, "base:allocation", 2, size - 1)
fails(errno.EINVAL, extents, h, "base:allocation", 0, 0)
fails(errno.EINVAL, extents, h, "base:allocation", 4096, size)
plain = connect()
fails(errno.EINVAL, extents, plain, "base:allocation", 4096, 0)

# Zeroing and trimming make holes; a fast zero that would not be fast is refused and changes nothing.
h.pwrite(b"z" * 256 * K, 32 * M)
h.zero(64 * K, 32 * M, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE)
h.trim(64 * K, 32 * M + 64 * K)
fails(errno.ENOTSUP, h.zero, 1000, 32 * M + 128 * K + 5, nbd.CMD_FLAG_FAST_ZERO)
fails(errno.ENOTSUP, h.zero, 4097, 32 * M + 128 * K, nbd.CMD_FLAG_FAST_ZERO)
assert h.pread(256 * K, 32 * M) == bytes(128 * K) + b"z" * 128 * K
h.zero(1000, 32 * M + 128 * K + 5)
assert h.pread(2000, 32 * M + 128 * K) == b"z" * 5 + bytes(1000) + b"z" * 995
assert extents(h, "base:allocation", 256 * K, 32 * M) == [(128 * K, 3), (128 * K, 0)]

# What is too large: the connection goes on after a read and ends after a write.
fails(errno.EINVAL, h.pread, 32 * M + 1, 0)
fails(errno.EOVERFLOW, h.pread, 32 * M + 1, 0, nbd.CMD_FLAG_DF)
assert h.pread(64 * K, 64 * K) == b"x" * 64 * K
assert len(h.pread(32 * M, 1)) == 32 * M
assert h.cache(64 * K, 0) is None and h.cache(size, 0) is None
fails(errno.EINVAL, h.cache, 1, size)
fails(errno.ENOSPC, h.pwrite, b"x" * 4096, size)
fails(errno.EINVAL, h.trim, 4096, size)

# A client that wants nothing new gets what it always got.
old = nbd.NBD()
old.set_request_structured_replies(False)
old.connect_uri(uri)
assert not old.get_structured_replies_negotiated() and not old.can_df()
assert old.pread(192 * K, 0) == bytes(64 * K) + b"x" * 64 * K + bytes(64 * K)
EOF

# A request for 4 GiB over a plain socket, which no library would send: a read is refused, a write cut off.
"$py" - "$socket" <<'EOF'
import socket, struct, sys
def recv(s, n):
    data = b""
    while len(data) < n:
        piece = s.recv(n - len(data))
        assert piece, "the server closed the connection"
        data += piece
    return data
def connect():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(30)
    s.connect(sys.argv[1])
    recv(s, 18)
    s.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 0))
    recv(s, 10)
    return s
def request(s, flags, command, cookie, offset, length):
    s.sendall(struct.pack(">IHHQQI", 0x25609513, flags, command, cookie, offset, length))
def reply(s):
    return struct.unpack(">IIQ", recv(s, 16))
s = connect()
request(s, 0, 0, 7, 0, 0xffffffff)
assert reply(s) == (0x67446698, 22, 7)
request(s, 0, 0, 8, 0, 512)
assert reply(s) == (0x67446698, 0, 8)
recv(s, 512)
for command, cookie in ((7, 9), (99, 10)):
    request(s, 0, command, cookie, 0, 512)
    assert reply(s) == (0x67446698, 22, cookie), "without structured replies there is no block status"
request(s, 0, 1, 11, 0, 0xffffffff)
try:
    s.sendall(bytes(1 << 20))
    assert s.recv(16) == b"", "a write beyond every limit goes on"
except (BrokenPipeError, ConnectionResetError):
    pass
EOF

# Written on one connection, flushed on another, killed, there.
sh_nbd <<'EOF'
a, b = connect(), connect()
a.pwrite(b"one" * 4096, 48 * M + 77)
for n in range(50):
    a.pwrite(bytes([n]) * 4096, 64 * M + 100 * K * n)
b.flush()
EOF
crash
start
sh_nbd <<'EOF'
h = connect(["x-bimetal:tier"])
assert h.pread(3 * 4096, 48 * M + 77) == b"one" * 4096
for n in range(50):
    assert h.pread(4096, 64 * M + 100 * K * n) == bytes([n]) * 4096
assert chunks(h, M, 0)[1][0][2] == nbd.READ_HOLE
EOF

# CACHE: what went to the slow tier rises when it is asked for.
sh_nbd <<'EOF'
import time
h = connect(["x-bimetal:tier"])
# Twice the fast tier: the later part is on the slow one.
for n in range(512):
    h.pwrite(bytes([n & 255]) * M, n * M)
h.flush()
def slow(offset, length):
    found, at = 0, offset
    while at < offset + length:
        told = extents(h, "x-bimetal:tier", offset + length - at, at)
        found += sum(size for size, word in told if word == 2)
        at += sum(size for size, _ in told)
    return found
deadline = time.monotonic() + 60
at = next(n for n in range(511, 0, -1) if slow(n * M, M) == M) * M
# Room above first: what was discarded on the fast tier.
h.trim(64 * M, 0)
h.flush()
h.cache(M, at)
while slow(at, M) and time.monotonic() < deadline:
    time.sleep(0.1)
assert slow(at, M) == 0, f"{slow(at, M)} bytes are still slow"
assert h.pread(M, at) == bytes([at // M & 255]) * M
EOF
stop
clean

# Read-only, on TCP and a second unix socket at once.
: >"$work/out"
"$BIMETAL" serve "$work/v.toml" --read-only --nbd "unix:$socket" --nbd 127.0.0.1:0 --nbd "unix:$work/two.sock" >"$work/out" &
server=$!
for ((i = 0; i < 600; i++)); do [[ $(grep -c '^ready: ' "$work/out") == 3 ]] && break; sleep 0.05; done
tcp=$(sed -n 's/^ready: \(nbd:.*\)/\1/p' "$work/out")
[[ $tcp =~ ^nbd://127\.0\.0\.1:[0-9]+/$ ]] || { echo "no TCP address:"; cat "$work/out"; exit 1; }
for each in "$uri" "$tcp" "nbd+unix:///?socket=$work/two.sock"; do
    nbdinfo --json "$each" | jq -e '.exports[0] | .is_read_only and .can_cache and (.can_trim | not)
        and (.can_zero | not) and (.can_fast_zero | not)' >/dev/null || { nbdinfo --json "$each"; exit 1; }
done
[[ $(nbdinfo --size "$tcp") == "$size" ]]
sh_nbd "$tcp" <<'EOF'
h = connect([nbd.CONTEXT_BASE_ALLOCATION], args[0])
fails(errno.EPERM, h.pwrite, b"no", 0)
fails(errno.EPERM, h.zero, 4096, 0)
fails(errno.EPERM, h.trim, 4096, 0)
fails(errno.EPERM, h.pwrite, bytes(M), 0)
h.flush()
assert h.pread(M, 511 * M) == bytes([255]) * M
EOF
stop
clean

for address in 0.0.0.0:0 192.0.2.1:10809 '[::]:10809'; do
    ! "$BIMETAL" serve "$work/v.toml" --nbd "$address" >"$work/stdout" 2>"$work/stderr" || exit 1
    grep -q 'other machines' "$work/stderr" || { cat "$work/stderr"; exit 1; }
done

# Sockets of a service manager.
"$py" - "$socket" "$BIMETAL" "$work/v.toml" >"$work/out" <<'EOF' &
import os, socket, sys
path, program, volume = sys.argv[1:]
unix, tcp = socket.socket(socket.AF_UNIX), socket.socket()
unix.bind(path)
tcp.bind(("127.0.0.1", 0))
for s in (unix, tcp):
    s.listen()
    s.setblocking(False)
spare = [os.dup(unix.fileno()), os.dup(tcp.fileno())]
high = [os.dup2(fd, 50 + n) for n, fd in enumerate(spare)]
for n, fd in enumerate(high):
    os.dup2(fd, 3 + n, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="2")
os.execv(program, [program, "serve", volume])
EOF
server=$!
for ((i = 0; i < 600; i++)); do [[ $(grep -c '^ready: ' "$work/out") == 2 ]] && break; sleep 0.05; done
grep -qx "ready: $uri" "$work/out" || { cat "$work/out"; exit 1; }
[[ $(nbdinfo --size "$uri") == "$size" ]]
begin=$SECONDS
for n in 1 2 3 4 5 6; do
    [[ $(nbdinfo --size "$(sed -n 's/^ready: \(nbd:.*\)/\1/p' "$work/out")") == "$size" ]]
done
((SECONDS - begin <= 3)) || { echo "connecting takes long: $((SECONDS - begin)) s"; exit 1; }
stop
[[ -e $socket ]] || { echo "the service manager's socket file is gone"; exit 1; }
rm "$socket"
! LISTEN_PID=1 LISTEN_FDS=2 "$BIMETAL" serve "$work/v.toml" --nbd 127.0.0.1:x 2>/dev/null || exit 1
! (exec "$py" -c 'import os, sys
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="many")
os.execv(sys.argv[1], sys.argv[1:])' "$BIMETAL" serve "$work/v.toml") 2>"$work/stderr" || exit 1
grep -q LISTEN_FDS "$work/stderr"
clean
echo "structured replies, block status, CACHE, FAST_ZERO, limits, TCP, read-only and inherited sockets are as promised"
