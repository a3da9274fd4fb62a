#!/usr/bin/env python3
"""Job files and command lines with something wrong in them, or only odd: what does fio make of them, and what the lab?

  mutate.py BIMETAL [--seconds N] [--seed S] [--show KIND] [--strict 1]

Takes those of people.txt and command-lines.txt and changes a few places: values, units, blanks, comments, quotes, ends of
lines, a byte order mark, long lines, included files and circles of them, sections, the order of words. Each is parsed by
both (`--parse-only`), not run. Told: what fio takes and the lab refuses, and the other way round, by the reason; `--show` has
the texts of a kind. Exit code 1 if the lab ends otherwise than with 0, or 2 and a reason for it, or takes a minute; with
`--strict 1` also if one takes what the other refuses for a reason that is not in KNOWN.
"""
import collections, os, random, re, shlex, shutil, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))

ODD = """4kk 0 -1 1.5k % 101% 0x 0x10 0x1k 1e3 18446744073709551616 99999999999999999999999999 4k- 4k, ,4k 4k,,8k 4k,,,8k 1d2h 5sec 5s 5h 5ms
5us abc 1:2 4k/ 4k/50 4k/50:8k (4k (4k+1) 4k) (1/0) (4k*2) 2^3 (2^3)k "4k" '4k' 4K 4KB 4kib 4KiB 4Kb 4M 4g 4t 4p 4e 1z -4k +4k 1% 1%% 50% .5 0.5 1. 007
read write randrw randread:8 write:8k rw:-4k libaio psync null 1 2 3 true yes no none all iops:1% bw_slope:5 zipf:1.2 zipf zipf:1 pareto:0.2
normal:50 zoned:60/10:40/90 crc32c md5 pattern 0xff "ab" linear poisson roundrobin sequential 0-1 0,2 99 1,2,3,4 ${SIZE} ${NOPE} ${SIZE $ncpus
$pagesize $pagesize*2 ($ncpus*4k) $mb_memory é \\ / : :: = == a=b""".split() + ["", " ", " 4k", "4k ", "4 k", "4k 8k", "5 s", "a b", "4k\t", "x" * 300, "9" * 300]
SECTIONS = ["[a", "[]", "[ ]", "[a]x", "[a] ; c", "[ a ]", "[a b]", "[a]]", "[[a]]", "]", "[global]", "[global ]", "[globalx]", "[Global]", "[a;b]",
            "[é]", "[a]\t", "[a] x=1", "[" + "a" * 300 + "]"]
LINES = ["include inc.fio", "include nope.fio", "include  inc.fio ", "include sub/deep.fio", "include circle.fio", "include section.fio", "include",
         "include=inc.fio", "includeinc.fio", "x", "=", "=4k", "bs", "bs=", "bs==4k", "thread", "thread=", "thread=2", "; c", "# c", "  ; c", "//c", "bs=4k;c",
         "bs=4k # c", "size=${SIZE}", "size=${NOPE}", "size=${SIZE", "size=$SIZE", "iodepth=$ncpus", "iodepth=$ncpus*2", "iodepth=(2*$ncpus)",
         "description=" + "x" * 5000, "description=" + "x" * 9000, "# " + "x" * 9000, "filename=a:b", "filename=a\\:b", "filename=a;b", "name=b",
         "rw", "time_based=0", "runtime", "group_reporting=0", "norandommap=x", "direct", "direct=2", "direct=yes", "stonewall=0", "\tbs=4k", "bs\t=\t4k"]
BESIDE = {"inc.fio": "bs=8k\niodepth=2\n", "sub/deep.fio": "include ../inc.fio\nrw=read\n", "circle.fio": "include circle.fio\n",
          "section.fio": "[s]\nbs=4k\n"}
WORDS = ["--name", "--name=", "--name=b", "--name=global", "--bs", "--bs=", "--bs=4k", "-bs=4k", "---bs=4k", "--bs 4k", "--thread", "--thread=0", "--thread 1",
         "--nope", "--nope=1", "--output-format=json", "--output-format=xml", "--output-format=json,terse", "--output=o", "--minimal", "--eta=never",
         "--eta=often", "--eta", "--status-interval=1", "--status-interval=x", "--section=a", "--section", "nope.fio", "--bandwidth-log", "--readonly",
         "--terse-version=5", "--terse-version=9", "--max-jobs=1", "--warnings-fatal", "--debug=nope", "--append-terse", "--", "-", "=", "--=", "--bs=4kk",
         "--rw=read=write", "--description=a b", "--description=", "--size=${SIZE}", "--iodepth=$ncpus", "--loops", "--loops=0", "--direct", "--time_based",
         "--runtime=5 s", "--eta-newline=1s", "--eta-interval=500ms", "--alloc-size=1g", "--idle-prof=percpu", "--parse-only"]


