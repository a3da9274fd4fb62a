# The command line's contract: exit codes, one sentence on standard error, JSON keys.
. "$(dirname "$0")/lib.sh"
need jq

fails() { # fails CODE WORD COMMAND...: it ends with CODE and names WORD on standard error, nothing on standard output
    local code=$1 word=$2 got=0
    shift 2
    "$@" >"$work/stdout" 2>"$work/stderr" || got=$?
    [[ $got == "$code" ]] || { echo "$*: exit code $got, not $code"; cat "$work/stderr"; exit 1; }
    grep -q -- "$word" "$work/stderr" || { echo "$*: does not say $word:"; cat "$work/stderr"; exit 1; }
    [[ ! -s $work/stdout ]] || { echo "$*: writes to standard output"; exit 1; }
    ! grep -q panicked "$work/stderr" || { cat "$work/stderr"; exit 1; }
}

fails 2 "no volume" "$BIMETAL" serve "$work/none.toml"
fails 2 "not a volume name" "$BIMETAL" status "a b"
fails 2 "not a size" "$BIMETAL" create "$work/x.toml" --fast "$work/f?size=1X" --slow "$work/s?size=1G"
fails 2 "does not exist" "$BIMETAL" create "$work/x.toml" --fast "$work/f" --slow "$work/s"
fails 2 "disk-1tb-2012, " "$BIMETAL" create "$work/x.toml" --fast "$work/f?size=1G" --slow "model:abacus?file=$work/s"
fails 2 "file=PATH" "$BIMETAL" create "$work/x.toml" --fast "$work/f?size=1G" --slow "model:disk-1tb-2012"
fails 2 "disk-1tb-2012, " "$BIMETAL" up --dir "$work/up" --slow-model abacus
echo "not toml at all" >"$work/bad.toml"
fails 2 "bad.toml" "$BIMETAL" check "$work/bad.toml" --json

head -c 1000000 /dev/urandom >"$work/full"
fails 2 "holds" "$BIMETAL" create "$work/x.toml" --fast "$work/full?size=256M" --slow "$work/s?size=1G"
[[ $(stat -c %s "$work/full") == 1000000 ]]
fails 2 "too small" "$BIMETAL" create "$work/x.toml" --fast "$work/tiny?size=64K" --slow "$work/s?size=1G"
[[ ! -e $work/x.toml ]]

create 256M 1G
fails 2 "exists already" "$BIMETAL" create "$work/v.toml" --fast "$work/f2?size=256M" --slow "$work/s2?size=1G"
fails 2 "holds" "$BIMETAL" create "$work/w.toml" --fast "$work/fast.img" --slow "$work/s2?size=1G"

keys='[.volume, .state, .size_bytes, .landing.size_bytes, .landing.used_bytes, .promoted_chunks,
       .demoted_chunks, .ram_bytes] | all(. != null)'
tiers='.tiers | length == 2 and all(has("name") and has("device") and has("size_bytes") and has("used_bytes")
       and has("read_share") and has("write_share"))'
"$BIMETAL" status "$work/v.toml" --json >"$work/closed.json"
jq -e "$keys" "$work/closed.json" >/dev/null
jq -e "$tiers" "$work/closed.json" >/dev/null
jq -e 'has("last_promotion_unix_s") and .state == "closed"' "$work/closed.json" >/dev/null
"$BIMETAL" check "$work/v.toml" --json | jq -e '.clean and (.findings | length == 0) and has("volume")' >/dev/null

start
"$BIMETAL" status "$work/v.toml" --json >"$work/open.json"
jq -e "$keys" "$work/open.json" >/dev/null
jq -e "$tiers" "$work/open.json" >/dev/null
jq -e '.state == "open"' "$work/open.json" >/dev/null
"$BIMETAL" status "$work/v.toml" | grep -q "fast"
fails 2 "in use" "$BIMETAL" check "$work/v.toml"
fails 2 "in use" "$BIMETAL" serve "$work/v.toml" --nbd "unix:$work/other.sock"
stop
[[ ! -e $socket ]]
clean
# Devices that changed places in the volume file are told apart by what they carry.
sed -e 's/fast.img/@/; s/slow.img/fast.img/; s/@/slow.img/' "$work/v.toml" >"$work/swapped.toml"
"$BIMETAL" check "$work/swapped.toml" 2>"$work/stderr" >/dev/null
grep -q "using $work/fast.img" "$work/stderr"
truncate -s 512M "$work/slow.img"
fails 2 "shrunk" "$BIMETAL" serve "$work/v.toml" --nbd "unix:$socket"
rm "$work/slow.img"
fails 2 "slow.img does not exist" "$BIMETAL" serve "$work/v.toml" --nbd "unix:$socket"
fails 2 "give --yes" "$BIMETAL" destroy "$work/v.toml"
fails 2 "nothing was destroyed" "$BIMETAL" destroy "$work/v.toml" --yes
"$BIMETAL" destroy "$work/v.toml" --yes --force --json | jq -e '.devices | map(.erased) == [true, false]' >/dev/null
[[ ! -e $work/v.toml ]]
echo "exit codes, sentences and keys are as promised"
