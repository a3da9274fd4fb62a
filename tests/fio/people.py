#!/usr/bin/env python3
"""Job files and command lines as people write them, run by a real fio and by the lab on small files of this machine.

  people.py BIMETAL [--seconds N] [NAME...]    those in people.txt and command-lines.txt, in an order by chance

They stand there as they are written for real devices; `$ fio WORDS` before a job file is how it is started, `--- NAME` begins
a file beside it. Before they run, a rule makes them small: devices and directories become
files and directories beside each other, sizes at most 16 MiB, times at most 1 s, copies at most 4. Compared: exit code, names and
errors of jobs, bytes and I/Os of each direction where time does not decide, files and logs, keys of the JSON.
A line for each that differs or that the lab refuses. Exit code 1 if the lab runs less than 95 of 100 that fio runs, or if
more than one in 20 of those differs.
"""
import collections, json, os, random, re, resource, shlex, shutil, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, None: 1}
TIMES = {"s": 1, "m": 60, "h": 3600, "d": 86400, None: 1}
MIB = 1 << 20
TIMED = re.compile(r"time_based|runtime|timeout|rate|exitall|latency_target|steadystate|ss=")
BY_CHANCE = re.compile(r"rw=rand(rw|write|read)|bssplit|bsrange|readwrite")
# By intent (docs/LAB.md): histograms are in the report, states of verification nowhere; sizes of a range are drawn; a file is
# trimmed; sync_file_range is no sync; passes of mixes that are verified, and maps of sizes that differ by direction, are whole;
# the display fills no logs.
INTENDED = {"hist", "ext4-many-files", "trim-test", "trimwrite", "gluster-smallfiles", "line 64", "trims-and-writes", "cassandra-tables",
            "verify-mixed-sizes", "line 77", "whole-run-logs", "line 72"}


def small(option, value, longest=1):
    size = re.fullmatch(r"(\d+)\s*([kmgt])?b?", value.lower())
    most = {"size": 16, "io_size": 32, "io_limit": 32, "filesize": 32, "offset_increment": 4}.get(option)
    if most and size:
        return value if int(size[1]) * UNITS[size[2]] <= most * MIB else f"{most}m"
    span = re.fullmatch(r"(\d+)([smhd])?", value)
    if option in ("runtime", "timeout", "ramp_time", "startdelay", "ss_ramp", "steadystate_ramp_time", "steadystate_duration", "ss_dur") and span:
        most = longest if option in ("runtime", "timeout") else 1
        return value if int(span[1]) * TIMES[span[2]] <= most else str(most)
    if option in ("numjobs", "nrfiles") and value.isdigit():
        return str(min(int(value), {"numjobs": 4, "nrfiles": 20}[option]))
    beside = lambda path: re.sub(r"\W", "_", path)
    if option == "filename" and value.startswith("/dev/") and value not in ("/dev/zero", "/dev/null"):
        return ":".join("device" + beside(path) for path in value.split(":"))
    if option == "filename" and not value.startswith("/dev/") and re.match(r"/|d\\", value):
        return "file" + beside(value)
    if option == "directory":
        return ":".join("folder" + beside(path) for path in value.split(":"))
    return value


class Case:
    """One of them, made small: the words behind `fio`, the text of its file, what is there before."""

    def __init__(self, name, text, words):
        self.name, self.devices, self.folders, self.beside = name, set(), set(), {}
        # A steady state takes a few samples.
        self.longest = 3 if re.search(r"\bss=|steadystate=", text + " ".join(words or [])) else 1
        if words is None:
            text, *beside = re.split(r"(?m)^--- ", text)
            self.beside = {file.split("\n", 1)[0]: file.split("\n", 1)[1] for file in beside}
            started = re.match(r"\$ fio (.*)\n", text)
            self.words = shlex.split(started[1]) if started else ["j.fio"]
            text = text[started.end():] if started else text
            self.text = re.sub(r"(?m)^(\s*)(\w+)(\s*=\s*)([^;#\n]+?)(?=\s*([;#].*)?$)", lambda m: m[1] + m[2] + m[3] + self.take(m[2], m[4]), text)
            self.all = "\n".join([*self.words, self.text, *self.beside.values()])
        else:
            self.words = [re.sub(r"^(--?)([\w-]+)=(.*)$", lambda m: f"{m[1]}{m[2]}={self.take(m[2], m[3])}", word) for word in words]
            self.text, self.all = "", " ".join(self.words)

    def take(self, option, value):
        value = small(option, value, self.longest)
        if option == "filename" and value.startswith("device"):
            self.devices.update(value.split(":"))
        if option == "directory":
            self.folders.update(value.split(":"))
        return value

    def run(self, program):
        with tempfile.TemporaryDirectory(prefix="fio-people.") as folder:
            for name in self.devices:
                with open(f"{folder}/{name}", "wb") as file:
                    file.truncate(64 * MIB)
            for name in self.folders:
                os.makedirs(f"{folder}/{name}", exist_ok=True)
            with open(f"{folder}/j.fio", "w") as file:
                file.write(self.text)
            for name, text in self.beside.items():
                with open(f"{folder}/{name}", "w") as file:
                    file.write(text)
            plain = any(word.startswith(("--output", "--minimal")) for word in self.words)
            command = program + ([] if plain else ["--output-format=json"]) + self.words
            # What runs wild fills no disk.
            limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512 * MIB, 512 * MIB))
            environment = dict(os.environ, FILENAME="named", SIZE="4m", BS="8k")
            ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace",
                                 timeout=60, stdin=subprocess.DEVNULL, preexec_fn=limit)
            text = ran.stdout
            for word in self.words:
                if word.startswith("--output=") and os.path.exists(f"{folder}/{word[9:]}"):
                    text = open(f"{folder}/{word[9:]}").read()
            try:
                report, _ = json.JSONDecoder().raw_decode(text[text.index("{"):])
            except ValueError:
                report = None
            files = {}
            for place, _, names in os.walk(folder):
                for name in names:
                    path = os.path.relpath(f"{place}/{name}", folder)
                    if path not in ("j.fio", *self.beside) and f"--output={path}" not in self.words and not path.endswith((".json", "verify.state")):
                        files[path] = os.path.getsize(f"{place}/{name}")
            return ran.returncode, report, files, ran.stderr