def values(rng, text):
    """One line's value is another."""
    lines = text.split("\n")
    places = [n for n, line in enumerate(lines) if "=" in line and not line.lstrip().startswith((";", "#"))]
    if places:
        n = rng.choice(places)
        name, value = lines[n].split("=", 1)
        how = rng.randrange(8)
        if how < 4:
            value = rng.choice(ODD)
        elif how == 4:
            value += rng.choice(["k", "K", "kb", "s", "%", ";c", " ;c", " #c", ",", ":", "-", " ", "\t", "x", "\r", '"', "1"])
        elif how == 5:
            value = rng.choice([f'"{value}"', f"'{value}'", f" {value}", f"= {value}", f"{value} {value}", f"{value},{value}", f"({value})", value.upper()])
        elif how == 6:
            name = rng.choice([name + " ", "  " + name, name + "s", name[:-1], name.upper(), name + "\t", "-" + name, "--" + name, name.replace("_", "-"), ""])
        else:
            return "\n".join(lines[:n] + [name] + lines[n + 1:])
        lines[n] = f"{name}={value}"
    return "\n".join(lines)


def lines(rng, text):
    """A line more, less, twice, elsewhere, joined with the next."""
    all_lines = text.split("\n")
    n, how = rng.randrange(len(all_lines)), rng.randrange(7)
    if how < 3:
        all_lines.insert(n, rng.choice(LINES))
    elif how == 3:
        all_lines.insert(n, rng.choice(SECTIONS))
    elif how == 4:
        all_lines.insert(rng.randrange(len(all_lines)), all_lines[n])
    elif how == 5:
        del all_lines[n]
    else:
        all_lines[n:n + 2] = [" ".join(all_lines[n:n + 2])]
    return "\n".join(all_lines)


def bytes_of(rng, text):
    """What editors and other systems do to a text."""
    how = rng.randrange(9)
    if how == 0:
        return text.replace("\n", "\r\n")
    if how == 1:
        return text.replace("\n", "\r")
    if how == 2:
        return "\ufeff" + text
    if how == 3:
        return text.rstrip("\n")
    if how == 4:
        return text.replace("\n", rng.choice([" \n", "\t\n", "\n\n", "\n  "]))
    if how == 5 and text:
        n = rng.randrange(len(text))
        return text[:n] + text[n + 1:]
    if how == 6 and text:
        n = rng.randrange(len(text))
        return text[:n] + rng.choice(list("[]=;#$%{}()\\\"'/:,- \t\0\x01\xa0é")) + text[n:]
    if how == 7 and text:
        return text[:rng.randrange(len(text))]
    return text.replace("=", rng.choice([" = ", " =", "= "]))


def changed_text(rng, text):
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        text = rng.choice([values, values, values, lines, lines, bytes_of])(rng, text)
    return text


def changed_words(rng, words):
    words = list(words)
    for _ in range(rng.choice([1, 1, 2])):
        n, how = rng.randrange(len(words) + 1), rng.randrange(6)
        if how < 2:
            words[n:n] = rng.choice(WORDS).split(" ") if rng.randrange(4) else [rng.choice(WORDS)]
        elif how == 2 and words:
            del words[n % len(words)]
        elif how == 3 and words:
            word = words[n % len(words)]
            words[n % len(words)] = rng.choice([word.replace("=", " "), word.replace("--", "-"), word + "x", word.upper(), word.replace("_", "-"), word.replace("-", "_")])
        elif how == 4 and words:
            name, _, _ = words[n % len(words)].partition("=")
            words[n % len(words)] = f"{name}={rng.choice(ODD)}"
        elif words:
            other = rng.randrange(len(words))
            words[n % len(words)], words[other] = words[other], words[n % len(words)]
    return [word.replace("\0", "") for word in words]


def corpus():
    texts = [part.split("\n", 1)[1] for part in re.split(r"(?m)^=== ", open(f"{HERE}/people.txt").read())[1:]]
    jobs = f"{HERE}/jobs"
    texts += [open(f"{jobs}/{name}").read() for name in sorted(os.listdir(jobs))]
    split = [shlex.split(line) for line in open(f"{HERE}/command-lines.txt") if line.strip()]
    return texts, [words[words.index("fio") + 1:] for words in split]


