#!/usr/bin/env python3
"""Does `bimetal lab fio` ask for what a real fio asks for? Request by request, not by speed.

  compare.py BIMETAL                      the jobs in jobs/ beside this file
  compare.py BIMETAL JOB.fio...           these
  compare.py BIMETAL --seeds FROM COUNT   so many jobs drawn at random, each of its own seed
  compare.py BIMETAL --seconds N [SEED]   as many as there is time for, from a seed on (a new one each day)
  compare.py --show SEED                  the job of a seed

Each job runs twice against an NBD server in memory that logs every request: by fio, and by the lab. Compared: requests
and bytes of each direction, which sectors are met and how often, what both reads and writes meet, flushes, the errors, and what
the lab's JSON says with what it did. What is drawn at random need not come in the same order; what is not drawn, must.
A line for each job that differs, then how many passed. Exit code 1 if any differs, 77 without fio's nbd engine or nbdkit.
What differs by intent is left out where it is drawn, or excused below, with the reason.
"""
import collections, concurrent.futures, json, math, os, random, re, shutil, socket, subprocess, sys, tempfile, time

SERVER_SIZE = 64 << 20
SECTOR = 512
LINE = re.compile(r" (Read|Write|Trim|Zero|Flush) id=\d+(?: offset=0x([0-9a-f]+) count=0x([0-9a-f]+))?")
SIDES = {"Read": "read", "Write": "write", "Trim": "trim"}
# fio's modifiers that make offsets meet more than once: it then forgets older writes that are met in part.
OVERLAP = re.compile(r"^(norandommap|random_distribution=(?!random)|blockalign|rw=[a-z]+:|percentage_random)", re.M)


def serve(sock, log):
    command = ["nbdkit", "-f", "-t", "1", "-U", sock, "--filter=log", "memory", str(SERVER_SIZE), f"logfile={log}"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    for _ in range(500):
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(sock)
            return server
        except OSError:
            time.sleep(0.01)
    server.kill()
    sys.exit("nbdkit did not start")


def run(who, bimetal, text, folder):
    """The requests, and fio's JSON of the jobs; or None, and what was said instead."""
    sock, log, job = (f"{folder}/{who}.{end}" for end in ("sock", "log", "fio"))
    uri = f"nbd+unix:///?socket={sock}"
    server = serve(sock, log)
    try:
        if who == "fio":
            text = re.sub(r"^(\[(?!global)[^\]]+\])", rf"\1\nioengine=nbd\nuri={uri}", text, flags=re.M)
            command = ["fio", "--output-format=json", job]
        else:
            command = [bimetal, "lab", "fio", job, "--target", uri, "--destroy-data", "--json"]
        with open(job, "w") as file:
            file.write(text)
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder)
    except subprocess.TimeoutExpired:
        return None, "it does not end"
    finally:
        server.terminate()
        server.wait()
    try:
        jobs = json.loads(ran.stdout[ran.stdout.index("{"):])["jobs"]
    except (ValueError, KeyError):
        return None, (ran.stderr or ran.stdout).strip()[:200]
    requests = []
    with open(log, errors="replace") as lines:
        for line in lines:
            found = LINE.search(line)
            if found and "return=" not in line:
                requests.append((found[1], int(found[2] or "0", 16), int(found[3] or "0", 16)))
    return requests, jobs