def keys(value, path=""):
    if isinstance(value, dict):
        for name, below in value.items():
            below_path = f"{path}/{'N' if re.fullmatch(r'[0-9.<>=]+', name) else name}"
            yield below_path
            yield from keys(below, below_path)
    elif isinstance(value, list) and value:
        yield from keys(value[0], path + "[]")


def differences(case, fio, lab):
    (code, theirs, their_files, _), (our_code, ours, our_files, why) = fio, lab
    if code != our_code:
        yield f"exit code {code}, the lab {our_code}: {why[-200:]}"
    if theirs and ours:
        pairs = list(zip(theirs["jobs"], ours["jobs"]))
        for x, y in pairs:
            if (x["jobname"], x["error"]) != (y["jobname"], y["error"]):
                yield f"{x['jobname']} {x['error']}, the lab {y['jobname']} {y['error']}"
            for side in (side for side in ("read", "write", "trim", "mixed") if side in x and side in y):
                for what in ("io_bytes", "total_ios"):
                    a, b = x[side][what], y[side][what]
                    near = (a > 0) == (b > 0) if TIMED.search(case.all) else a == b
                    if not near and not (BY_CHANCE.search(case.all) and abs(a - b) <= 0.3 * max(a, b)):
                        yield f"{x['jobname']} {side} {what} {a}, the lab {b}"
        lacks = set(keys(theirs)) - set(keys(ours))
        lacks = sorted(key for key in lacks if not re.search(r"/percentile/|/bins/| options|_level|latency_.s|disk_util", key))
        if lacks:
            yield f"the JSON lacks {lacks[:5]}"
    if set(their_files) != set(our_files):
        yield f"files {sorted(set(their_files) ^ set(our_files))[:5]}"
    for name in set(their_files) & set(our_files):
        if not name.endswith(".log") and their_files[name] != our_files[name]:
            yield f"{name} has {their_files[name]} bytes, the lab's {our_files[name]}"


def cases():
    for part in re.split(r"(?m)^=== ", open(f"{HERE}/people.txt").read())[1:]:
        name, text = part.split("\n", 1)
        yield Case(name, text, None)
    for number, line in enumerate(open(f"{HERE}/command-lines.txt"), 1):
        words = shlex.split(line)
        yield Case(f"line {number}", "", words[words.index("fio") + 1:])


def main():
    args = sys.argv[1:]
    if not args:
        sys.exit(__doc__)
    if not shutil.which("fio"):
        print("fio is not installed")
        sys.exit(77)
    lab, names, ends = [os.path.abspath(args[0]), "lab", "fio"], args[1:], float("inf")
    if names[:1] == ["--seconds"]:
        ends, names = time.monotonic() + float(names[1]), names[2:]
    all_cases = [case for case in cases() if not names or case.name in names]
    random.shuffle(all_cases)
    count = collections.Counter()
    for case in all_cases:
        if time.monotonic() > ends:
            break
        try:
            fio = case.run(["fio"])
        except subprocess.TimeoutExpired:
            count["that fio refuses"] += 1
            print(f"{case.name}: fio does not end", flush=True)
            continue
        if fio[0] != 0 and fio[1] is None:
            count["that fio refuses"] += 1
            continue
        ours = case.run(lab)
        if ours[0] != 0 and ours[1] is None:
            count["refused"] += 1
            why = [line for line in ours[3].splitlines() if "note:" not in line]
            print(f"{case.name}: refused: {' '.join(why)[:300]}", flush=True)
            continue
        found = [] if case.name in INTENDED else list(differences(case, fio, ours))
        count["differ" if found else "alike"] += 1
        if found:
            print(f"{case.name}: {'; '.join(found)[:400]}", flush=True)
    ran = count["alike"] + count["differ"]
    print(f"{count['alike']} alike, {count['differ']} differ, {count['refused']} refused, {count['that fio refuses']} that fio refuses")
    # Of a few, two are too many to speak of shares: five of some 240 are refused, and those may come first.
    sys.exit(count["refused"] > 2 + 0.05 * (ran + count["refused"]) or count["differ"] > 1 + 0.05 * ran)


main()
