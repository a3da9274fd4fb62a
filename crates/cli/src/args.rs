//! What can be said on the command line.

use crate::copy::args::{ExportArgs, ImportArgs};
use crate::create::Marks;
use crate::lab::args::{LabCommand, ReplayArgs, time};
use crate::logs::LogLevel;
use crate::look::args::{DoctorArgs, FilesArgs, MapArgs, TopArgs};
use crate::paths::{self, DeviceSpec, SlowModel};
use crate::plan::args::PlanArgs;
use crate::protect::args::{ProtectArgs, ProtectionArgs};
use crate::replace::args::ReplaceArgs;
use crate::size;
use crate::volume::MOST_WAKEUPS_PER_DAY;
use crate::watch::args::{EventsArgs, FlightArgs, HttpArgs, RecorderArgs, ReplayRecordingArgs};
use bimetal_serve::attach::WAIT_SECONDS;
use bimetal_sim::peers::Policy;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Fuses a fast device and a large, slow one into one block volume.
#[derive(Debug, Parser)]
#[command(
    name = "bimetal",
    version,
    after_help = "\
Examples:
  bimetal up                                        a first volume on two files, served at once
  bimetal create films --fast /dev/nvme0n1p4 --slow /dev/sdb
  bimetal create ./v.toml --fast 'fast.img?size=1G' --slow 'slow.img?size=8G'
  bimetal serve films                               prints `ready: nbd+unix:///?socket=PATH`
  bimetal serve films --nbd 127.0.0.1:10809         prints `ready: nbd://127.0.0.1:10809/`
  bimetal status films --json
  bimetal attach films                              prints /dev/bimetal/films, a block device
  bimetal pin films 0 2G --tier fast
  bimetal why films 1G
  bimetal list
  bimetal destroy films --yes

VOLUME is a name, kept in the configuration directory, or a path to a volume file (it contains a / or
ends in .toml). Sizes take K, M, G and T, powers of two.
Exit codes: 0 done; 1 it ran and found a problem; 2 it could not run."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// What is said on standard error
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        env = "BIMETAL_LOG",
        default_value = "info",
        hide_env_values = true,
        display_order = 990
    )]
    pub(crate) log: LogLevel,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a volume on two files if there is none yet, and serve it until Ctrl-C
    Up(UpArgs),
    /// Make a volume of a fast and a slow device
    Create(CreateArgs),
    /// Serve volumes to NBD clients until SIGTERM or Ctrl-C
    Serve(ServeArgs),
    /// Say how a volume is doing
    Status(LookArgs),
    /// Make a volume that is served a block device of this machine
    Attach(AttachArgs),
    /// Take the block device of a volume away
    Detach(DetachArgs),
    /// Keep a range of a volume on a tier, whatever its heat
    Pin(PinArgs),
    /// Leave a range of a volume to its heat again
    Unpin(UnpinArgs),
    /// List what is pinned, and how much of it is where it belongs
    Pins(PinsArgs),
    /// Say why a part of a volume is where it is, and what would change that
    Why(WhyArgs),
    /// List what has happened to a volume
    Events(EventsArgs),
    /// Write what the flight recorder of a served volume has: what its engine was told and did in the last minutes
    Flight(FlightArgs),
    /// Verify a volume that is not being served: its structure, and every checksum
    Check(CheckArgs),
    /// Say what of a volume is lost with a device that is missing, by range and by file
    Lost(LostArgs),
    /// Show each second what volumes do
    Top(TopArgs),
    /// Say what is wrong with a volume and with what it stands on, and what cures it
    Doctor(DoctorArgs),
    /// Show how much of each part of a volume is on which tier, and how hot it is
    Map(MapArgs),
    /// Say which files of a mounted file system are on which tier
    Files(FilesArgs),
    /// Say what another fast tier would bring, from a trace of what was asked of a volume
    Plan(PlanArgs),
    /// Read all of a volume that is being served, and repair what is wrong where that is possible
    Scrub(ScrubArgs),
    /// Let another device take the place of one of a volume, while it is used
    Replace(ReplaceArgs),
    /// Keep an image of a volume on its slow device, for the day on which the fast one dies
    Protect(ProtectArgs),
    /// List the volumes of the configuration directory
    List(ListArgs),
    /// End a volume for good: its superblocks and its volume file
    Destroy(DestroyArgs),
    /// Copy a disk, a partition or a raw image into a volume
    Import(ImportArgs),
    /// Copy a volume to a file or a block device
    Export(ExportArgs),
    /// Tell udev whether a block device is a volume's; for its rule
    #[command(hide = true)]
    UdevProbe(UdevProbeArgs),
    /// Write units that start volumes when their devices are there; for systemd, which calls it as a generator
    #[command(hide = true)]
    BootUnits(BootUnitsArgs),
    /// Print a script that completes the command line in a shell
    Completions(CompletionsArgs),
    /// Write the manual pages into a directory
    Man(ManArgs),
    /// Record traces of block I/O, look at them, and convert them
    #[command(after_help = "\
