//! What the flight recorder has, handed over to a visitor of the control socket: by a thread of its own, since it may be long.

use crate::ask::{Answer, FlightDoc, Question};
use crate::control::{greet, nonsense};
use crate::served::Served;
use crate::server::Server;
use bimetal_driver::signals::block_stop_signals;
use bimetal_flight::Shot;
use std::io::{self, Read, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Who takes nothing for so long is given no more.
const PATIENCE: Duration = Duration::from_secs(10);

impl<V: Served> Server<V> {
    /// Hands over what is recorded: to one visitor at a time, since it is kept for as long as that takes.
    pub(crate) fn hand_over_flight(&mut self, place: usize) {
        let name = self.volume.0.clone();
        let refused = |what: &str| Some(Answer::Refused(format!("{name}: {what}")));
        if self.flight.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return self.desk.tell(place, refused("somebody is taking its recording already").as_ref());
        }
        let Some(shot) = self.engine.shot() else {
            let what = "its engine is not recorded; serve it with --flight-recorder SIZE";
            return self.desk.tell(place, refused(what).as_ref());
        };
        let Some(socket) = self.desk.give_away(place) else {
            return self.desk.tell(place, refused("too few descriptors are left").as_ref());
        };
        let hand_over = move || {
            // Signals are for whoever serves; a visitor who goes away is no trouble of this server.
            if block_stop_signals().is_ok() {
                let _ = send(socket, &name, &shot);
            }
        };
        match std::thread::Builder::new().name("flight".to_owned()).spawn(hand_over) {
            Ok(thread) => self.flight = Some(thread),
            Err(error) => tracing::warn!("{}: its recording cannot be handed over: {error}", self.volume.0),
        }
    }
}

fn send(socket: OwnedFd, volume: &str, shot: &Shot) -> io::Result<()> {
    let mut stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let answer = Answer::Flight(FlightDoc { volume: volume.to_owned(), bytes: shot.bytes() });
    let mut greeting = serde_json::to_vec(&answer)?;
    greeting.push(b'\n');
    stream.write_all(&greeting)?;
    shot.write(&mut stream)?;
    stream.shutdown(Shutdown::Both)
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