class Shape:
    def __init__(self, requests):
        self.requests = requests
        self.count, self.bytes = collections.Counter(), collections.Counter()
        self.met = {}
        for side, offset, length in requests:
            self.count[side] += 1
            self.bytes[side] += length
            met = self.met.setdefault(side, collections.Counter())
            met.update(range(offset // SECTOR, -(-(offset + length) // SECTOR)))

    def sectors(self, side):
        return set(self.met.get(side, ()))

    def figures(self, side):
        met = self.met.get(side, {})
        yield "requests", self.count[side]
        yield "bytes", self.bytes[side]
        yield "sectors met", len(met)
        yield "span", max(met, default=-1) + 1
        yield "times one is met", max(met.values(), default=0)


def differences(fio, lab, text):
    """What differs of two shapes, in words."""
    out = []
    if re.search(r"^percentage_random=", text, re.M) or re.search(r"^rw=rand[a-z]+:(?!(.|\n)*sequencer)", text, re.M):
        # In fio a pass is over when what is in order comes to the end of the span: when that is, is chance.
        return out
    mixed = re.search(r"^rw=(rand)?(rw|readwrite)", text, re.M)
    sizes = re.search(r"^(bsrange|bssplit)=|^bs=.*[-,]", text, re.M)
    timed = re.search(r"^(runtime|rate)", text, re.M)
    by_chance = re.search(r"^rw=rand", text, re.M)
    uneven = re.search(r"^random_distribution=(zipf|pareto|normal)", text, re.M)
    verified = "verify=" in text and re.search(r"^rw=.*(w|write)", text, re.M)
    often = verified and OVERLAP.search(text)
    least = min((n for n in (*fio.count.values(), *lab.count.values()) if n), default=0)
    noise = 4 / math.sqrt(least) if least else 0
    if mixed:
        tolerance = max(0.3, noise)
    elif timed:
        tolerance = max(0.12, noise)
    elif sizes or often or "trimwrite" in text or OVERLAP.search(text):
        tolerance = max(0.12, noise)
    else:
        tolerance = 0
    near = lambda x, y: abs(x - y) <= max(2 if tolerance else 0, tolerance * max(x, y))
    for side in SIDES:
        if side == "Read" and often:
            continue
        for (what, x), (_, y) in zip(fio.figures(side), lab.figures(side)):
            # How often the most frequent one is met is chance.
            if what == "times one is met" and tolerance and abs(x - y) <= max(3, 0.6 * max(x, y)):
                continue
            # Where few blocks share the draws of an uneven law, which do is chance.
            if uneven and what in ("sectors met", "span") and least < 1000:
                continue
            # Where few I/Os of several sizes go to what zones leave over, how much they meet is chance.
            if sizes and "zoned" in text and what == "sectors met" and least < 1000:
                continue
            # Passes that meet a part of a file: what several of them meet together is chance.
            if what == "sectors met" and by_chance and "filesize=" in text and abs(x - y) <= 0.2 * max(x, y):
                continue
            if what == "span" and by_chance and abs(x - y) <= 0.3 * max(x, y):
                continue
            if not near(x, y):
                out.append(f"{side.lower()} {what}: fio {x}, lab {y}")
    # Of a deep queue, fio fills all free places with syncs, until the first has ended; in a mix, fio 3.33 syncs again after
    # each read until the next write. The lab does what the words say.
    every = re.search(r"^(?:fsync|fdatasync)=([1-9]\d*)$", text, re.M)
    floods = every and ("iodepth" in text or mixed) and fio.count["Flush"] > lab.count["Flush"]
    due = lab.count["Write"] // int(every[1]) if floods else fio.count["Flush"]
    if abs(due - lab.count["Flush"]) > max(2, tolerance * due):
        due = f"{due} by its words, " if floods else ""
        out.append(f"flushes: fio {fio.count['Flush']}, {due}lab {lab.count['Flush']}")
    # What is left of a run of one direction when a pass ends goes on in fio's next one: passes are not quite alike.
    if not often and not (mixed and "loops=" in text):
        x, y = (len(one.sectors("Read") & one.sectors("Write")) for one in (fio, lab))
        longest = max((length for _, _, length in lab.requests), default=0)
        # Blocks that both meet by chance: a few more or less are none.
        few = OVERLAP.search(text) and abs(x - y) * SECTOR <= 8 * longest
        if not near(x, y) and not few and not (uneven and least < 1000):
            out.append(f"sectors both read and written: fio {x}, lab {y}")
    total = lambda shape: sum(length for side, _, length in shape.requests if side != "Flush")
    noise = 4 / math.sqrt(max(1, len(fio.requests)))
    if not often and abs(total(fio) - total(lab)) > (max(131072, max(0.12, noise) * total(fio)) if tolerance else 0):
        out.append(f"bytes in all: fio {total(fio)}, lab {total(lab)}")
    if verified and not timed and not lab.sectors("Write") <= lab.sectors("Read"):
        out.append(f"{len(lab.sectors('Write') - lab.sectors('Read'))} sectors were written and not read back")
    if not (tolerance or by_chance or verified) and not re.search(r"numjobs|iodepth", text):
        moved = lambda shape: [one for one in shape.requests if one[0] != "Flush"]
        if moved(fio) != moved(lab):
            first = next((n for n, pair in enumerate(zip(moved(fio), moved(lab))) if pair[0] != pair[1]), None)
            out.append(f"the order: request {first}")
    return out


def compare(bimetal, text):
    """(whether it counts, what differs)"""
    with tempfile.TemporaryDirectory(prefix="fio-compare.") as folder:
        fio, fio_jobs = run("fio", bimetal, text, folder)
        if fio is None:
            return False, [f"fio itself: {fio_jobs}"]
        lab, lab_jobs = run("lab", bimetal, text, folder)
    errors = [job["error"] for job in fio_jobs]
    if lab is None:
        return True, [] if any(errors) else [f"the lab does not run it: {lab_jobs}"]
    if 84 in errors:
        # fio loses track of what it wrote where offsets meet, and accuses a server that is as it should be.
        return False, ["fio itself: it finds other data than it wrote"]
    out = differences(Shape(fio), Shape(lab), text)
    if errors != [job["error"] for job in lab_jobs]:
        out.append(f"error codes: fio {errors}, lab {[job['error'] for job in lab_jobs]}")
    for side, key in SIDES.items():
        said = sum(job.get(key, {}).get("total_ios", 0) for job in lab_jobs)
        did = Shape(lab).count[side]
        if "ramp_time" not in text and said != did:
            out.append(f"the lab says {said} {key}s and did {did}")
    return True, out


def draw(seed):
    """A job file. Left out, since fio does what its manual does not say: a random map with block sizes that differ by direction
    (two scales in one map), holes or backwards steps with an offset (it counts from two beginnings), mixes that are
    verified more than once (what is read back ends the next pass), rates where sizes differ (it counts I/Os as bytes), random trims and writes with an offset (it
    counts that twice)."""
    rng = random.Random(seed)
    one_in = lambda n: rng.randrange(n) == 0
    pick = rng.choice
    lines = [f"; seed {seed}", "[a]"]
    rw = pick(["read", "write", "randread", "randwrite"] * 3 + ["rw", "randrw"] * 3 + ["trim", "randtrim", "trimwrite", "randtrimwrite"])
    rand, mixed = rw.startswith("rand"), rw in ("rw", "randrw")
    writes = rw in ("write", "randwrite") or mixed
    step = None
    if not rand and not mixed and one_in(6):
        step = pick(["4k", "12k", "64k", "-8k", "-16k", "-4k"])
    elif rand and not mixed and "trimwrite" not in rw and one_in(8):
        step = str(pick([2, 4, 7]))
    lines.append(f"rw={rw}" + (f":{step}" if step else ""))
    if rand and step and one_in(2):
        lines.append("rw_sequencer=identical")
    norandommap = rand and one_in(4)
    distribution = pick(["zipf:1.2", "zipf:0.8", "pareto:0.2", "normal:10", "normal:30", "zoned:80/10:20/90"])
    distribution = distribution if rand and not step and one_in(5) else None
    least = most = pick([512, 1024, 2048, 4096, 4096, 4096, 8192, 12288, 16384, 65536])
    kind = rng.randrange(8)
    if kind == 0:
        most = least * pick([2, 4, 8, 16])
        lines.append(f"bsrange={least}-{most}")
    elif kind == 1:
        parts = [(least, 40), (least * 4, 30), (least * 16, 30)] if one_in(2) else [(least, 50), (least * 2, 50)]
        most = max(size for size, _ in parts)
        lines.append("bssplit=" + ":".join(f"{size}/{share}" for size, share in parts))
    elif kind == 2 and mixed and (not rand or norandommap or distribution == "zoned:80/10:20/90"):
        most = least * 2
        lines.append(f"bs={least},{most}")
    else:
        lines.append(f"bs={least}")
    size = most * rng.randint(2, 60) if one_in(2) else rng.randrange(most, max(4 << 20, 3 * most), 1024)
    # Where an uneven law draws what is left behind the last whole block, fio's pass is over.
    size = max(size // most * most if distribution else size, most)
    offset = pick([0, 0, 0, 32768, 1 << 20]) if not (step and not rand) and rw != "randtrimwrite" else 0
    filesize = one_in(8)
    beyond = least >= 65536 and not rand and "trim" not in rw and one_in(3)
    if beyond:
        # Over the end of the device, or behind it altogether.
        offset = pick([0, SERVER_SIZE - (4 << 20), SERVER_SIZE - least])
        filesize, size = False, pick([SERVER_SIZE, SERVER_SIZE + (1 << 20), SERVER_SIZE * 2])
        lines.append(f"size={size}")
    elif filesize:
        lines.append(f"filesize={size + offset}")
        if one_in(2):
            lines.append(f"size={max(most, size // 2)}")
    elif one_in(10):
        lines.append(f"size={pick([1, 3])}%")
        size = SERVER_SIZE // 100
    else:
        lines.append(f"size={size}")
    if offset:
        lines.append(f"offset={offset}")
    # With a step, or where a pass ends before its size, fio counts what it reads back, and begins again and again.
    verify = writes and one_in(4) and not (step and not rand) and not beyond
    again = not (verify and mixed)
    # Pairs of trims and writes end at io_size; in fio the pass ends first.
    if again and one_in(5) and "trimwrite" not in rw:
        # Of less than a block fio does nothing, and the lab says so instead.
        parts = ["50%", "30%"] if size * 3 // 10 >= most else []
        lines.append("io_size=" + pick([str(size // 2 or 512), str(size * 2), str(size * 5 // 2)] + parts))
    if again and one_in(5):
        lines.append(f"loops={pick([2, 3])}")
    if again and one_in(8):
        lines.append(f"number_ios={rng.randint(1, 200)}")
    if mixed and one_in(2):
        lines.append(f"rwmixread={pick([0, 10, 30, 70, 90, 100])}")
    if norandommap:
        lines.append("norandommap")
    if distribution:
        lines.append(f"random_distribution={distribution}")
    elif rand and not mixed and one_in(8):
        lines.append(f"percentage_random={pick([10, 50, 90])}")
    if verify:
        lines.append("verify=crc32c")
    elif not (mixed or step or distribution or beyond or "trim" in rw) and (norandommap or not rand) and one_in(5):
        # In mixes fio's other direction stays in the zone before, and its pass is over there.
        zone = most * rng.randint(1, 20)
        lines += ["zonemode=strided", f"zonesize={zone}"]
        lines += [f"zonerange={most * rng.randint(1, 20)}"] if one_in(2) else []
        lines += [f"zoneskip={most * rng.randint(1, 20)}"] if one_in(2) else []
    if writes and one_in(5):
        lines.append(f"fsync={pick([1, 3, 16])}")
    if writes and one_in(8):
        lines.append("end_fsync=1")
    if one_in(3):
        lines.append(f"iodepth={pick([2, 4, 16])}")
    if not verify and one_in(8):
        lines += ["numjobs=2"] + ([f"offset_increment={pick(['2m', '5%'])}"] if one_in(2) and not step and not filesize else [])
        # What fio does with the offset of random pairs, it does with that of a copy.
        lines = [line for line in lines if rw != "randtrimwrite" or not line.startswith("offset_increment")]
    if "trimwrite" in rw and (filesize or norandommap or distribution or any(line.startswith("number_ios") for line in lines)):
        # fio doubles what ends a pass of pairs with each pass.
        lines = [line for line in lines if not line.startswith("loops")]
    if not verify and least == most and one_in(12):
        rate = pick(["rate_iops=400", "rate=2m", "rate_iops=300,100"])
        lines += [rate, "runtime=1"] + (["time_based"] if one_in(2) else [])
    elif one_in(12) and not any(line.startswith("fsync") for line in lines):
        # With both, fio syncs again and again.
        lines += ["thinktime=200", pick(["thinktime_blocks=1", "thinktime_blocks=16", "thinktime_iotime=1000"])]
    return "\n".join(lines) + "\n"


def texts(args):
    here = os.path.dirname(os.path.abspath(__file__))
    if args[:1] == ["--seeds"]:
        first, count = int(args[1]), int(args[2])
        for seed in range(first, first + count):
            yield f"seed {seed}", draw(seed)
    elif args[:1] == ["--seconds"]:
        seed = int(args[2]) if len(args) > 2 else int(time.time() // 86400) * 10_000
        end = time.monotonic() + float(args[1])
        while time.monotonic() < end:
            yield f"seed {seed}", draw(seed)
            seed += 1
    else:
        jobs = args or [os.path.join(here, "jobs", name) for name in sorted(os.listdir(os.path.join(here, "jobs")))]
        for job in jobs:
            with open(job) as file:
                yield os.path.basename(job), file.read()


def main():
    args = sys.argv[1:]
    if args[:1] == ["--show"] and len(args) == 2:
        print(draw(int(args[1])), end="")
        return
    if not args:
        sys.exit(__doc__)
    if args[0] in ("-h", "--help"):
        print(__doc__)
        return
    if not os.access(args[0], os.X_OK):
        sys.exit(f"{args[0]} is not the bimetal program: name the one that was built, such as target/release/bimetal")
    engines = subprocess.run(["fio", "--enghelp"], capture_output=True, text=True).stdout if shutil.which("fio") else ""
    if not shutil.which("nbdkit") or "nbd" not in engines.split():
        print("fio with its nbd engine, or nbdkit, is not installed")
        sys.exit(77)
    bimetal = os.path.abspath(args[0])
    passed = failed = left = 0

    def one(job):
        name, text = job
        counts, out = compare(bimetal, text)
        if counts and out and re.search(r"^(think|runtime|rate)", text, re.M):
            # Where time decides, a machine that does something else is given another chance.
            counts, out = compare(bimetal, text)
        return name, counts, out

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = collections.deque()
        jobs = texts(args[1:])
        while True:
            for job in jobs:
                waiting.append(pool.submit(one, job))
                if len(waiting) >= 4:
                    break
            if not waiting:
                break
            name, counts, out = waiting.popleft().result()
            if not counts:
                left += 1
                if not name.startswith("seed"):
                    print(f"{name}: {'; '.join(out)}", flush=True)
            elif out:
                failed += 1
                print(f"{name}: {'; '.join(out)}", flush=True)
            else:
                passed += 1
    print(f"{passed} passed, {failed} differ, {left} that fio does not run")
    sys.exit(failed > 0)


main()