Examples:
  bimetal trace stat disk.blktrace.*
  bimetal trace convert disk.blktrace.* -o disk.trace
  bimetal trace record main -o main.trace --seconds 600")]
    Trace {
        #[command(subcommand)]
        command: TraceCommand,
    },
    /// Measure storage, and show what was measured
    #[command(after_help = "\
Examples:
  bimetal lab fio random.fio --target scratch.img
  bimetal lab orion -run oltp --target /dev/sdb --knee
  bimetal lab report before.json after.json --html both.html")]
    Lab {
        #[command(subcommand)]
        command: LabCommand,
    },
    /// Put the engine and the server to the test
    #[command(after_help = "\
Example:
  bimetal sim torture --seeds 1000")]
    Sim {
        #[command(subcommand)]
        command: SimCommand,
    },
}

/// What can be done with traces.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Say what is in a trace: how much is read and written, where, how large, how often
    Stat(TraceStatArgs),
    /// Write a trace in another format
    Convert(TraceConvertArgs),
    /// Make up a trace that has the published statistics of another
    Synth(crate::synth::SynthArgs),
    /// Do what a trace says on a file, a device, a server or a simulation, and measure it
    Replay(ReplayArgs),
    /// Record the requests of a volume that is served
    Record(TraceRecordArgs),
}

/// The tests.
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run a scenario: a volume or a device in virtual time, what is done to it, and what is expected
    Run(ScenarioArgs),
    /// Run scenarios under several policies, and print their claims side by side
    Table(TableArgs),
    /// Run scenarios with several values of what placement weighs, and see what that changes beyond noise
    Sweep(crate::sweep::SweepArgs),
    /// Put workloads that nobody chose, or one of your own, under our engine and other policies, and see who is ahead
    Duel(crate::duel::DuelArgs),
    /// Crash the engine in simulation again and again and verify every sector against the promise
    Torture(TortureArgs),
    /// Kill a real serving process again and again and verify every sector against the promise
    Kill(KillArgs),
    /// Hold the models of devices against measurements of real drives and against what is claimed of devices
    Calibrate(CalibrateArgs),
    /// Let the engine do again what a flight recorder has recorded, and see whether it does the same
    ReplayRecording(ReplayRecordingArgs),
}

/// `bimetal up`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bimetal up --dir /srv/volume
      makes fast.img (1 GiB) and slow.img (8 GiB), sparse, and serves them on /srv/volume/nbd.sock.
      Stop it with Ctrl-C, or kill it: the next run takes up where it was.

Its slow tier takes as long as a 1 TB disk of 2012 would, so that it can be seen what the fast one is for. With
--slow-model none it answers as soon as it can. The choice is kept in DIR/volume.toml.")]
pub(crate) struct UpArgs {
    /// Where its files are [default: $XDG_DATA_HOME/bimetal or ~/.local/share/bimetal]
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// The modelled device that the slow tier is timed as, or `none` [default: what it was last; disk-1tb-2012 for a
    /// new volume]
    #[arg(long, value_name = "NAME", value_parser = SlowModel::parse)]
    pub(crate) slow_model: Option<SlowModel>,
    /// Where its page is seen, or `none` [default: 127.0.0.1:8417, a free port where that is taken]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Option<String>,
    #[command(flatten)]
    pub(crate) reception: ReceptionArgs,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
}

/// How clients are received.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReceptionArgs {
    /// Permissions of the unix sockets that are made, in octal, whatever the umask is: who may write may connect.
    /// 0600 is this user alone, 0660 its group too. Sockets that a service manager hands over stay as they are
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = paths::socket_mode)]
    pub(crate) socket_mode: u32,
    /// Group of the unix sockets that are made, by name or number; goes with --socket-mode 0660
    #[arg(long, value_name = "GROUP", value_parser = paths::group)]
    pub(crate) socket_group: Option<u32>,
    /// While all 64 places for clients are taken, one that has asked for nothing for so long, with nothing under way,
    /// gives way to one that waits
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) idle_timeout: u32,
}

