//! How each example is run.

/// What is done with an example.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// It is run to its end, which has this exit code.
    Ends(i32),
    /// It is run until it is ready, and told to end.
    Serves,
    /// It is not run, for this reason.
    Parsed(&'static str),
}
use Way::{Ends, Parsed, Serves};

/// What has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Empty devices of 100 GiB and 4 TiB.
    LargeDevices,
    /// Empty devices and a file of 64 MiB.
    Devices,
    /// A volume of 4 TiB called films.
    Films,
    /// A small one.
    SmallFilms,
    Photos,
    /// The slow device of the small one is gone.
    DeadDisk,
    /// A volume beside the shell.
    Volume,
    /// A server of it, on a socket in run/.
    Serves(&'static str),
    Job,
    Records,
    /// A trace as the kernel's tools leave it.
    Blktrace,
    /// The same, converted.
    Trace,
    Csv,
    Image,
    /// An image of a disk to move in.
    OldDisk,
    /// An export of another server.
    Export,
}
use Need::*;

const MINUTES: &str = "it takes minutes";
const CERTIFICATES: &str = "it needs a server that has a certificate";

/// How an example begins, how it is run, and what for; the longest that meets one counts.
pub type Rule = (&'static str, Way, &'static [Need]);

pub const RULES: &[Rule] = &[
    ("bimetal up", Serves, &[]),
    ("bimetal create", Ends(0), &[LargeDevices]),
    ("bimetal create films --fast /dev/nvme0n1p4 --slow nbd", Ends(0), &[Devices, Export]),
    ("bimetal create films --fast /dev/nvme0n1p4 --slow 'nbd", Ends(0), &[Devices, Export]),
    ("bimetal create films --fast /dev/nvme0n1p4 --slow 'nbds", Parsed(CERTIFICATES), &[]),
    ("target/release/bimetal create", Ends(0), &[]),
    ("bimetal serve films", Serves, &[SmallFilms]),
    ("bimetal serve films --memory", Serves, &[Films]),
    ("bimetal serve films --degraded --writable", Parsed("it takes an image and no fast device"), &[]),
    ("bimetal serve films --degraded", Serves, &[SmallFilms, DeadDisk]),
    ("bimetal serve films photos", Serves, &[SmallFilms, Photos]),
    ("bimetal serve ./v.toml", Serves, &[Volume]),
    ("target/release/bimetal serve", Serves, &[Volume]),
    ("nbdinfo", Ends(0), &[Volume, Need::Serves("./v.toml")]),
    ("nbdcopy", Ends(0), &[Volume, Need::Serves("./v.toml"), Image]),
    ("target/release/bimetal status", Ends(0), &[Volume]),
    ("bimetal status", Ends(0), &[SmallFilms]),
    ("bimetal attach", Parsed("it makes a block device of this machine"), &[]),
    ("bimetal detach", Parsed("it takes a block device of this machine away"), &[]),
    ("bimetal pin films", Ends(0), &[Films]),
    ("bimetal pin ./v.toml", Ends(0), &[Volume]),
    ("bimetal unpin", Ends(0), &[Films]),
    ("bimetal pins", Ends(0), &[Films]),
    ("bimetal why", Ends(0), &[Films]),
    ("bimetal doctor films", Ends(1), &[SmallFilms, DeadDisk]),
    ("bimetal top", Parsed("it goes on until q, on a terminal"), &[]),
    ("bimetal top films --once", Ends(0), &[SmallFilms, Need::Serves("films")]),
    ("bimetal files /", Parsed("it looks through what is mounted on this machine"), &[]),
    ("bimetal map films", Ends(0), &[Films]),
    ("bimetal plan films", Parsed("nobody has used it yet; a test of its own plans"), &[]),
    ("bimetal plan web", Ends(0), &[Csv]),
    ("bimetal check films", Ends(0), &[SmallFilms]),
    ("bimetal check ./v.toml", Ends(0), &[Volume]),
    ("bimetal lost films", Ends(0), &[SmallFilms, DeadDisk]),
    ("bimetal lost films --files", Parsed("it looks through what is mounted on this machine"), &[]),
    ("bimetal scrub films", Ends(0), &[SmallFilms, Need::Serves("films")]),
    ("bimetal scrub films --files", Parsed("it looks through what is mounted on this machine"), &[]),
    ("bimetal scrub films --stop", Parsed("it may be whole before it can be stopped"), &[]),
    ("bimetal replace films", Ends(0), &[SmallFilms]),
    ("bimetal replace films --slow", Parsed("it fills a disk of this machine"), &[]),
    ("bimetal replace films --fast /dev", Parsed("it fills a disk of this machine"), &[]),
    ("bimetal replace films --fast", Ends(0), &[SmallFilms]),
    (
        "bimetal replace films --leave-unreadable",
        Parsed("there is something to leave out only while it lasts"),
        &[],
    ),
    ("bimetal replace films --cancel", Parsed("there is something to cancel only while it lasts"), &[]),
    ("bimetal protect films", Ends(0), &[SmallFilms]),
    ("bimetal protect films 30s", Ends(2), &[SmallFilms]),
    ("bimetal protect films off", Ends(2), &[SmallFilms]),
    ("bimetal events films", Ends(0), &[SmallFilms]),
    ("bimetal events films --follow", Parsed("it goes on until Ctrl-C; a test of its own follows"), &[]),
    ("bimetal flight films", Ends(0), &[SmallFilms, Need::Serves("films")]),
    ("bimetal list", Ends(0), &[SmallFilms]),
    ("bimetal import", Ends(0), &[Devices, OldDisk, SmallFilms]),
    ("bimetal export", Ends(0), &[Devices, SmallFilms]),
    ("bimetal destroy", Ends(0), &[SmallFilms]),
    ("mkdir", Ends(0), &[]),
    ("mkdir /films", Parsed("it mounts on this machine"), &[]),
    ("mkdir /data", Parsed("it mounts on this machine"), &[]),
    ("bimetal man", Ends(0), &[]),
    ("systemctl", Parsed("it asks the service manager of this machine"), &[]),
    ("cargo", Parsed("it builds the program"), &[]),
    ("./test", Parsed("it runs these tests"), &[]),
    ("bimetal trace stat disk", Ends(0), &[Blktrace]),
    ("bimetal trace stat web", Ends(0), &[Csv]),
    ("bimetal trace convert disk", Ends(0), &[Blktrace]),
    ("bimetal trace convert web", Ends(0), &[Csv]),
    ("bimetal trace convert main", Ends(0), &[Blktrace, Trace]),
    ("bimetal trace record", Parsed("it goes on until Ctrl-C; tests of its own record"), &[]),
    ("bimetal trace replay disk", Ends(0), &[Devices, SmallFilms, Need::Serves("films"), Blktrace, Trace]),
    ("bimetal trace synth heavy -o heavy", Ends(0), &[]),
    ("bimetal trace synth heavy -o small", Ends(0), &[]),
    ("bimetal trace synth mine", Parsed("the profile is the reader's own"), &[]),
    ("bimetal lab fio", Ends(0), &[Devices, SmallFilms, Need::Serves("films"), Job]),
    ("bimetal lab report", Ends(0), &[Job, Records]),
    ("bimetal lab orion -run simple", Parsed(MINUTES), &[]),
    ("bimetal lab orion -run oltp", Parsed(MINUTES), &[]),
    ("bimetal lab orion -run oltp --target 'model:", Ends(0), &[]),
    ("bimetal lab orion -run advanced", Parsed(MINUTES), &[]),
    ("bimetal lab orion -run normal", Parsed(MINUTES), &[]),
    ("bimetal lab snia", Parsed(MINUTES), &[]),
    ("bimetal lab quick", Parsed("it takes two minutes"), &[]),
    ("bimetal lab quick model:", Ends(0), &[]),
    ("bimetal lab compare", Parsed(MINUTES), &[]),
    ("bimetal lab storage-bench", Parsed(MINUTES), &[]),
    ("bimetal lab create-files", Parsed("it writes up to 250 GiB"), &[]),
    ("bimetal lab read-files", Parsed("it reads what the example before has written"), &[]),
    ("bimetal lab fill", Ends(0), &[Devices]),
    ("bimetal lab fill /dev", Parsed("it leaves the device alone for a minute"), &[]),
    ("bimetal lab fill scenario:", Parsed(MINUTES), &[]),
    ("bimetal lab idle", Parsed("it waits for an hour"), &[]),
    ("bimetal lab adaptation", Parsed(MINUTES), &[]),
    ("bimetal lab torture-recovery", Parsed(MINUTES), &[]),
    ("bimetal sim run scenarios/first-look.toml", Ends(0), &[]),
    ("bimetal sim run scenarios/made-replay.toml", Ends(0), &[]),
    ("bimetal sim run scenarios/hybrid", Parsed(MINUTES), &[]),
    ("bimetal sim run scenarios/traces.toml", Parsed("it needs traces that have to be fetched"), &[]),
    ("bimetal sim table", Parsed(MINUTES), &[]),
    ("bimetal sim sweep", Parsed(MINUTES), &[]),
    ("bimetal sim sweep --list", Ends(0), &[]),
    ("bimetal sim duel", Parsed(MINUTES), &[]),
    ("bimetal sim duel --seed 1000017", Ends(0), &[]),
    ("bimetal sim torture --seeds 1000", Parsed(MINUTES), &[]),
    ("bimetal sim torture --seed 4711", Ends(0), &[]),
    ("bimetal sim kill", Parsed(MINUTES), &[]),
    (
        "bimetal sim replay-recording",
        Parsed("it reads what another example writes; tests of its own do"),
        &[],
    ),
    ("bimetal sim calibrate", Parsed("it needs traces of measured drives"), &[]),
];

/// Whether a rule is the one for this example.
pub fn meets(rule: &Rule, command: &str) -> bool {
    let first = |rule: &&Rule| command.starts_with(rule.0);
    RULES.iter().filter(first).max_by_key(|rule| rule.0.len()).is_some_and(|best| best.0 == rule.0)
}

/// How an example is run, and what for.
pub fn way(command: &str) -> Option<(Way, &'static [Need])> {
    RULES.iter().find(|rule| meets(rule, command)).map(|rule| (rule.1, rule.2))
}
