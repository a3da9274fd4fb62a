# Jobs side by side on somebody else's NBD server: each has its own connections; a server that does not promise that these
# see the same data keeps one; and a discard longer than 32 bits reaches a server whole. nbdkit writes down what it is asked.
. "$(dirname "$0")/lib.sh"
need nbdkit jq

kit= log=$work/requests
before_finish() { [[ -z $kit ]] || kill "$kit" 2>/dev/null || true; }

# serve SIZE [FILTER...]: a server in memory, anew
serve() {
    local size=$1 i
    shift
    [[ -z $kit ]] || { kill "$kit"; wait "$kit" || true; }
    rm -f "$socket" "$log"
    nbdkit -f -U "$socket" --filter=log "$@" memory "$size" logfile="$log" ${mode:+multi-conn-mode=$mode} &
    kit=$!
    for ((i = 0; i < 200; i++)); do [[ ! -S $socket ]] || return 0; sleep 0.05; done
    fail "nbdkit listens"
}

# asked WHAT: connection, offset and length of each request of a kind
asked() { sed -nE "s/.*connection=([0-9]+) $1 id=[0-9]+ offset=(0x[0-9a-f]+) count=(0x[0-9a-f]+).*/\1 \2 \3/p" "$log" | tr -d '\0'; }

printf '[j]\nioengine=io_uring\nrw=randread\nbs=4k\nsize=4m\nnumjobs=3\niodepth=4\noffset_increment=4m\n' >"$work/jobs.fio"
for connections in 1 2; do
    serve 64M
    "$BIMETAL" lab fio "$work/jobs.fio" --target "$uri" --connections $connections --json >"$work/out.json" 2>"$work/err"
    holds '[.jobs[].read.total_ios] == [1024, 1024, 1024]' "$work/out.json"
    seen=$(asked Read | while read -r n offset _; do echo "$n $((offset >> 22))"; done | sort -u)
    [[ $(wc -l <<<"$seen") == $((3 * connections)) ]] || fail "each connection is one job's: $seen"
    [[ $(cut -d' ' -f1 <<<"$seen" | sort -u | wc -l) == $((3 * connections)) ]] || fail "each job has $connections: $seen"
done

# The filter may be missing where nbdkit is old.
if nbdkit --filter=multi-conn null --dump-plugin >/dev/null 2>&1; then
    mode=disable serve 64M --filter=multi-conn
    "$BIMETAL" lab fio "$work/jobs.fio" --target "$uri" --json >"$work/out.json" 2>"$work/err"
    holds '[.jobs[].read.total_ios] == [1024, 1024, 1024]' "$work/out.json"
    [[ $(asked Read | cut -d' ' -f1 | sort -u | wc -l) == 1 ]] || fail "one connection where no more may be"
    "$BIMETAL" lab fio "$work/jobs.fio" --target "$uri" 2>/dev/null | grep -q 'CAN_MULTI_CONN' || fail "it is said why"
fi

# As a job, and as a trace has it: 5 GiB, and all of them.
printf '[t]\nrw=trim\nbs=5g\nsize=5g\n' >"$work/trim.fio"
printf '8,0 1 1 0.1 7 Q R 0 + 8 [x]\n8,0 1 2 0.2 7 Q D 0 + 10485760 [x]\n' >"$work/trim.trace"
for what in "lab fio $work/trim.fio" "trace replay $work/trim.trace --map as-is --mode closed"; do
    serve 6G
    # shellcheck disable=SC2086
    "$BIMETAL" $what --target "$uri" --destroy-data >"$work/out" 2>"$work/err" || { cat "$work/out" "$work/err"; fail "$what"; }
    at=0
    while read -r _ offset count; do
        ((offset == at)) || fail "what follows byte $at of the discard begins at $((offset))"
        at=$((at + count))
    done < <(asked Trim)
    ((at == 5 << 30)) || fail "$what discards $at bytes"
done
