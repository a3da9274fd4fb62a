# The lab among odd things: nothing destroyed unasked, no hangs, one sentence for each, and ends that come too early.
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
need jq python3 timeout mkfs.ext4
cd "$work"
client= other=
before_finish() {
    [[ -z $client ]] || kill -KILL "$client" 2>/dev/null || true
    [[ -z $other ]] || kill -KILL "$other" 2>/dev/null || true
    ! mounted "$work/full" || umount "$work/full"
}

# Each has long enough, and no more: what hangs is a failure.
lab() { timeout -s KILL 60 "$BIMETAL" lab fio "$@"; }
# refused WORD OPTION...: exit code 2, one sentence that has the word in it, nothing on standard output
refused() {
    local word=$1 code=0
    shift
    lab "$@" >out.txt 2>all.txt || code=$?
    grep -v 'bimetal: note: ' all.txt >err.txt || true
    [[ $code == 2 && ! -s out.txt && $(wc -l <err.txt) == 1 ]] && grep -q -- "$word" err.txt ||
        { head -c 1000 err.txt; fail "$* is refused ($code)"; }
}
holds() { jq -e "$1" "$2" >/dev/null || { jq -c 'del(.. | .bins?)' "$2" | cut -c1-2000; fail "$1"; }; }
printf '[j]\nrw=read\nbs=4k\nsize=1m\n' >reads.fio
printf '[j]\nrw=write\nbs=4k\nsize=1m\n' >writes.fio

# What is there and not the lab's stays: a file system, a few bytes, the last bytes of a file, a file that is too short.
truncate -s 16M system.img
mkfs.ext4 -q -F system.img
printf 'letters' >letters
head -c 2000 /dev/urandom >small
{ head -c 8192 /dev/zero; echo 'the end'; } >tail
sha256sum system.img letters small tail >before
refused destroy-data writes.fio --target system.img
refused destroy-data writes.fio --target letters
refused destroy-data reads.fio --target letters
printf '[j]\nrw=write\nbs=1\nsize=7\n' >seven.fio
refused destroy-data seven.fio --target letters
printf '[j]\nrw=write\nbs=512\nsize=512\n' >sector.fio
refused destroy-data sector.fio --target small
printf '[j]\nrw=write\nbs=8\noffset=8192\nsize=8\n' >end.fio
refused destroy-data end.fio --target tail
lab reads.fio --target system.img >/dev/null 2>&1 || fail "a file system can be read"
sha256sum --quiet -c before || fail "what is there stays"
lab writes.fio --target system.img --destroy-data >/dev/null 2>&1 || fail "--destroy-data does it"
! sha256sum --status -c <(head -1 before) || fail "it was written"
[[ $(stat -c %s system.img) == $((16 << 20)) ]] || fail "its size stays"

# Its own files it writes again, to the last byte.
printf '[j]\nrw=read\nbs=4k\nsize=1000001\n' >odd.fio
lab odd.fio --target own >/dev/null 2>&1
printf '[j]\nrw=write\nbs=512\nfilename=own\n' >over.fio
for i in 1 2; do lab over.fio >/dev/null 2>&1 || fail "the lab's own file is written again"; done

# What is no target at all.
mkdir folder
mkfifo fifo
for name in folder fifo; do
    refused . reads.fio --target $name
    refused . writes.fio --target $name
done
refused 'name one that is' reads.fio --target fifo
# A memory device is a file as for fio: what is written is taken, and there is nothing to read.
lab writes.fio --target /dev/null >/dev/null 2>&1 || fail "/dev/null takes what is written"
lab reads.fio --target /dev/null >/dev/null 2>err.txt && fail "there is nothing in /dev/null"
grep -q '/dev/null: only a part was done' err.txt || fail "and that is said"
refused folder folder
refused 'No such' nbd.fio
refused 'port' reads.fio --target nbd://localhost:99999/
refused 'letters' reads.fio --target scenario:letters/x
[[ -p fifo && ! -e nbd.fio ]]

# Sizes that do not fit, and depths beyond all measure.
truncate -s 1M file
printf '[j]\nrw=read\nbs=4m\n' >wide.fio
refused 1048576 wide.fio --target file
printf '[j]\nrw=read\nbs=700\nsize=70000\ndirect=1\n' >crooked.fio
refused 512 crooked.fio --target file
printf '[j]\nrw=read\nbs=4k\noffset=100%%\n' >behind.fio
refused 1048576 behind.fio --target file
printf '[j]\nrw=randread\nbs=4k\niodepth=100000\nioengine=libaio\n' >deep.fio
refused iodepth deep.fio --target file
printf '[j]\nrw=read\nbs=1g\niodepth=64\nioengine=libaio\nsize=8g\n' >memory.fio
refused bs memory.fio --target null:
for theta in 0 1 nan; do
    printf '[j]\nrw=randread\nbs=4k\nrandom_distribution=zipf:%s\n' $theta >zipf.fio
    refused 'zipf.fio:4' zipf.fio --target file
