# top in a terminal, under load, on 80x24 and 200x50: it fits, says what there is to say, does what its keys are for, and its
# figures are the kernel's. Screens are left in TOP_SCREENS, if that is set.
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
need fio jq tmux losetup
fio --enghelp 2>/dev/null | grep -qw nbd || { echo "this fio has no nbd engine"; exit 77; }
[[ $(id -u) == 0 ]] || { echo "loop devices need root"; exit 77; }

load=
before_finish() {
    tmux -S "$work/tmux" kill-server 2>/dev/null || true
    if [[ -n $load ]]; then
        kill -KILL "$load" 2>/dev/null || true
        wait "$load" 2>/dev/null || true
    fi
    if [[ -n $server ]]; then
        kill -KILL "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
        server=
    fi
    local file loop
    for file in "$work"/*.img; do
        [[ -e $file ]] || continue
        for loop in $(losetup --noheadings --output NAME --associated "$file"); do losetup --detach "$loop"; done
    done
}

truncate -s 256M "$work/fast.img"
truncate -s 1G "$work/slow.img"
fast=$(new_loop "$work/fast.img" 2>/dev/null) && slow=$(new_loop "$work/slow.img" 2>/dev/null) ||
    { echo "no loop devices"; exit 77; }
"$BIMETAL" create "$work/v.toml" --fast "$fast" --slow "$slow" --landing 16M >/dev/null
start
same=(--thread --ioengine=nbd --uri="$uri" --group_reporting --output="$work/fio.log" --randrepeat=1 --allrandrepeat=1)
fio "${same[@]}" --name=fill --rw=write --bs=1M --iodepth=4 --size=900M >/dev/null || { cat "$work/fio.log"; exit 1; }

# Even load on both devices: what is hot is on the fast one, and what is read once and again a little of each.
fio "${same[@]}" --name=hot --rw=randrw --bs=16k --iodepth=4 --size=64M --rate_iops=150,100 --time_based --runtime=600 \
    --name=cold --rw=randread --bs=64k --iodepth=4 --offset=400M --size=500M --rate_iops=40 --time_based --runtime=600 >/dev/null 2>&1 &
load=$!

screen() { tmux -S "$work/tmux" capture-pane -p -t top; }
# says WORDS: the screen does. All of it is read, or tmux would fail as it writes the rest.
says() { screen | grep -- "$1" >/dev/null; }
keys() { tmux -S "$work/tmux" send-keys -t top "$@"; }
# shows WORDS: waits until the screen does
shows() {
    local i
    for ((i = 0; i < 300; i++)); do
        ! says "$1" || return 0
        sleep 0.1
    done
    screen
    fail "the screen shows $1"
}
# shown: reads and writes a second on the screen, of the fast device and of the slow one
shown() { screen | awk '/^v fast / {fast = $5 " " $6} /^v slow / {slow = $5 " " $6} END {print fast, slow}'; }
# counted: reads and writes by the kernel so far, likewise
counted() { cat "/sys/block/${fast#/dev/}/stat" "/sys/block/${slow#/dev/}/stat" | awk '{print $1, $5}' | xargs; }
# agree: over a while, what was shown each second comes to what the kernel counted; where the load is even, each within 5 %.
agree() {
    local i began=$EPOCHREALTIME before
    before=$(counted)
    : >"$work/shown"
    for ((i = 0; i < 12; i++)); do
        sleep 1
        shown >>"$work/shown"
    done
    { echo "$before"; counted; echo "$began $EPOCHREALTIME"; cat "$work/shown"; } | awk '
        NR == 1 {split($0, before)}
        NR == 2 {split($0, after)}
        NR == 3 {seconds = $2 - $1}
        NR > 3 {for (i = 1; i <= 4; i++) sum[i] += $i}
        END {
            split("fast reads,fast writes,slow reads,slow writes", name, ",")
            for (i = 1; i <= 3; i++) {
                shown = sum[i] / (NR - 3); counted = (after[i] - before[i]) / seconds
                off = shown - counted; if (off < 0) off = -off
                printf "%s: %.1f a second shown, %.1f by the kernel\n", name[i], shown, counted
                # A figure on the screen is a whole number.
                if (counted < 5 || off > 0.05 * counted + 0.5) bad = 1
            }
            exit bad
        }' >"$work/agree"
}

for size in 80x24 200x50; do
    width=${size%x*} height=${size#*x}
    tmux -S "$work/tmux" -f /dev/null new-session -d -s top -x "$width" -y "$height" "exec '$BIMETAL' top '$work/v.toml'"
    shows '^v slow '
    shows 'q quit'
    screen >"$work/screen"
    [[ $(wc -l <"$work/screen") == "$height" ]] || fail "there are $height lines"
    [[ $(wc -L <"$work/screen") -le $width ]] || fail "no line is longer than $width"
    shows '^> '
    for words in 'bimetal top   v: open' 'from the fast tier' 'moves: up' '^zone '; do
        says "$words" || { screen; fail "the screen says $words"; }
    done
    keys p
    shows 'p resume'
    # A second in which the machine did something else is no fault of either.
    for try in 1 2 3 4; do
        ! agree || break
        [[ $try != 4 ]] || { cat "$work/agree"; fail "top shows what the kernel counts"; }
    done
    echo "$size, $(paste -sd ';' "$work/agree")"
    keys s
    shows 's sort (busy)'
    keys Enter
    shows '^ *chunk [0-9]*, bytes '
    keys Escape
    shows 'hottest'
    [[ -z ${TOP_SCREENS:-} ]] || { mkdir -p "$TOP_SCREENS"; tmux -S "$work/tmux" capture-pane -e -p -t top >"$TOP_SCREENS/top-$size.txt"; }
    keys p
    shows 'p pause'
    keys q
    for ((i = 0; i < 100; i++)); do tmux -S "$work/tmux" has-session -t top 2>/dev/null || break; sleep 0.1; done
    ! tmux -S "$work/tmux" has-session -t top 2>/dev/null || fail "q quits"
done
