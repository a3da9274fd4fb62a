//! Volume files that were cut, mixed up and lied in: the program says what is wrong with them, or takes them,
//! and never falls over. `VOLUME_FILE_SEED` takes another seed.

mod common;

use common::{Served, bimetal, text};

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % n
    }
}

/// Parts that a volume file is made of, and some that it is not.
const PARTS: &[&str] = &[
    "version = 1\n",
    "version = 2\n",
    "version = -1\n",
    "version = 99999999999999999999\n",
    "volume_id = \"00\"\n",
    "volume_id = \"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz\"\n",
    "volume_id = \"ääääääääääääääää\"\n",
    "volume_id = \"+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1\"\n",
    "unfinished = true\n",
    "unfinished = 3\n",
    "[[tier]]\n",
    "[tier]\n",
    "device = \"/\"\n",
    "device = \"\"\n",
    "device = \"/dev/null\"\n",
    "device = \"../../../../../../dev/zero\"\n",
    "device = \"a\\u0000b\"\n",
    "tier = []\n",
    "model = \"disk-1tb-2012\"\n",
    "model = \"\"\n",
    "model = 7\n",
    "wear_budget = \"164G\"\n",
    "wear_budget = \"-1\"\n",
    "wear_budget = 7\n",
    "wake_budget = 12\n",
    "wake_budget = 0\n",
    "wake_budget = \"often\"\n",
    "[a.b.c]\n",
    "\u{feff}",
    "\0",
    "\"\"\"",
    "# ",
];

fn mutate(whole: &str, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = whole.as_bytes().to_vec();
    for _ in 0..1 + rng.below(3) {
        let at = rng.below(bytes.len().max(1)).min(bytes.len());
        match rng.below(5) {
            0 => bytes.truncate(at),
            1 => {
                // Now and then where a line begins, or hardly anything that is put in would make sense.
                let line = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                let at = if rng.below(2) == 0 { line } else { at };
                let part = PARTS[rng.below(PARTS.len())];
                bytes.splice(at..at, part.bytes());
            }
            2 => {
                let part = PARTS[rng.below(PARTS.len())];
                let line = bytes[..at].iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
                let end = bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |i| at + i + 1);
                bytes.splice(line..end, part.bytes());
            }
            3 if at < bytes.len() => bytes[at] = rng.below(256) as u8,
            _ => {
                let copy = bytes[at..].to_vec();
                bytes.extend(copy);
            }
        }
    }
    bytes
}

#[test]
fn no_volume_file_makes_the_program_fall_over() {
    let seed = std::env::var("VOLUME_FILE_SEED").ok().map_or(1, |s| s.parse().expect("a number"));
    println!("seed {seed}");
    let mut served = Served::new();
    served.stop();
    let whole = std::fs::read_to_string(served.file()).expect("the volume file");
    let file = served.dir.path().join("w.toml");
    let mut rng = Rng(seed * 2 + 1);
    let (mut good, mut refused) = (0, 0);
    for round in 0..250 {
        let bytes = mutate(&whole, &mut rng);
        std::fs::write(&file, &bytes).expect("write");
        let command = ["status", "check", "status"][round % 3];
        let output = bimetal(served.dir.path()).arg(command).arg(&file).output().expect("run");
        let said = text(&output.stderr);
        let case = String::from_utf8_lossy(&bytes).into_owned();
        assert!(!said.contains("panicked"), "{command} of {case:?}: {said}");
        match output.status.code() {
            Some(0) => good += 1,
            Some(1 | 2) => {
                refused += 1;
                let told = said.contains("w.toml") || said.contains("device") || said.contains('/');
                assert!(told, "{command} of {case:?} does not say what is wrong: {said:?}");
                assert!(said.lines().count() <= 3, "{case:?}: {said}");
            }
            code => panic!("{command} of {case:?}: {code:?}, {said}"),
        }
    }
    println!("{good} were taken, {refused} refused");
    assert!(good > 0 && refused > 100, "the mutations no longer reach both ends");
}
