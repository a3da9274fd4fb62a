# Job files by chance: what a real fio takes, the lab takes, or refuses with a sentence that says where and why. And what
# its command line, standard input and logs are to fio, they are to the lab.
tests=$(realpath "$(dirname "$0")/..")
. "$(dirname "$0")/lib.sh"
need fio python3 jq timeout
cd "$work"

cat >adversary.py <<'P'
import random, subprocess, sys, time
lab, seconds = sys.argv[1], float(sys.argv[2])
seed = int(sys.argv[3])
print(f'seed {seed}', flush=True)
random.seed(seed)
sizes = ['4k', '8K', '64k', '4Ki', '1m', '512', ' 8k', '16k,4k', '4k,,8k', '0x1000', '(4k*2)', '4kb', '1MiB']
extents = sizes + ['50%', '0%', '200%', '1g', '45Mi']
flags = ['', '=1', '=0']
options = {
    'rw': ['read', 'write', 'randread', 'randwrite', 'rw', 'randrw', 'randread:8', 'write:8k', 'trim'],
    'bs': sizes, 'ba': sizes, 'io_size': extents, 'offset': ['0', '0%', '4k', '10%'], 'filesize': ['1m', '2m', '64k-1m'],
    'bsrange': ['4k-64k', '512-1k', '4k-8k,8k-16k'], 'nrfiles': ['1', '2', '5'], 'numjobs': ['1', '2', '4'],
    'bssplit': ['4k/50:64k/50', '4k/50 :64k/48', '4k/10:8k', '4k', '4k/98', '4k/60:8k/20:16k/18', '4k/50:8k/50,16k'],
    'random_distribution': ['random', 'zipf:1.2', 'pareto:0.2', 'normal:20', 'zoned:60/10:30/20:8/30:2/40', 'zoned:60/10:40/'],
    'ioengine': ['psync', 'libaio', 'io_uring', 'null', 'mmap', 'sync', 'posixaio', 'pvsync2', 'splice'],
    'filename': ['x', 'x:y', 'x:x'], 'filename_format': ['$jobname.$jobnum.$filenum', 'f.$filenum'],
    'iodepth': ['1', '4', '32'], 'loops': ['0', '1', '3'], 'runtime': ['1', '5s', '1m'], 'time_based': flags,
    'rate': ['1m', '1m,2m', '500k'], 'rate_iops': ['100', '100,200'], 'thinktime': ['10', '1ms'], 'fsync': ['1', '16'],
    'verify': ['crc32c', 'md5', 'meta', '0'], 'verify_backlog': ['8'], 'verify_fatal': ['1'], 'do_verify': ['0', '1'],
    'file_service_type': ['roundrobin', 'roundrobin:3', 'sequential', 'random'], 'cpus_allowed': ['0'], 'cpumask': ['1'],
    'flow': ['1', '8'], 'flow_id': ['0', '1'], 'write_bw_log': ['l'], 'write_lat_log': ['l'], 'write_iops_log': ['l'],
    'log_avg_msec': ['100', '1000'], 'per_job_logs': ['0', '1'], 'log_offset': ['1'], 'continue_on_error': ['all', 'none', 'io'],
    'unlink': ['0', '1'], 'create_on_open': ['0', '1'], 'allow_file_create': ['1'], 'percentage_random': ['0', '50', '50,20'],
    'rwmixread': ['0', '70', '100'], 'norandommap': flags, 'group_reporting': flags, 'stonewall': ['', '=1'], 'thread': flags,
    'direct': ['0'], 'invalidate': ['0', '1'], 'number_ios': ['10'], 'randseed': ['5'], 'hipri': ['1'], 'openfiles': ['4'],
    'overwrite': ['0', '1'], 'pre_read': ['0', '1'], 'ramp_time': ['1'], 'startdelay': ['1', '1-2'], 'end_fsync': ['1'],
    'refill_buffers': flags, 'zero_buffers': flags, 'gtod_reduce': ['1'], 'clat_percentiles': ['0', '1'], 'nice': ['5'],
    'unified_rw_reporting': ['none', 'mixed'], 'serialize_overlap': ['1'], 'experimental_verify': ['1'], 'prio': ['3'],
    'iodepth_batch': ['4'], 'iodepth_low': ['2'], 'fallocate': ['none', 'posix'], 'fadvise_hint': ['0'], 'size': extents,
    'percentile_list': ['50:99:99.9'], 'latency_percentile': ['99.9'], 'numa_mem_policy': ['default'], 'kb_base': ['1000'],
}
def job():
    text = '[global]\nsize=1m\n'
    for n in range(random.randint(1, 3)):
        for name in random.sample(sorted(options), random.randint(0, 6)):
            value = random.choice(options[name])
            text += name + (value if value[:1] in ('=', '') else '=' + value) + '\n'
        text += f'[job{n}]\n'
    return text