/// `bimetal create`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal create films --fast /dev/nvme0n1p4 --slow /dev/sdb
  bimetal create ./v.toml --fast 'fast.img?size=1G' --slow 'slow.img?size=8G' --chunk 64K
  bimetal create ./v.toml --fast 'fast.img?size=1G' \\
      --slow 'model:disk-1tb-2012?file=slow.img&size=8G'
  bimetal create films --fast /dev/nvme0n1p4 --slow /dev/sdb --wear-budget 150G
  bimetal create films --fast /dev/nvme0n1p4 --slow nbd://10.0.0.7/films

With model:NAME, a file is served in the time that the modelled device NAME would take; `model = \"NAME\"` in the
volume file says so, and can be changed or removed there. A wrong NAME is answered with those there are.

When the wear budget is spent, nothing is promoted or copied until it is earned again, evenly over the day; what clients
write, and what goes down, is never held back, and pins are obeyed. `wear_budget = \"150G\"` in the volume file says so,
and can be changed or removed there; it counts from the next time that the volume is served.

What has landed on the fast device is brought home while the slow one is in use anyway. Where nobody uses that, it is woken
so often in a day as the wake budget says, evenly over the day, and rests in between; a landing zone that is half full
does not wait. `wake_budget = 24` in the volume file says so.

A slow device may be an export of an NBD server. When its connection breaks, what is asked of it waits, and goes on when it
is back; after the time of --remote-patience, reads and writes of it fail, until it is back. Flushes wait as long as it
takes. `remote_patience = \"60s\"` in the volume file says so, and can be changed there. No lock keeps another machine from
the export.

A device that holds anything (a file system, a partition table, another volume, any bytes but zeros) is
refused without --force, and what was found there is said. A file is looked at where it has data. A block device knows no
holes: its ends are read first, then 4096 pieces of 64 KiB evenly strewn over it, then all of it in order, for a minute in
all. If that did not do to read it to its end, it is said how much was looked at.")]
pub(crate) struct CreateArgs {
    /// Name of the volume, or path of the volume file to write
    pub(crate) volume: String,
    /// The fast device: PATH, or PATH?size=10G to create a sparse file, or model:NAME?file=PATH&size=10G
    #[arg(long, value_name = "DEV", value_parser = DeviceSpec::parse_fast)]
    pub(crate) fast: DeviceSpec,
    /// The slow device: as the fast one, or an export of an NBD server: nbd://HOST:PORT/NAME or
    /// nbd+unix:///NAME?socket=PATH
    #[arg(long, value_name = "DEV", value_parser = DeviceSpec::parse)]
    pub(crate) slow: DeviceSpec,
    /// Bytes that are placed and moved together: a power of two, 64K to 4M
    #[arg(long, value_name = "SIZE", default_value = "128K", value_parser = size::parse)]
    pub(crate) chunk: u64,
    /// The landing zone on the fast device [default: 4G, or an eighth of the fast device where that is less]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) landing: Option<u64>,
    /// Bytes in a day that may be written to the fast device beyond what clients make it write: chunks that are moved
    /// up, and copies of what was read. Half of (rated TBW / days of warranty) is a good value; a drive rated for 600 TB
    /// in five years may take 153G [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) wear_budget: Option<u64>,
    /// How often in a day what has landed may wake the slow device by itself, where nothing else does: 1 to 1440
    /// [default: 24]
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_WAKEUPS_PER_DAY)))]
    pub(crate) wake_budget: Option<u32>,
    /// How long reads and writes of a slow device that is an NBD export wait while it cannot be reached, before they fail
    /// [default: 120s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) remote_patience: Option<Duration>,
    /// Whether the slow device describes itself, so that it can be read, should the fast one be lost: `on` leaves a sleeping disk
    /// asleep, and calls nothing good that was written since; `strict` wakes it. Older programs refuse such a volume
    #[arg(long, value_enum, default_value_t)]
    pub(crate) marks: Marks,
    #[command(flatten)]
    pub(crate) protection: ProtectionArgs,
    /// Overwrite what is there, and say what that was: given once, what is on the devices or the volume file of another
    /// volume; given twice, both
    #[arg(long, action = clap::ArgAction::Count)]
    pub(crate) force: u8,
}

