//! What can be said of protection on the command line.

use super::Protect;
use clap::Args;

/// `bimetal protect`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal protect films 30s
  bimetal protect films 30s --strictly
  bimetal protect films off
  bimetal protect films

A protected volume has an image of itself on its slow device: the whole volume as it was at one moment, some seconds ago at most.
Should the fast device die, `bimetal serve films --degraded` serves the image, and a file system on it recovers as after a
power cut. The image takes the space of the fast device on the slow one, and some for what changes: `bimetal create --protect`
sets that aside; later it is there only where the devices are larger than what the volume uses.

The slow device writes what the fast one takes once more, in sequence, and keeps what it is about to write over. Where it cannot
keep up, the image grows older, and `bimetal status` shows by how much; with --strictly, clients wait instead.

It begins when the volume is served the next time: stop its server first. With no time it is said how it is.

Exit code: 0; 2 where it cannot be.")]
pub(crate) struct ProtectArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// How old the image may be: 2s to 3600s; `off` ends it
    #[arg(value_name = "TIME|off", value_parser = parse)]
    pub(crate) time: Option<Time>,
    /// Clients wait rather than that the image is older
    #[arg(long, requires = "time")]
    pub(crate) strictly: bool,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// How old an image may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    Off,
    Seconds(u32),
}

fn parse(text: &str) -> Result<Time, String> {
    match text {
        "off" => Ok(Time::Off),
        text => seconds(text).map(Time::Seconds).map_err(|error| format!("{error}, or off")),
    }
}

/// The oldest that an image is to be.
pub(crate) fn seconds(text: &str) -> Result<u32, String> {
    let time = crate::lab::args::time(text).map_err(|error| error.to_string())?;
    let seconds = time.as_secs();
    match time.subsec_nanos() == 0 && (2..=3600).contains(&seconds) {
        true => Ok(seconds as u32),
        false => Err("give whole seconds, 2s to 3600s".to_owned()),
    }
}

/// Of `bimetal create`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ProtectionArgs {
    /// Keep an image of the volume on the slow device that is at most this old, for the day on which the fast one dies: it takes the
    /// fast device's space there. `bimetal protect --help` says more
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    protect: Option<u32>,
    /// Let clients wait rather than that the image is older
    #[arg(long, requires = "protect")]
    protect_strictly: bool,
}

impl ProtectionArgs {
    /// How the volume is to be protected.
    pub(crate) fn wish(self) -> Option<Protect> {
        self.protect.map(|seconds| Protect { seconds, strict: self.protect_strictly })
    }
}