done
for spread in zipf:3 zipf:0.5 pareto:0.9 normal:5; do
    printf '[j]\nrw=randrw\nbs=4k\nsize=4k\niodepth=16\nioengine=libaio\nio_size=400k\nrandom_distribution=%s\n' $spread \
        >block.fio
    lab block.fio --target file --json 2>/dev/null >block.json || fail "one block under $spread"
    holds '.jobs[0] | .read.total_ios + .write.total_ios == 100' block.json
done

# Files for what comes of a run are looked at before it, and what is measured is not among them.
refused force reads.fio --target file --record letters
refused 'to be measured' reads.fio --target file --record ./file --force
refused 'same file' reads.fio --target null: --record both --html both
refused missing reads.fio --target null: --record missing/record
if [[ -e /dev/full ]]; then
    code=0
    lab reads.fio --target null: --record /dev/full --force >said.txt 2>/dev/null || code=$?
    [[ $code == 2 ]] && grep -q 'Run status' said.txt || fail "a record that cannot be kept is an error, behind the report"
fi

# Servers that are none: it is said within the time that a handshake may take.
cat >server.py <<'END'
import os, socket, sys
what = {"silent": b"", "garbage": os.urandom(65536), "ends": None}[sys.argv[1]]
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1] + ".sock")
listening.listen(1)
connection = listening.accept()[0]
if what is not None:
    try:
        connection.sendall(what)
        while connection.recv(65536):
            pass
    except OSError:
        pass
END
refused 'cannot reach' reads.fio --target "nbd+unix:///?socket=$work/nobody.sock"
for kind in garbage ends silent; do
    python3 server.py $kind &
    other=$!
    for ((i = 0; i < 200; i++)); do [[ -S $kind.sock ]] && break; sleep 0.05; done
    # Bound is not yet listening.
    sleep 0.2
    refused "$kind.sock: " reads.fio --target "nbd+unix:///?socket=$work/$kind.sock"
    wait "$other" || true
    other=
done
grep -q '10 seconds' err.txt || fail "silence is called so"

# A shell's background job ignores SIGINT; this asks for it again.
interruptible() { exec python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$@"; }

# Ctrl-C: in a run a report, and in a layout nothing is left behind.
printf '[j]\nrw=read\nbs=4k\nsize=1m\nruntime=60\ntime_based\nthinktime=1ms\n' >long.fio
interruptible "$BIMETAL" lab fio long.fio --target file --json --record stopped.json >stopped.fio.json 2>all.txt &
client=$!
sleep 1.5
kill -INT "$client"
wait "$client" || { cat all.txt; fail "a run that was ended is no failure"; }
holds '.jobs[0] | .error == 0 and .read.total_ios > 10 and .read.runtime < 30000' stopped.fio.json
holds '.interrupted' stopped.json
printf '[j]\nrw=read\nbs=1m\nsize=8g\n' >endless.fio
interruptible "$BIMETAL" lab fio endless.fio --target endless.img >out.txt 2>all.txt &
client=$!
for ((i = 0; i < 400; i++)); do [[ -s endless.img ]] && break; sleep 0.02; done
kill -INT "$client"
code=0
wait "$client" || code=$?
client=
[[ $code == 2 && ! -e endless.img ]] || fail "a layout that is interrupted leaves nothing ($code)"
grep -q 'endless.img: interrupted' all.txt || fail "it is said"

# Nobody reads.
lab reads.fio --target null: 2>/dev/null | head -1 >/dev/null || fail "a reader that leaves is no failure"
lab reads.fio --target null: --record closed.json >&- 2>&- || fail "nor is nobody to read"
holds '.jobs[0].read.ios == 256' closed.json

# Storage that is full is an error in the system's words, and a layout that does not fit leaves nothing.
if [[ $(id -u) == 0 ]] && mkdir full && mount -t tmpfs -o size=1m lab-full full 2>/dev/null; then
    printf '[j]\nrw=read\nbs=4k\nsize=8m\nfilename=full/file\n' >full.fio
    code=0
    lab full.fio >out.txt 2>all.txt || code=$?
    left=$(ls full | wc -l)
    sed 's/rw=read/rw=write/' full.fio >fill.fio
    reserved=0
    lab fill.fio >/dev/null 2>reserve.txt || reserved=$?
    left=$((left + $(ls full | wc -l)))
    truncate -s 8M full/file
    filled=0
    lab fill.fio >fill.txt 2>/dev/null || filled=$?
    umount full
    [[ $code == 2 && $left == 0 ]] && grep -q 'No space left' all.txt || fail "a layout that does not fit ($code, $left)"
    [[ $reserved == 2 ]] && grep -q 'No space left' reserve.txt || fail "space that cannot be reserved ($reserved)"
    [[ $filled == 1 ]] && grep -q 'No space left' fill.txt || fail "a write that does not fit ($filled)"
fi

# Records of anything.
for text in '' '{}' '[[[[' '{"format":"bimetal-lab-run","version":1}'; do
    printf '%s' "$text" >strange.json
    code=0
    "$BIMETAL" lab report strange.json >out.txt 2>err.txt || code=$?
    [[ $code == 2 && $(wc -l <err.txt) == 1 ]] && grep -q strange.json err.txt || fail "'$text' is no record"
done
"$BIMETAL" lab report stopped.json closed.json --html both.html
grep -q '<script' both.html || fail "a page has plots"
