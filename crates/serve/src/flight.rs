//! What the flight recorder has, handed over to a visitor of the control socket: by a thread of its own, since it may be long.

use crate::ask::{Answer, FlightDoc, Question};
use crate::control::{greet, nonsense};
use crate::served::Served;
use crate::server::Server;
use bimetal_driver::signals::block_stop_signals;
use std::io::{self, Read, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Who takes nothing for so long is given no more.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

impl<V: Served> Server<V> {
    /// Hands over what is recorded: to one visitor at a time, since it is kept for as long as that takes.
    pub(crate) fn hand_over_flight(&mut self, place: usize) {
        let name = self.volume.0.clone();
        let Some(shot) = self.engine.shot() else {
            let what = "its engine is not recorded; serve it with --flight-recorder SIZE";
            return self.desk.tell(place, Some(&Answer::Refused(format!("{name}: {what}"))));
        };
        self.hand_out(place, "flight", move |stream| {
            greet_with(stream, &Answer::Flight(FlightDoc { volume: name, bytes: shot.bytes() }))?;
            shot.write(stream)
        });
    }

    /// Lets a thread answer a visitor with something long: one at a time, whatever it is.
    pub(crate) fn hand_out(
        &mut self,
        place: usize,
        thread: &str,
        send: impl FnOnce(&mut UnixStream) -> io::Result<()> + Send + 'static,
    ) {
        let name = self.volume.0.clone();
        let refused = |what: &str| Some(Answer::Refused(format!("{name}: {what}")));
        if self.handing_over.as_ref().is_some_and(|thread| !thread.is_finished()) {
            let what = "somebody is taking its recording already, or its tape";
            return self.desk.tell(place, refused(what).as_ref());
        }
        let Some(socket) = self.desk.give_away(place) else {
            return self.desk.tell(place, refused("too few descriptors are left").as_ref());
        };
        let hand_over = move || {
            // Signals are for whoever serves; a visitor who goes away is no trouble of this server.
            if block_stop_signals().is_ok() {
                let _ = send_all(socket, send);
            }
        };
        match std::thread::Builder::new().name(thread.to_owned()).spawn(hand_over) {
            Ok(thread) => self.handing_over = Some(thread),
            Err(error) => tracing::warn!("{name}: what is asked for cannot be handed over: {error}"),
        }
    }
}

fn send_all(socket: OwnedFd, send: impl FnOnce(&mut UnixStream) -> io::Result<()>) -> io::Result<()> {
    let mut stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    send(&mut stream)?;
    stream.shutdown(Shutdown::Both)
}

/// Sends the line of an answer with more behind it.
pub(crate) fn greet_with(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let mut greeting = serde_json::to_vec(answer)?;
    greeting.push(b'\n');
    stream.write_all(&greeting)
}

/// A recording that is being handed over.
#[derive(Debug)]
pub struct Handover {
    stream: io::Take<io::Chain<io::Cursor<Vec<u8>>, UnixStream>>,
    /// What it is.
    pub doc: FlightDoc,
}

/// Asks the server behind a control socket for what its flight recorder has, or gives the sentence that says why not; `None`
/// when there is no server.
///
/// # Errors
/// When the server does not answer within seconds, or with nonsense.
pub fn live_flight(socket: &Path) -> io::Result<Option<Result<Handover, String>>> {
    let Some((stream, answer, rest)) = greet(socket, &Question::Flight {})? else { return Ok(None) };
    Ok(Some(match answer {
        Answer::Flight(doc) => {
            stream.set_read_timeout(Some(PATIENCE))?;
            let stream = io::Cursor::new(rest).chain(stream).take(doc.bytes);
            Ok(Handover { stream, doc })
        }
        Answer::Refused(why) => Err(why),
        _ => return Err(nonsense()),
    }))
}

impl Read for Handover {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.read(bytes)
    }
}
