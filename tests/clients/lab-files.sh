# Files created, read and verified in a directory; a full file system; Ctrl-C; and the story that tells a real fused
# volume from a concatenation of a fast and a slow device.
. "$(dirname "$0")/lib.sh"
need jq timeout nbdkit
cd "$work"
plugin=
before_finish() { [[ -z $plugin ]] || kill "$plugin" 2>/dev/null || true; }

lab() { timeout -s KILL 100 "$BIMETAL" lab "$@"; }
# refused WORD OPTION...: exit code 2, one sentence that has the word in it, nothing on standard output
refused() {
    local word=$1 code=0
    shift
    lab "$@" >out.txt 2>err.txt || code=$?
    [[ $code == 2 && ! -s out.txt && $(wc -l <err.txt) == 1 ]] && grep -q -- "$word" err.txt ||
        { head -c 1000 err.txt; fail "$* is refused ($code)"; }
}

# Files that stay, are found again, and are told apart when a byte of one has changed.
mkdir dir
lab create-files -n 12 -f 1M --transfer 256K --buffered --verify dir >made.txt || fail "files are made"
grep -q 'Elapsed .* 2sec .* 60min 2s:15s .*ClockAvg' made.txt || fail "the columns of the table"
[[ $(find dir/bimetal-lab-files -name 'file-*' -size 1024k | wc -l) == 12 ]] || fail "twelve files of 1 MiB"
lab read-files --iterations 2 --buffered --verify --json dir >read.json
holds '.verified and (.passes | length == 2 and all(.mismatched == 0 and .files == 12))' read.json
printf x | dd of=dir/bimetal-lab-files/file-000005 bs=1 seek=300000 conv=notrunc status=none
code=0
lab read-files --transfer 256K --buffered --verify --json dir >read.json || code=$?
[[ $code == 1 ]] || fail "damage is exit code 1, not $code"
holds '.passes[0].mismatched == 1 and (.run.jobs[0].errors | keys[0] | contains("5505024"))' read.json

# Its own files are replaced; what is not its own, or does not fit, takes nothing away.
echo mine >dir/mine
refused 'room for' create-files -n 1000 -f 100G dir
lab create-files -n 3 -f 64K --buffered --json dir >made.json
[[ $(find dir/bimetal-lab-files -name 'file-*' | wc -l) == 3 && $(cat dir/mine) == mine ]] || fail "three files"
refused 'without --verify' read-files --verify dir
mkdir -p others/bimetal-lab-files
refused 'did not make it' create-files -n 3 -f 64K others
refused 'no files of the lab' read-files others/bimetal-lab-files
refused 'multiple of 4096' create-files -n 3 -f 1000 dir
refused '-n and -f' read-files dir/mine
printf 'letters' >letters
truncate -s 8M letters
refused destroy-data fill letters

# A file system that somebody else fills meanwhile: what was made stays whole, and it is said.
if mkdir small && mount -t tmpfs -o size=24M none small 2>/dev/null; then
    code=0
    { sleep 0.3; head -c 64M /dev/zero >small/other 2>/dev/null; } &
    lab create-files -n 20000 -f 4K --buffered --json small >full.json 2>err.txt || code=$?
    wait $! || true
    if [[ $code == 1 ]]; then
        grep -q 'is full: .* stay in' err.txt || fail "a full file system is named"
        made=$(find small/bimetal-lab-files -name 'file-*' | wc -l)
        [[ $(find small/bimetal-lab-files -name 'file-*' -size 4k | wc -l) == "$made" ]] || fail "whole files only"
    fi
    umount small
fi

# Ctrl-C: the files that are complete stay, and nothing else.
timeout -s INT 1 "$BIMETAL" lab create-files -n 100000 -f 128K --transfer 4K --buffered --json dir >cut.json 2>err.txt || true
holds '.run.interrupted and .passes[0].files > 0' cut.json
[[ $(find dir/bimetal-lab-files -name 'file-*' | wc -l) == $(jq '.passes[0].files' cut.json) ]] || fail "complete files stay"

# A real volume in this process, its slow tier timed as a disk: it migrates, and is quiet in the end. What is timed is
# real: on a busy machine the fast tier may not be told from the disk, and the story is told of another new volume.
for try in 1 2 3; do
    rm -f v.toml fast.img slow.img story.html
    "$BIMETAL" create "$work/v.toml" --fast "$work/fast.img?size=160M" \
        --slow "model:disk-2tb-2012?file=$work/slow.img&size=2G" --landing 16M >/dev/null
    lab adaptation "volume:$work/v.toml" --rounds 3 --reads 2 --quiet 2s --idle 6s -n 300 -f 2M \
        --html story.html --json >real.json
    [[ $(jq '.migrates' real.json) == null ]] || break
    echo "try $try: $(jq -r .verdict real.json)"
done
holds '.migrates == true' real.json
grep -q 'plot-' story.html || fail "a page"
lab idle "volume:$work/v.toml" --quiet 1s --at-most 20s --json >idle.json
holds '.told and .seconds > 0' idle.json

# A plain concatenation, of which all behind 16 MiB is slow: it only looks fused until it is read again.
truncate -s 64M concatenation.img
nbdkit -f -U "$work/concatenation.sock" eval \
    get_size='stat -Lc %s "'"$work"'/concatenation.img"' \
    pread='[ $4 -lt 16777216 ] || sleep 0.15; dd if="'"$work"'/concatenation.img" iflag=skip_bytes,count_bytes skip=$4 count=$3 bs=1M status=none' \
    pwrite='[ $4 -lt 16777216 ] || sleep 0.15; dd of="'"$work"'/concatenation.img" conv=notrunc oflag=seek_bytes seek=$4 bs=1M status=none' \
    can_write='exit 0' 2>nbdkit.log &
plugin=$!
for ((i = 0; i < 100; i++)); do [[ ! -S concatenation.sock ]] || break; sleep 0.05; done
[[ -S concatenation.sock ]] || { cat nbdkit.log; echo "nbdkit has no eval plugin"; exit 77; }
lab adaptation "nbd+unix:///?socket=$work/concatenation.sock" -n 48 -f 512K --reads 2 --rounds 1 --idle 1s \
    --json >fake.json
holds '.migrates == false' fake.json
echo "real: $(jq -r .verdict real.json)"
echo "fake: $(jq -r .verdict fake.json)"
