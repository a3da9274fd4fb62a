//! What can be said of watching on the command line.

use super::times;
use crate::size;
use clap::Args;
use std::path::PathBuf;

/// `bimetal events`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal events films
  bimetal events films --since 2h
  bimetal events films --since 2026-11-28T07:30:00Z --json
  bimetal events films --follow

Works on a volume that is served and on one that is not: it reads the file in which a server notes what happens. The
kinds are opened, recovered, closed, device-error, device-changed, read-only, damage, notice, zone-short, zone-free,
promotions, scrub-finding, scrub-whole, pin, unpin, moves-paused and moves-resumed. In JSON an event has unix_ms, volume, kind, level (info, warning,
error) and message; with --follow each is a document in a line of its own.

A volume file with on_event = \"PROGRAM\" has that program run with each event on its standard input.")]
pub(crate) struct EventsArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// Only what happened since: so long ago (90s, 10m, 2h, 3d), or a time in UTC (2026-11-28, 2026-11-28T07:30:00Z)
    #[arg(long, value_name = "TIME", value_parser = times::since)]
    pub(crate) since: Option<u64>,
    /// Go on with what happens from now on, until Ctrl-C
    #[arg(long)]
    pub(crate) follow: bool,
    /// Print one JSON document on standard output and nothing else there; with --follow one for each event
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal flight`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bimetal flight films films.flight
  bimetal sim replay-recording films.flight

Works on a volume that is served with --flight-recorder. The file tells when clients asked for what, where and how much, what
the devices were asked for and when they answered, and all metadata of the volume, with a checksum of 32 bits of each 4 KiB
that was read, written or moved. It has no contents; but who has a guess at what a block holds can test it. Only its owner
may read it.")]
pub(crate) struct FlightArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// The file to write
    pub(crate) output: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal sim replay-recording`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bimetal sim replay-recording films.flight --json

Needs no volume and no device. The engine begins as it was when the recording begins, and is told the same at the same times;
whatever it wants done must be what was recorded, to the byte of its metadata. Exit code 1: it did something else, which is
said. Only the build of the engine that recorded it can do it again.")]
pub(crate) struct ReplayRecordingArgs {
    /// A file that `bimetal flight` or a server has written
    pub(crate) file: PathBuf,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// The flight recorder.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct RecorderArgs {
    /// Keep what the engine of each volume is told and does in so much memory, the newest: written beside the history when
    /// something goes wrong, and by `bimetal flight`. At least four times what the engine's tables take
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) flight_recorder: Option<u64>,
    /// Note in so much memory what clients ask of each volume, for `bimetal plan VOLUME`: 24 bytes each, of a sample where
    /// there are more in a day; 0 for not at all [default: 8M; 1M of --memory]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) plan_tape: Option<u64>,
}

/// What is shown by HTTP.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct HttpArgs {
    /// Show the volumes to browsers and to Prometheus: a page at /, figures at /metrics. An address in numbers on
    /// loopback, port 0 for a free one; prints `page: URL`
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Option<String>,
    /// Answer only who has the token in this file, which nobody else may read: as `Authorization: Bearer TOKEN`, or as
    /// /?token=TOKEN in a browser
    #[arg(long, value_name = "FILE", requires = "http")]
    pub(crate) token_file: Option<PathBuf>,
    /// Let --http be an address that other machines can reach. What is said there is not encrypted
    #[arg(long, requires = "http")]
    pub(crate) insecure: bool,
}