def parse(program, words, folder):
    environment = dict(os.environ, SIZE="4m", FILENAME="named", BS="8k")
    try:
        ran = subprocess.run(program + ["--parse-only"] + words, cwd=folder, env=environment, capture_output=True, text=True,
                             errors="replace", timeout=60, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return None, "it does not end"
    return ran.returncode, ran.stderr + ran.stdout


def reason(said):
    """The lab's, without what is this file's own."""
    told = [line for line in said.splitlines() if "note:" not in line]
    first = told[0] if told else ""
    first = re.sub(r"^(bimetal: )?(j\.fio:\d+: |the command line:0?:? ?)?(\[.{0,400}?\] )?", "", first)
    return re.sub(r"`[^`]*`", "`…`", first)[:110]


# What the lab refuses of what fio takes, and the other way round, by intent: docs/LAB.md and number.rs say why.
KNOWN = [
    # A number or a word is all of its text; fio takes what it can read of it.
    r"lab refuses: [\w-]+: `…` is (no number|no percentage|neither 0 nor 1|no kind of I/O)",
    r"lab refuses: [\w-]+: \S+ is (below zero|a number beyond)",
    r"lab refuses: [\w-]+: (\d+ values|what follows the colon)",
    # Of these fio makes a file without jobs, or jobs that do nothing.
    r"lab refuses: .*(is no section|there is no job|stands before any section|carriage return|does not fit into|less than a block)",
    r"lab refuses: include: ",
    # Not offered, and said so.
    r"lab refuses: (ioengine: the engine|exec_prerun|exec_postrun|trim_backlog|zonemode)",
    r"lab refuses: (--terse-version|.*--readonly says|.*zones of zoned)",
    # A byte order mark, blanks behind the =, and arithmetic, for which fio must have been built.
    r"fio refuses: (fio: option \ufeff?|\(standard_in\)|fio: failed parsing \w+ ?=[ (])",
    # The shell's -- ends options of the program, not of fio; blanks before a file's name are none of it.
    r"fio refuses: fio: unable to open '[- ]",
]


def main():
    args = sys.argv[1:]
    if not args:
        sys.exit(__doc__)
    lab, seconds, seed, show = [os.path.abspath(args[0]), "lab", "fio"], 60.0, int(time.time() // 86400), None
    strict = False
    for name, value in zip(args[1::2], args[2::2]):
        if name == "--seconds":
            seconds = float(value)
        elif name == "--seed":
            seed = int(value)
        elif name == "--strict":
            strict = value != "0"
        elif name == "--show":
            show = re.compile(value)
    if not shutil.which("fio"):
        print("fio is not installed")
        sys.exit(77)
    texts, command_lines = corpus()
    ends, count, kinds, bad = time.monotonic() + seconds, collections.Counter(), collections.defaultdict(list), 0
    with tempfile.TemporaryDirectory(prefix="fio-mutate.") as folder:
        os.mkdir(f"{folder}/sub")
        for name, text in BESIDE.items():
            with open(f"{folder}/{name}", "w") as file:
                file.write(text)
        while time.monotonic() < ends:
            seed += 1
            rng = random.Random(seed)
            if rng.randrange(4):
                text, words = changed_text(rng, rng.choice(texts)), ["j.fio"]
            else:
                text, words = "", changed_words(rng, rng.choice(command_lines))
            with open(f"{folder}/j.fio", "w", newline="", errors="surrogateescape") as file:
                file.write(text)
            theirs, their_words = parse(["fio"], words, folder)
            ours, our_words = parse(lab, words, folder)
            taken = theirs == 0 and "dropped" not in their_words
            count["all"] += 1
            key = None
            if ours not in (0, 2) or "panicked" in our_words:
                key, bad = f"the lab ends with {ours}", bad + 1
            elif ours == 2 and not our_words.strip():
                key, bad = "the lab refuses without a word", bad + 1
            elif taken and ours == 2:
                key = "fio takes, the lab refuses: " + reason(our_words)
            elif not taken and ours == 0:
                told = [line for line in their_words.splitlines() if line.strip()]
                key = "the lab takes, fio refuses: " + re.sub(r"=(.?).*", r"=\1", (told or [str(theirs)])[0])[:80]
            else:
                count["alike"] += 1
            if key and show and show.search(key):
                print(f"--- seed {seed}: {key}\n{shlex.join(words)}\n{text}\n-- fio {theirs}: {their_words[:300]}\n-- lab {ours}: {our_words[:400]}", flush=True)
            if key:
                kinds[key].append(seed)
    print(f"{count['all']} tried, {count['alike']} alike")
    for key, seeds in sorted(kinds.items(), key=lambda item: -len(item[1])):
        known = any(re.search(pattern, key) for pattern in KNOWN)
        bad += strict and not known
        print(f"{len(seeds):5} {'known ' if known else ''}{key}   (seed {seeds[0]})")
    sys.exit(bad > 0)


main()