ends = time.time() + seconds
tried = taken = runs = 0
why = {}
while time.time() < ends:
    text = job()
    open('a.fio', 'w').write(text)
    theirs = subprocess.run(['fio', '--parse-only', 'a.fio'], capture_output=True, text=True, timeout=30)
    ours = subprocess.run([lab, 'lab', 'fio', '--parse-only', 'a.fio'], capture_output=True, text=True, timeout=30)
    said = [line for line in ours.stderr.splitlines() if not line.startswith('bimetal: note: ')]
    tried += 1
    if ours.returncode not in (0, 2) or ours.returncode == 2 and not (said and all('a.fio:' in line for line in said)):
        sys.exit(f'seed {seed}: exit code {ours.returncode} of\n{text}\n{ours.stderr}')
    if theirs.returncode == 0 and 'dropped' not in theirs.stderr + theirs.stdout:
        taken += 1
        runs += ours.returncode == 0
        for line in said:
            key = line.split('] ', 1)[-1][:70]
            why[key] = why.get(key, 0) + 1
print(f'seed {seed}: of {tried} files fio takes {taken}, of these the lab {runs}')
for count, key in sorted(((count, key) for key, count in why.items()), reverse=True)[:12]:
    print(f'  {count} times: {key}')
if taken < 5 or runs < taken * 0.75:
    sys.exit('too few')
P
python3 adversary.py "$BIMETAL" "${SECONDS_OF_JOBS:-20}" "${SEED_OF_JOBS:-1}" || fail "what fio takes is taken or refused by name"

# What people write, with something odd in it.
python3 "$tests/fio/mutate.py" "$BIMETAL" --seconds "${SECONDS_OF_JOBS:-20}" --seed "${SEED_OF_JOBS:-1}" >odd.txt ||
    { cat odd.txt; fail "what is odd in a file is taken or refused in words"; }
head -1 odd.txt

lab() { timeout -s KILL 60 "$BIMETAL" lab fio "$@"; }
# The command line is fio's, with ours among it.
lab --bs=4k --name=one --rw=write --size=64k --name two -rw read -size 32k --target null: --output-format=json >line.json 2>err.txt ||
    { cat err.txt; fail "jobs on the command line run"; }
holds '[.jobs[] | [.jobname, .read.io_bytes, .write.io_bytes]] == [["one", 0, 65536], ["two", 32768, 0]]' line.json
holds '.["global options"].bs == "4k" and (.jobs[0]["job options"] | has("bs") | not)' line.json
printf '[a]\nrw=read\nsize=64k\n' | lab - --target null: --output=report.txt >out.txt 2>/dev/null || fail "standard input is read"
[[ ! -s out.txt ]] && grep -q '^Run status group 0' report.txt || fail "--output takes the report"
lab --name=a --rw=write --size=64k --readonly >out.txt 2>err.txt && fail "--readonly refuses writers"
grep -q -- --readonly err.txt || fail "and says so"