/// `bimetal serve`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal serve films
  bimetal serve ./v.toml --nbd unix:/run/films.sock
  bimetal serve films --nbd unix:/run/films.sock --nbd 127.0.0.1:10809 --nbd '[::1]:0'
  bimetal serve films --read-only
  bimetal serve films --degraded   what is left when a device has died
  bimetal serve films --memory 1G
  bimetal serve films --http 127.0.0.1:8417
  bimetal serve films --socket-mode 0660 --socket-group disk
  bimetal serve films photos       prints `ready: nbd+unix:///films?socket=PATH`, and that of photos

Prints one line `ready: URI` for each socket and volume when clients can connect. SIGTERM and Ctrl-C finish what
is in flight, close the volumes and exit with 0; SIGHUP is ignored. Under systemd (NOTIFY_SOCKET) it says when it
is ready, stopping and alive.

The devices are looked after each second: a device that is cut or detached, or that another server took, ends the server
with exit code 1, and clients get errors; a file that is deleted or replaced leaves the volume read-only while the server
runs, so that it can be copied away.

Clients are not asked who they are: TCP is served on loopback addresses only, and everybody on this machine
can connect to those; a unix socket is kept by the permissions of its file, which --socket-mode and --socket-group
set (this user alone, if nothing is said), and of its directory. There is room for 64 clients; beyond that they wait,
and one that has asked for nothing for --idle-timeout seconds gives way. Who does not finish the handshake is
disconnected after 30 s, after 10 while others wait. Sockets handed over by systemd (LISTEN_PID, LISTEN_FDS) are
served, too, as they are; then --nbd is not needed. Exports are named after their
volumes, and the first one is also the default (the empty name). Each volume has a thread of its own; when one
cannot be opened, or fails, all are closed. Ask where data is with
  nbdinfo --map=x-bimetal:tier URI                  0 a hole, 1 fast, 2 slow, 3 landed, 4 lost")]
pub(crate) struct ServeArgs {
    /// Names of the volumes, or paths of their volume files
    #[arg(required = true, value_name = "VOLUME")]
    pub(crate) volumes: Vec<String>,
    /// Where NBD clients connect: unix:PATH, or HOST:PORT on loopback, port 0 for a free one; may be given
    /// several times; all offer all volumes [default: the first volume's socket in $XDG_RUNTIME_DIR/bimetal, of root's
    /// in /run/bimetal]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) nbd: Vec<String>,
    /// Refuse what clients write (EPERM); the volume itself is opened, recovered and kept in order as ever
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Serve what is left of volumes of which a device is missing: read-only, and nothing is written to the other one either,
    /// unless --writable is given. What was on the missing one is an error (EIO) at once. Without the fast one,
    /// `create --marks` must have been given
    #[arg(long)]
    pub(crate) degraded: bool,
    /// Without the fast device: serve what may be older than what was flushed last, too
    #[arg(long, requires = "degraded")]
    pub(crate) with_suspects: bool,
    /// Without the slow device: write beside what is left, on the fast one, while it has room; the disk takes part again when it is
    /// back as it was. Without the fast one: go on with the image of a protected volume, for good; that device is refused then
    #[arg(long, requires = "degraded", conflicts_with_all = ["with_suspects", "read_only"])]
    pub(crate) writable: bool,
    #[command(flatten)]
    pub(crate) http: HttpArgs,
    #[command(flatten)]
    pub(crate) reception: ReceptionArgs,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
    #[command(flatten)]
    pub(crate) recorder: RecorderArgs,
}

/// What a server may take.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct MemoryArgs {
    /// The most that the tables, caches and buffers of each volume may take; too little is refused, and what is
    /// needed is said [default: tables and caches as large as the volume asks for, 128 MiB of buffers]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) memory: Option<u64>,
    /// Keep all memory of the server from being paged out: for volumes that this machine itself mounts
    #[arg(long)]
    pub(crate) lock_memory: bool,
}

/// `bimetal completions`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mkdir -p ~/.local/share/bash-completion/completions && \\
      bimetal completions bash > ~/.local/share/bash-completion/completions/bimetal
  mkdir -p ~/.zfunc && bimetal completions zsh > ~/.zfunc/_bimetal
  mkdir -p ~/.config/fish/completions && \\
      bimetal completions fish > ~/.config/fish/completions/bimetal.fish

The script asks the program what can stand where the cursor is, names of volumes included. For zsh, ~/.zfunc has to be
in $fpath before compinit runs.")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// `bimetal man`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bimetal man ~/.local/share/man/man1               then `man bimetal`, `man bimetal-serve`, ...")]
pub(crate) struct ManArgs {
    /// Where to; made if it is not there
    pub(crate) dir: PathBuf,
}

