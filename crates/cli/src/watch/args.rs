//! What can be said of watching on the command line.

use super::times;
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
promotions, scrub-finding, scrub-whole, pin and unpin. In JSON an event has unix_ms, volume, kind, level (info, warning,
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