lab --name=a --bs=4kk --nope=1 --client=x ---z=1 >out.txt 2>err.txt && fail "what is wrong with a line is refused"
for said in --nope --client ---z; do grep -q -- "$said" err.txt || fail "all that is wrong with a line is told: $said"; done

# What is appended to a file lies behind what was there; its size is fio's.
printf '[a]\nrw=write\nsize=64k\nfile_append=1\nfilename=grows\nnumjobs=2\n[b]\nstonewall\nrw=read\nsize=8k\nfile_append=1\nfilename=grows\n' >append.fio
for who in theirs ours; do
    rm -rf $who; mkdir $who; cp append.fio $who/j.fio
    for _ in 1 2; do
        if [[ $who == ours ]]; then (cd ours && lab j.fio --destroy-data >/dev/null 2>&1); else (cd theirs && fio j.fio >/dev/null 2>&1); fi
    done
    stat -c '%n %s' $who/grows | cut -d/ -f2 >$who.size
done
diff theirs.size ours.size || fail "files grow by appending as with fio"
rm -rf theirs ours

# The kernel's devices without storage take writes and give zeros.
lab --name=a --filename=/dev/zero --rw=read --size=1m --json >zero.json 2>/dev/null || fail "/dev/zero is read"
lab --name=a --filename=/dev/null --rw=write --size=1m --json >null.json 2>/dev/null || fail "/dev/null is written to"
holds '.jobs[0].read.io_bytes == 1048576 and .jobs[0].error == 0' zero.json
holds '.jobs[0].write.io_bytes == 1048576' null.json
lab --name=a --filename=/dev/zero --rw=read >/dev/null 2>err.txt && fail "/dev/zero has no size"
grep -q 'say with size=' err.txt || fail "and that is said"

# Reads and writes as one, and beside it.
lab --name=a --rw=randrw --size=4m --ioengine=null --unified_rw_reporting=1 --json >mixed.json 2>/dev/null
lab --name=a --rw=randrw --size=4m --ioengine=null --unified_rw_reporting=both --json >both.json 2>/dev/null
holds '.jobs[0] | (has("read") or has("write") or has("sync") | not) and .mixed.total_ios == 1024' mixed.json
holds '.jobs[0] | .mixed.total_ios == .read.total_ios + .write.total_ios and .mixed.total_ios == 1024' both.json

# Logs have fio's names and columns.
printf '[global]\nrw=randrw\nbs=4k\nsize=256k\nwrite_bw_log=%%s\nwrite_lat_log=%%s\nwrite_iops_log=%%s\n[a]\n[b]\nstonewall\nlog_offset=1\nwrite_bw_log\n' >logs.txt
for who in theirs ours; do
    mkdir $who
    printf "$(cat logs.txt)\n" x x x >$who/j.fio
    if [[ $who == ours ]]; then (cd ours && lab j.fio >/dev/null 2>&1); else (cd theirs && fio j.fio >/dev/null 2>&1); fi
    (cd $who && for log in *.log; do
        case $log in *slat*) echo "$log" ;; *) echo "$log $(wc -l <"$log") $(awk -F, '{print NF}' "$log" | sort -u | tr '\n' ' ')" ;; esac
    done) >$who.logs
done
diff theirs.logs ours.logs || fail "logs are called and cut as fio's"

# Several files of a job lie where fio puts them, and are as long.
printf '[a]\nrw=write\nbs=4k\nsize=100k\nnrfiles=3\nnumjobs=2\n[b]\nfilesize=16k\nnrfiles=2\nfilename_format=f.$jobnum.$filenum\nrw=write\n' >files.txt
for who in theirs ours; do
    rm -rf $who; mkdir $who; cp files.txt $who/j.fio
    if [[ $who == ours ]]; then (cd ours && lab j.fio >/dev/null 2>&1); else (cd theirs && fio j.fio >/dev/null 2>&1); fi
    (cd $who && stat -c '%n %s' a.* f.*) >$who.files
done
diff theirs.files ours.files || fail "files are called as fio's, and as long"