/// `bimetal status`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bimetal status films --json

It asks the server of the volume. When none runs, it opens the volume itself, under its lock and with recovery if the
last server was killed, and closes it again.")]
pub(crate) struct LookArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal attach`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal attach films                      prints /dev/bimetal/films
  bimetal attach films --as nbd --wait 60

The server of the volume makes the device and serves it; it has to run, with the rights for that (CAP_SYS_ADMIN). The best
way that the machine has is taken, and why not a better one is said on standard error:
  ublk   the kernel's driver of that name (Linux 6.5)
  nbd    the kernel's NBD client, on one connection
  fuse   nbdfuse, and a loop device on its file: for machines with neither
It is attached until `bimetal detach`. A server that is killed, stopped or upgraded leaves a device of the first two kinds
to the next one. What is asked of it meanwhile waits, and is done then; after --wait seconds it fails. Where nobody holds the
device when its server is stopped in good order, it goes, and comes again with the next server. While a volume is attached,
a write is answered when a killed server's successor will find it.")]
pub(crate) struct AttachArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// The way to have a device: this one and no other
    #[arg(long = "as", value_name = "WAY", default_value = "auto")]
    pub(crate) way: AttachKind,
    /// Nobody may write to it
    #[arg(long)]
    pub(crate) read_only: bool,
    /// How long requests wait while nobody serves the device; then they fail
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = WAIT_SECONDS,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_WAIT_SECONDS))
    )]
    pub(crate) wait: u32,
    /// Ends the wait of a device that is there; `attach` starts it
    #[arg(long, hide = true)]
    pub(crate) watch_over: bool,
}

/// The longest wait for a server, seconds: a day.
const MOST_WAIT_SECONDS: u32 = 86_400;

/// Ways to have a device of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AttachKind {
    /// The best that there is
    Auto,
    /// The kernel's ublk driver
    Ublk,
    /// The kernel's NBD client
    Nbd,
    /// nbdfuse and a loop device
    Fuse,
}

/// `bimetal detach`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bimetal detach films

While the device is mounted, part of another, or open in a program, it stays, and who holds it is said. A device that no server
serves is taken away as well.")]
pub(crate) struct DetachArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
}

/// `bimetal check`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal check ./v.toml
  bimetal check films --repair
  bimetal check films --tail

It writes nothing unless it is asked to, and refuses a volume that is being served. With --repair it says what it will
write, writes it, and checks again. Bad copies of metadata are written again from good ones. Where both copies of
something are bad, the checkpoint before the newest takes its place, if the log still has all that followed. Where that
does not do, nothing is written, and the parts of the volume are named of which nothing says where they are. Data that does
not match its checksum stays an error until it is written again: no repair makes up what it was.")]
pub(crate) struct CheckArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
    /// Repair what can be repaired without losing anything
    #[arg(long)]
    pub(crate) repair: bool,
    /// List what is in groups of the log that are there behind its end, and where it is on the fast device
    #[arg(long)]
    pub(crate) tail: bool,
}

/// `bimetal lost`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lost films
  bimetal lost films --json
  bimetal lost films --files /mnt        the files, where what is left is mounted

When a device of a volume is missing, this says how much of the volume is lost, and lists the ranges, to the sector. The server
of the volume is asked, and where none runs, the device that is left is read. Nothing is written. Of a volume that was made with
--marks and whose fast device is missing, it lists as suspect what may be older than what was flushed last.

For --files, serve what is left (`bimetal serve films --degraded`), make it a device of this machine (`bimetal attach films`), and
mount that read-only, without its journal being replayed (`mount -o ro,noload` of ext4, `ro,norecovery` of XFS). Every file with a
part in a lost range is named, and so is every directory or file of which that cannot be known, as what says so is lost itself.
The file system may be on the device, or on a partition of it. One on LVM, RAID, device-mapper or encryption is not handled, nor
is btrfs, whose files do not say where on the device they are.")]
pub(crate) struct LostArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// Name the files, too: of the file system that is mounted here
    #[arg(long, value_name = "MOUNTPOINT")]
    pub(crate) files: Option<PathBuf>,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal pin`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal pin films 0 2G --tier fast       the first 2 GiB: the file system's metadata, perhaps
  bimetal pin ./v.toml 500G 20G --tier slow --json

