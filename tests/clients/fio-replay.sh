# Logs by chance: a job that replays one (read_iolog) does what a real fio does with it.
. "$(dirname "$0")/lib.sh"
need fio python3
cd "$work"

cat >replays.py <<'P'
import json, os, random, shutil, subprocess, sys, time
lab, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])

def draw(rng):
    version = rng.choice([2, 3])
    files = [f'f{n}' for n in range(rng.choice([1, 1, 2, 3]))]
    lines, at = [f'fio version {version} iolog'], 0
    def add(text, pause=0):
        nonlocal at
        lines.append(f'{at} {text}' if version == 3 else text)
        at += pause
    for action in ('add', 'open'):
        for name in files:
            add(f'{name} {action}')
    kinds = ['read', 'write'] + rng.choice([[], ['sync', 'datasync', 'wait', 'odd']])
    for _ in range(rng.randint(1, 60)):
        name, kind = rng.choice(files), rng.choice(kinds)
        pause = rng.choice([0, 0, 10, 500, 2000])
        if kind == 'wait':
            lines += [f'{name} wait {rng.choice([1, 5, 20])} 0'] if version == 2 else []
        elif kind == 'odd':
            lines.append(rng.choice(['', 'x', '1 2 3 4 5 6 7', 'nonsense ' + name]))
        elif kind in ('sync', 'datasync'):
            add(f'{name} {kind} 0 0', pause)
        else:
            add(f'{name} {kind} {rng.randrange(64) * 4096} {rng.choice([512, 4096, 4096, 8192, 65536])}', pause)
    for name in files:
        add(f'{name} close')
    options = [('replay_redirect=elsewhere', .3), ('replay_no_stall=1', .3), ('replay_time_scale=200', .2), ('numjobs=2', .2),
               ('replay_scale=2', .1), ('replay_align=4096', .1), ('iodepth=4\nioengine=libaio', .2)]
    chosen = [option for option, share in options if rng.random() < share]
    return files + ['elsewhere'], '\n'.join(lines) + '\n', '\n'.join(['[a]', 'read_iolog=log', *chosen]) + '\n'

def run(command, files, log, job):
    shutil.rmtree('run', ignore_errors=True)
    os.mkdir('run')
    open('run/log', 'w').write(log)
    open('run/j.fio', 'w').write(job)
    for name in files:
        with open('run/' + name, 'wb') as file:
            file.truncate(1 << 20)
    ran = subprocess.run(command, cwd='run', capture_output=True, text=True, timeout=60)
    if '{' not in ran.stdout:
        return None, ran.stderr
    jobs = json.loads(ran.stdout[ran.stdout.index('{'):])['jobs']
    # In the sums of a deeper queue fio leaves out the bytes of its last I/Os.
    what = ['total_ios'] if 'iodepth' in job else ['total_ios', 'io_bytes']
    return [[one['error']] + [one[side][of] for side in ('read', 'write') for of in what] for one in jobs], ran.stderr

ends, tried = time.time() + seconds, 0
while time.time() < ends:
    files, log, job = draw(random.Random(seed))
    theirs, said = run(['fio', '--output-format=json', 'j.fio'], files, log, job)
    ours, why = run([lab, 'lab', 'fio', 'j.fio', '--json'], files, log, job)
    # A log without any I/O is an error to both.
    if theirs != ours and not (ours is None and 'no I/O in it' in why and theirs[0][0] != 0):
        sys.exit(f'seed {seed}: fio {theirs}, the lab {ours}: {why}\n{job}{log}')
    tried, seed = tried + 1, seed + 1
print(f'{tried} logs are replayed as fio replays them')
if tried < 5:
    sys.exit('too few')
P
python3 replays.py "$BIMETAL" "${SECONDS_OF_REPLAYS:-10}" "${SEED_OF_REPLAYS:-1}" || fail "a replay is fio's"

# What one job logs, another one does again; other traces say no names.
printf '[a]\nrw=randrw\nbs=4k\nsize=256k\nwrite_iolog=ours.log\n' >j.fio
"$BIMETAL" lab fio j.fio --json >first.json 2>/dev/null || fail "a job logs its I/Os"
printf '[a]\nread_iolog=ours.log\n' >k.fio
"$BIMETAL" lab fio k.fio --json >second.json 2>/dev/null || fail "and another one does them again"
for side in read write; do
    one=$(python3 -c "import json; print(json.load(open('first.json'))['jobs'][0]['$side']['io_bytes'])")
    two=$(python3 -c "import json; print(json.load(open('second.json'))['jobs'][0]['$side']['io_bytes'])")
    [[ $one == "$two" ]] || fail "as many bytes of ${side}s: $one, then $two"
done
printf '128166372003061629,usr,0,Read,7014609920,24576,41286\n' >msr.csv
printf '[a]\nread_iolog=msr.csv\n' >m.fio
"$BIMETAL" lab fio m.fio >/dev/null 2>err.txt && fail "a trace without names is refused"
grep -q 'm.fio:1: .*names no files; add replay_redirect' err.txt || { cat err.txt; fail "and it is said why"; }
"$BIMETAL" lab fio m.fio --target null: >/dev/null 2>err.txt || { cat err.txt; fail "where there is a target it is replayed"; }
printf '[a]\nread_iolog=nowhere.log\n' >n.fio
"$BIMETAL" lab fio n.fio >/dev/null 2>err.txt && fail "a log that is not there is refused"
grep -q 'n.fio:1: .*nowhere.log: No such file' err.txt || { cat err.txt; fail "and it is named"; }
