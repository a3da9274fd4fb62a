//! What is shown of volumes by HTTP.

use super::args::HttpArgs;
use crate::volume::Volume;
use anyhow::{Context as _, bail};
use bimetal_watch::http::{Guard, Http, Shown, TokenError};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Where `up` is seen, as long as nobody else has that.
const UP_PORT: u16 = 8417;

/// An address that is taken, and who is answered there.
#[derive(Debug)]
pub(crate) struct HttpPlan {
    listener: TcpListener,
    guard: Guard,
}

/// Takes the address that was asked for, if one was.
pub(crate) fn plan(args: &HttpArgs) -> anyhow::Result<Option<HttpPlan>> {
    let Some(text) = &args.http else { return Ok(None) };
    let address = address(text)?;
    if !address.ip().is_loopback() && !args.insecure {
        bail!(
            "{text} can be reached from other machines, and what is said there is not encrypted; use 127.0.0.1, or add \
             --insecure, with --token-file at best"
        );
    }
    let guard = args.token_file.as_deref().map(guard).transpose()?.unwrap_or_default();
    let listener = Http::listen(address).with_context(|| format!("cannot listen on {address}"))?;
    Ok(Some(HttpPlan { listener, guard }))
}

/// The address of `up`: what was asked for, `none`, or a port of its own; a free one where somebody has that.
pub(crate) fn plan_of_up(asked: Option<&str>) -> anyhow::Result<Option<HttpPlan>> {
    match asked {
        Some("none") => Ok(None),
        Some(text) => plan(&HttpArgs { http: Some(text.to_owned()), ..HttpArgs::default() }),
        None => {
            let at = |port| Http::listen((Ipv4Addr::LOCALHOST, port).into());
            let listener = match at(UP_PORT) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => at(0),
                taken => taken,
            };
            let listener = listener.context("cannot listen on 127.0.0.1; --http none leaves the page out")?;
            Ok(Some(HttpPlan { listener, guard: Guard::default() }))
        }
    }
}

fn guard(path: &Path) -> anyhow::Result<Guard> {
    Guard::with_token(path).map_err(|error| match error {
        TokenError::Io(error) => anyhow::Error::new(error).context(format!("cannot read {}", path.display())),
        TokenError::Bad(why) => anyhow::anyhow!("{}: {why}", path.display()),
    })
}

/// Names are not looked up: what they stand for may change.
fn address(text: &str) -> anyhow::Result<SocketAddr> {
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        anyhow::anyhow!(
            "{text:?} is no address to be seen at; write 127.0.0.1:PORT, [::1]:PORT or localhost:PORT"
        )
    })
}

/// A volume as it is shown.
pub(crate) fn shown(volume: &Volume, watched: Arc<AtomicU64>) -> anyhow::Result<Shown> {
    Ok(Shown {
        name: volume.name().0,
        control: volume.socket("control")?,
        history: volume.history_file(),
        events: volume.events_file(),
        watched,
    })
}

impl HttpPlan {
    /// Begins to show these volumes.
    pub(crate) fn start(self, volumes: Vec<Shown>) -> anyhow::Result<Http> {
        Http::start(self.listener, volumes, self.guard).context("cannot start a thread for HTTP")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_are_let_in_only_where_that_is_said() {
        let args =
            |text: &str, insecure| HttpArgs { http: Some(text.to_owned()), insecure, ..HttpArgs::default() };
        for text in ["127.0.0.1:0", "localhost:0"] {
            assert!(plan(&args(text, false)).expect("an address").is_some(), "{text}");
        }
        assert!(plan(&args("0.0.0.0:0", false)).expect_err("refused").to_string().contains("--insecure"));
        assert!(plan(&args("0.0.0.0:0", true)).expect("an address").is_some());
        for text in ["", "8080", "example.org:80", "localhost:x", "127.0.0.1"] {
            assert!(
                plan(&args(text, true)).expect_err(text).to_string().contains("127.0.0.1:PORT"),
                "{text}"
            );
        }
        assert!(plan(&HttpArgs::default()).expect("none is asked for").is_none());
    }
}