What is pinned to the fast tier is moved there as soon as the mover may, ahead of what is hot, and stays; what is
pinned to the slow tier goes down and does not rise. No wear budget holds that back. Whole chunks are pinned: those
that the range touches. The pins are durable when the command answers, and hold over restarts and crashes; a later
pin of the same bytes takes the place of an earlier one. The size of the volume stays the same. The fast tier keeps an
eighth of its slots for what is not pinned, and what would go beyond that is refused.

The server of the volume is asked. When none runs, the volume is opened, under its lock, and closed again; its
chunks are moved once it is served.")]
pub(crate) struct PinArgs {
    #[command(flatten)]
    pub(crate) range: RangeArgs,
    /// Where it is to be
    #[arg(long, value_name = "TIER")]
    pub(crate) tier: PinTier,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal unpin`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal unpin films 0 2G
  bimetal unpin films 0 100T                        all of it, whatever its size

Nothing is moved by that: from now on heat decides again. What of the range is not pinned stays so.")]
pub(crate) struct UnpinArgs {
    #[command(flatten)]
    pub(crate) range: RangeArgs,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// A part of a volume.
#[derive(Debug, Args)]
pub(crate) struct RangeArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// Where it begins in the volume
    #[arg(value_parser = size::parse)]
    pub(crate) offset: u64,
    /// How long it is
    #[arg(value_parser = size::parse)]
    pub(crate) length: u64,
}

/// The tiers by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PinTier {
    Fast,
    Slow,
}

/// `bimetal pins`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal pins films
  bimetal pins films --json

For each range it says where it belongs, how much of it is there, and how much is still on the other tier; what was
never written is on neither.")]
pub(crate) struct PinsArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal why`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal why films 0
  bimetal why films 12G --json

Says of the chunk with that byte where it is, how hot it is beside what rises and what is coldest on the fast tier, what
the mover last did about it and why, whether it is pinned, and what would change all that. Heat, and what the
mover did, are remembered since the volume was opened, for the chunks it moved last; what is not known is not
claimed. When no server runs, the volume is opened for the question, and nothing is known of heat.")]
pub(crate) struct WhyArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// A byte in the volume
    #[arg(value_parser = size::parse)]
    pub(crate) offset: u64,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal scrub`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal scrub films                               begins one; where one is under way, it goes on
  bimetal scrub films --status
  bimetal scrub films --files /srv/films            the same, with the files
  bimetal scrub films --stop

Every block is read and held against its checksum, on both tiers, with shadows and copies; one on the fast tier that has none gets
one. What is wrong is repaired
where something else holds the same, and listed where nothing does, until the next scrub begins. It goes on in the server: beside
clients in a fifth of a device's time, and after a restart where it was. A slow device that is at rest is not woken; it goes on when
clients use it.

For --files, name where the volume is mounted, as it is served. The file system may be on the device, or on a partition of it. One on
LVM, RAID, device-mapper or encryption is not handled, nor is btrfs, whose files do not say where on the device they are.

Exit code: 0; 1 where something is lost; 2 where it cannot be asked for, as when the volume is not served.")]
pub(crate) struct ScrubArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// Only say how far it has come
    #[arg(long, conflicts_with = "stop")]
    pub(crate) status: bool,
    /// Stop it; the next one begins at the beginning
    #[arg(long)]
    pub(crate) stop: bool,
    /// Only say how far it has come, and name the files with something lost: of the file system that is mounted here
    #[arg(long, value_name = "MOUNTPOINT", conflicts_with = "stop")]
    pub(crate) files: Option<PathBuf>,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal list`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal list
  bimetal list --json

Lists what `create NAME` made, in $XDG_CONFIG_HOME/bimetal or ~/.config/bimetal, or /etc/bimetal if root made it, the
volume of `up`, and whatever this user serves from files elsewhere: these are listed by their files. The state is served, stopped, missing device, unfinished (`create` did not come
to its end) or broken (the volume file cannot be read). Exit code 1 when any of the last three is listed.")]
pub(crate) struct ListArgs {
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal destroy`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bimetal destroy films --yes

Erases the superblocks on both devices and removes the volume file; what was stored can then no longer be
found. The rest of the devices is not overwritten, and files are not removed. A volume that is served is
refused, and so is one with a device that is missing or holds something else, unless --force is given; such
a device is never touched.")]
pub(crate) struct DestroyArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// Really do it
    #[arg(long)]
    pub(crate) yes: bool,
    /// Destroy what there is of it, even if a device is missing or holds something else
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal udev-probe`
#[derive(Debug, Args)]
pub(crate) struct UdevProbeArgs {
    /// The block device
    pub(crate) device: PathBuf,
}

/// `bimetal boot-units`
#[derive(Debug, Args)]
pub(crate) struct BootUnitsArgs {
    /// Where units are to be written
    pub(crate) output: PathBuf,
    /// Where the units of the system are, and which of them are enabled; may be given several times, the first counts most
    #[arg(long, value_name = "DIR", default_values = ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system"])]
    pub(crate) units: Vec<PathBuf>,
}

/// `bimetal sim run`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal sim run scenarios/first-look.toml
  bimetal sim run scenarios/made-replay.toml
  bimetal sim run scenarios/hybrid-2012-fill.toml --seed 7 --json
  bimetal sim run scenarios/traces.toml --only \"OLTP, 10%\" --policy bcache

The file names a [volume] of two modelled devices, or one [device], and its phases: loads, files, replays of a
[trace], pauses, discards, ends of the process. The same engine as in a real volume runs on them, with all its metadata and without payload, as
fast as it can decide. The same file and seed give the same event hash. Exit code 1 when an expectation is not
held. A file with axes is several scenarios, and each is run; --json prints {reports: [...]} then.
What can be said in the file: docs/SIMULATOR.md. Models: `bimetal sim calibrate --help`.")]
pub(crate) struct ScenarioArgs {
    /// The scenario
    pub(crate) file: PathBuf,
    /// Of a file with axes, only the scenarios whose names have this in them
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// Where random choices begin, in place of the seed in the file
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// What decides where data lies, in place of the file's: bimetal, static, spill-only, fusion, bcache, bcache-second,
    /// dm-cache-smq; or a bound: clairvoyant, all-fast
    #[arg(long, value_name = "NAME", value_parser = policy)]
    pub(crate) policy: Option<Policy>,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal sim table`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal sim table > docs/RESULTS.md
  bimetal sim table --scenarios scenarios/peers-small.toml --policies spill-only,fusion --json
  bimetal sim table --scenarios scenarios/traces.toml --only 10%

Each scenario that has a [[claim]] is run once with our engine, and once under each policy: models of what else can be
had (docs/POLICIES.md), on the same devices. Markdown on standard output; what is being run on standard error. At full
size a scenario may take minutes for each policy. Beside them are a ceiling, where a trace is replayed, and a bound.
A scenario whose trace is in a folder that an environment variable names is skipped where that is not set. Exit code 1 when a claim is not held by our engine.")]
pub(crate) struct TableArgs {
    /// Scenario files, or folders of them
    #[arg(long, value_name = "PATH", num_args = 1.., default_value = "scenarios")]
    pub(crate) scenarios: Vec<PathBuf>,
    /// Only the scenarios whose names have this in them
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// The policies to compare with, separated by commas, beside those that a claim is a multiple of [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = rival)]
    pub(crate) policies: Vec<Policy>,
    /// Threads; each holds the modelled devices of one run, up to some GiB at full size [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

fn policy(name: &str) -> Result<Policy, String> {
    one_of(Policy::ALL.iter().chain(&Policy::BOUNDS), name)
}

/// A policy that can be had.
pub(crate) fn rival(name: &str) -> Result<Policy, String> {
    one_of(Policy::ALL.iter(), name)
}

fn one_of<'p>(policies: impl Iterator<Item = &'p Policy> + Clone, name: &str) -> Result<Policy, String> {
    policies.clone().find(|policy| policy.name() == name).copied().ok_or_else(|| {
        let names: Vec<&str> = policies.map(|policy| policy.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

/// `bimetal trace stat`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal trace stat disk.blktrace.*                one file for each processor, merged by time
  bimetal trace stat web_0.csv.gz --json

Read are blktrace, blkparse, fio iolog 2 and 3, MSR, SPC, SYSTOR '17, Alibaba, Tencent, VSCSI 1 and 2, blkreplay,
DiskSim, DiskSim validation, MQSim, HP SRT, ARC, oracleGeneral and Bimetal's own format. They are recognised by
their contents, gzip, zstd, xz and bzip2 likewise. Several files are one trace, and must be of one format; - is standard
input. Records that stand a little out of order are put in order. Lines that make no sense are counted, and the first few
are named. Exit code 1 when a file could not be read to its end.")]
pub(crate) struct TraceStatArgs {
    /// The files of the trace
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal trace convert`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal trace convert disk.blktrace.* -o disk.trace
  bimetal trace convert web_0.csv.gz -o web_0.iolog --to iolog3
  bimetal trace convert main.trace -o main.parquet --to parquet

What is written appears under its name only when it is complete. Lines that make no sense are left out, and counted.
A trace without times has all times of an iolog at zero. Exit code 1 when a file could not be read to its end; what
came before is written.")]
pub(crate) struct TraceConvertArgs {
    /// The files of the trace
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The file to write
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Its format: bimetal is compact and checksummed, iolog3 is for fio's --read_iolog, parquet for DuckDB and pandas
    #[arg(long, value_name = "FORMAT", default_value = "bimetal")]
    pub(crate) to: TraceFormat,
    /// Replace the file if it is there
    #[arg(long)]
    pub(crate) force: bool,
}

/// `bimetal trace record`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal trace record main -o main.trace                     until Ctrl-C, or until the server ends
  bimetal trace record main -o main.trace --seconds 600 --requests 1000000

Each read, write, flush, discard and write of zeros that a client asks for is written in Bimetal's own format, in the
order in which they began: when, where, how much, whether FUA, and how long it took, from when the engine got it until
its reply was ready. One recorder at a time. The server waits for nobody: what a slow recorder cannot take is left out,
counted, and the count is in the file. What came is written every second, so a recorder that is killed leaves a trace
that is cut off. Exit code 1 when the server vanished; what it told until then is written.")]
pub(crate) struct TraceRecordArgs {
    /// The volume: a name, or a path ending in .toml
    pub(crate) volume: String,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Stop after so many seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) seconds: Option<u64>,
    /// Stop after so many requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: Option<u64>,
    /// Replace the file if it is there
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// Formats that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TraceFormat {
    Iolog3,
    Bimetal,
    Parquet,
}

/// `bimetal sim torture`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal sim torture --seeds 10000
  bimetal sim torture --seed 4711 --seeds 1         replays one

Each seed draws a volume, a load and faults: crashes before any action that lose, keep, reorder or tear what
was not flushed, kills, I/O errors, crashes in recovery. Every read and every sector after recovery is checked
against a model of the promise. A violation is shrunk to a short plan. Which stages of the engine's operations
met which faults is counted, and what never met is said. Exit code 1 on a violation.")]
pub(crate) struct TortureArgs {
    /// How many seeds
    #[arg(long, default_value_t = 1000)]
    pub(crate) seeds: u64,
    /// The first seed; printed first [default: from the clock]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Threads [default: one per core]
    #[arg(long)]
    pub(crate) threads: Option<usize>,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal sim kill`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bimetal sim kill --rounds 200 --seconds 0.5

Serves a small volume from a child process, loads it with reads, writes, discards and flushes over several
connections, kills the child with SIGKILL at a random moment (sometimes again while it recovers), restarts
it and reads every sector back: each must hold what was flushed or FUA-written last, or a value written to
it since. At the end the volume is closed and checked.")]
pub(crate) struct KillArgs {
    /// Kills
    #[arg(long, default_value_t = 20)]
    pub(crate) rounds: u64,
    /// Where the choices begin; printed first [default: random]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Longest time under load before a kill
    #[arg(long, default_value_t = 1.0)]
    pub(crate) seconds: f64,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
    /// Where the volume's files are made and removed again [default: the system's temporary directory]
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}

/// `bimetal sim calibrate`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal sim calibrate --dir drives
  bimetal sim calibrate --dir drives --toml parameters
  bimetal sim calibrate --drive disk-20tb --drive laptop-2022 --json

For each NAME.trace in the folder, a trace of service times measured on a drive, the drive's description (NAME.model
and NAME.diskspecs in DiskSim's format, NAME.seek) is converted, what it leaves open is fitted to the first half of the
trace, and all of it is replayed, one request at a time. Where NAME.model or NAME.seek is missing, the file that the
description names is taken. A drive that cannot be read is told of, the others are compared, and the exit code is 1.
The demerit figure is the root mean square of the horizontal distance between the measured and the modelled
distribution of service times, in percent of the measured mean. Then the devices that come with the program do what was
measured on their kind; where a range was measured, reference is what of it is closest to the model. All of it takes
tens of seconds.")]
pub(crate) struct CalibrateArgs {
    /// Where the drives are [default: $BIMETAL_TRACES/hdd-validation]
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Only this drive; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) drive: Vec<String>,
    /// Write the parameters of each drive, with what was fitted, to NAME.toml in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) toml: Option<PathBuf>,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}
