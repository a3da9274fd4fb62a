//! The log on standard error: one line for each event that is worth one.

use bimetal_serve::EVENT_TARGET;
use clap::ValueEnum;
use std::fmt;
use std::io::IsTerminal as _;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// What is lost, ends the service or makes the volume read-only
    Error,
    /// Devices that fail or are not where they were
    Warn,
    /// Opened, ready, closed; devices that work again
    Info,
    /// Clients that come and go
    Debug,
}

/// Begins to write lines of this level and above. A server's lines carry the time, unless the journal adds it.
pub(crate) fn begin(level: LogLevel, is_server: bool) {
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    let is_journal = is_journal();
    let lines = Lines {
        time: is_server && !is_journal,
        without_events: is_journal,
        colour: std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        // A standard error that has gone away must not end a server.
        .log_internal_errors(false)
        .event_format(lines)
        .init();
}

/// Whether standard error is a stream of the journal: the service manager names it by its device and inode. The
/// variable alone says little, since children inherit it.
pub(crate) fn is_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(std::io::stderr()).is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// `TIME bimetal: warning: what happened`
struct Lines {
    time: bool,
    /// Events are in the journal with their fields, and need not be there twice.
    without_events: bool,
    colour: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.without_events && event.metadata().target() == EVENT_TARGET {
            return Ok(());
        }
        if self.time {
            SystemTime.format_time(&mut out)?;
            out.write_char(' ')?;
        }
        let (kind, colour) = match *event.metadata().level() {
            Level::ERROR => ("error: ", "31"),
            Level::WARN => ("warning: ", "33"),
            Level::INFO => ("", "0"),
            _ => ("debug: ", "2"),
        };
        match self.colour {
            true => write!(out, "\x1b[{colour}mbimetal: {kind}\x1b[0m")?,
            false => write!(out, "bimetal: {kind}")?,
        }
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        // A path may have any character in its name; a line stays a line.
        for c in text.chars() {
            match c.is_control() {
                true => write!(out, "{}", c.escape_default())?,
                false => out.write_char(c)?,
            }
        }
        out.write_char('\n')
    }
}
