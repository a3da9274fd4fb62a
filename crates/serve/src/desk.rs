//! Who comes to the control socket. A visitor that says nothing, or closes its side, gets the volume's status; one that
//! sends a line of JSON gets an answer to that question (`ask.rs`). Then the stream ends, but for a visitor who records
//! (`record.rs`).

use crate::ask::{self, Answer, Question, RecordingDoc, Taken};
use crate::served::Served;
use crate::server::{Server, tag};
use crate::status::tier_name;
use crate::watched::{EventDoc, EventKind, EventLevel};
use bimetal_units::{Tier, size};
use rustix::io::Errno;
use serde::Serialize;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

/// Its tag's kind.
pub(crate) const VISITOR: u64 = 8;
/// Visitors at a time; who comes beyond that gets nothing, and may come again.
const MAX_VISITORS: usize = 16;
/// Longest question, bytes.
const MAX_QUESTION_BYTES: usize = 4096;
/// Who says nothing for so long wants the status.
const SILENCE: Duration = Duration::from_millis(500);
/// Who has not finished a question by then is sent away.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is said that somebody was turned away.
const TURNED_AWAY_EVERY: Duration = Duration::from_secs(60);

struct Visitor {
    fd: OwnedFd,
    heard: Vec<u8>,
    since: Instant,
    /// The ring watches its socket.
    watched: bool,
    /// Its question is being dealt with, or answered.
    heard_out: bool,
    answered: bool,
}

/// The visitors, and those of them that want pins changed.
#[derive(Default)]
pub(crate) struct Desk {
    visitors: Vec<Option<Visitor>>,
    /// Whose change is under way.
    changing: Option<(usize, Question)>,
    /// Changes begun so far.
    begun: u64,
    waiting: VecDeque<(usize, Question)>,
    /// When it was said last that somebody was turned away.
    turned_away: Option<Instant>,
}

impl Desk {
    /// How soon somebody is to be looked after at the latest.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        self.visitors.iter().flatten().any(|visitor| !visitor.heard_out).then_some(SILENCE)
    }

    /// Answers a visitor. A document is far smaller than a fresh socket's buffer, so this does not wait; one for whom it
    /// would gets a part.
    pub(crate) fn tell(&mut self, place: usize, document: Option<&impl Serialize>) {
        let Some(visitor) = &mut self.visitors[place] else { return };
        if let Some(text) = document.and_then(|document| serde_json::to_vec(document).ok()) {
            let _ = rustix::net::send(
                &visitor.fd,
                &text,
                rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL,
            );
        }
        // The ring holds the socket as long as it watches it: this ends both.
        let _ = rustix::net::shutdown(&visitor.fd, rustix::net::Shutdown::Both);
        (visitor.heard_out, visitor.answered) = (true, true);
        self.see_off(place);
    }

    /// Another hold on a visitor's socket.
    pub(crate) fn socket(&self, place: usize) -> Option<OwnedFd> {
        self.visitors[place].as_ref()?.fd.try_clone().ok()
    }

    /// Sends a visitor away who has been told all.
    pub(crate) fn dismiss(&mut self, place: usize) {
        self.tell(place, None::<&Answer>);
    }

    /// Gives a visitor's socket away, to whoever answers him from now on.
    pub(crate) fn give_away(&mut self, place: usize) -> Option<OwnedFd> {
        let socket = self.socket(place)?;
        if let Some(visitor) = &mut self.visitors[place] {
            (visitor.heard_out, visitor.answered) = (true, true);
        }
        self.see_off(place);
        Some(socket)
    }

    fn see_off(&mut self, place: usize) {
        if self.visitors[place].as_ref().is_some_and(|visitor| visitor.answered && !visitor.watched) {
            self.visitors[place] = None;
        }
    }
}

impl<V: Served> Server<V> {
    /// Somebody has come. Whoever he is, he got past the permissions of the socket's file: they may have been changed.
    pub(crate) fn receive_visitor(&mut self, fd: OwnedFd) {
        let ours = rustix::process::geteuid();
        match rustix::net::sockopt::socket_peercred(&fd) {
            Ok(peer) if peer.uid == ours || peer.uid.is_root() => {}
            peer => return self.turn_away(&fd, peer.ok().map(|peer| peer.uid.as_raw())),
        }
        let visitors = &mut self.desk.visitors;
        let free = visitors.iter().position(Option::is_none);
        let place = free.unwrap_or(visitors.len());
        if place == MAX_VISITORS {
            return;
        }
        if free.is_none() {
            visitors.push(None);
        }
        let (heard, since) = (Vec::new(), Instant::now());
        visitors[place] =
            Some(Visitor { fd, heard, since, watched: false, heard_out: false, answered: false });
        self.watch_visitor(place);
    }

    /// Tells somebody who is neither this server's user nor root that he is not answered.
    fn turn_away(&mut self, fd: &OwnedFd, user: Option<u32>) {
        let who = user.map_or_else(|| "an unknown user".to_owned(), |user| format!("user {user}"));
        if self.desk.turned_away.is_none_or(|last| last.elapsed() >= TURNED_AWAY_EVERY) {
            self.desk.turned_away = Some(Instant::now());
            tracing::warn!("{who} came to the control socket of {} and was turned away", self.volume.0);
        }
        let what = format!("{}: its server answers only its own user and root, not {who}", self.volume.0);
        let text = serde_json::to_vec(&Answer::Refused(what)).unwrap_or_default();
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        // Whoever does not hear it is not answered either.
        let _ = rustix::net::send(fd, &text, flags);
    }

    fn watch_visitor(&mut self, place: usize) {
        if let Some(visitor) = &mut self.desk.visitors[place] {
            visitor.watched = true;
            self.driver.ring.poll_in(visitor.fd.as_raw_fd(), tag(VISITOR, place));
        }
    }

    /// A visitor said something, or will say no more.
    pub(crate) fn hear_visitor(&mut self, place: usize) {
        let Some(visitor) = &mut self.desk.visitors[place] else { return };
        visitor.watched = false;
        if visitor.heard_out && self.records(place) {
            // He has said enough, or is gone.
            return self.end_recording();
        }
        let Some(visitor) = &mut self.desk.visitors[place] else { return };
        if visitor.heard_out {
            return self.desk.see_off(place);
        }
        let mut bytes = [0; MAX_QUESTION_BYTES];
        let said = rustix::net::recv(&visitor.fd, &mut bytes[..], rustix::net::RecvFlags::DONTWAIT);
        let over = match said {
            Ok((0, _)) => true,
            Ok((count, _)) => {
                visitor.heard.extend_from_slice(&bytes[..count]);
                visitor.heard.contains(&b'\n') || visitor.heard.len() > MAX_QUESTION_BYTES
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => true,
        };
        if over { self.hear_out(place) } else { self.watch_visitor(place) }
    }

    /// A visitor has said all.
    fn hear_out(&mut self, place: usize) {
        let Some(visitor) = &mut self.desk.visitors[place] else { return };
        visitor.heard_out = true;
        if visitor.heard.trim_ascii().is_empty() {
            let status = self.status();
            return self.desk.tell(place, Some(&status));
        }
        match serde_json::from_slice(&visitor.heard) {
            Ok(question) => self.deal_with(place, question),
            Err(error) => {
                let refused = Answer::Refused(format!("the question makes no sense to this server: {error}"));
                self.desk.tell(place, Some(&refused));
            }
        }
    }

    /// A visitor wants to hear of every request from now on, until his side of the stream ends.
    fn let_record(&mut self, place: usize) {
        let doc = RecordingDoc { volume: self.volume.0.clone(), size_bytes: self.engine.size_bytes() };
        let mut greeting = serde_json::to_vec(&Answer::Recording(doc)).unwrap_or_default();
        greeting.push(b'\n');
        match self.begin_recording(place, &greeting) {
            Ok(()) => self.watch_visitor(place),
            Err(why) => self.desk.tell(place, Some(&Answer::Refused(why))),
        }
    }

    /// Pauses moves, or resumes them.
    fn pause_moves(&mut self, place: usize, paused: bool) {
        let was = self.engine.status().moves_paused;
        let now = self.now();
        self.engine.pause_moves(now, paused);
        if was != paused {
            let (kind, what) = match paused {
                true => (EventKind::MovesPaused, "moves are paused: only the landing zone is emptied"),
                false => (EventKind::MovesResumed, "moves go on"),
            };
            self.happened(kind, EventLevel::Info, what.to_owned());
        }
        self.desk.tell(place, Some(&Answer::Moves { paused }));
    }

    fn deal_with(&mut self, place: usize, question: Question) {
        match question {
            Question::Record {} => return self.let_record(place),
            Question::Flight {} => return self.hand_over_flight(place),
            Question::Tape {} => return self.hand_over_tape(place),
            Question::Moves { pause } => return self.pause_moves(place, pause),
            Question::Attach(wish) => return self.begin_attach(Some(place), wish),
            Question::Detach {} => return self.begin_detach(place),
            Question::Replace { wish } => {
                let answer = self.replace(wish);
                return self.desk.tell(place, Some(&answer));
            }
            _ => {}
        }
        let now = self.now();
        match ask::ask(&self.volume.0, &mut self.engine, now, question) {
            Taken::Answered(answer) => self.desk.tell(place, Some(&answer)),
            Taken::Begun => {
                self.desk.changing = Some((place, question));
                self.desk.begun += 1;
            }
            Taken::Later => self.desk.waiting.push_back((place, question)),
        }
    }

    /// Answers those whose change is durable, begins the next one, and looks after those who are silent. True: a change
    /// was begun, with which the engine has something to do.
    pub(crate) fn look_after_desk(&mut self) -> bool {
        let before = self.desk.begun;
        while let Some((place, question)) = self.desk.changing
            && let Some(answer) = ask::conclude(&self.volume.0, &mut self.engine)
        {
            self.desk.changing = None;
            if matches!(answer, Answer::Pins(_)) {
                self.pins_happened(question);
            }
            self.desk.tell(place, Some(&answer));
            while self.desk.changing.is_none()
                && let Some((next, question)) = self.desk.waiting.pop_front()
            {
                self.deal_with(next, question);
            }
        }
        for place in 0..self.desk.visitors.len() {
            let Some(visitor) = self.desk.visitors[place].as_ref().filter(|visitor| !visitor.heard_out)
            else {
                continue;
            };
            if visitor.heard.is_empty() && visitor.since.elapsed() >= SILENCE {
                self.hear_out(place);
            } else if visitor.since.elapsed() >= PATIENCE {
                self.desk.tell(place, None::<&Answer>);
            }
        }
        self.desk.begun != before
    }
}

/// The event that a change of the pins is; none of what is no such change.
pub fn pin_event(volume: &str, question: Question) -> Option<EventDoc> {
    let (kind, message) = match question {
        Question::Pin { offset, length, tier } => {
            let tier = tier_name(usize::from(Tier::from(tier).0));
            (
                EventKind::Pin,
                format!("{} from byte {offset} on are pinned to the {tier} tier", size::show(length)),
            )
        }
        Question::Unpin { offset, length } => {
            (EventKind::Unpin, format!("{} from byte {offset} on are pinned no more", size::show(length)))
        }
        _ => return None,
    };
    Some(EventDoc::now(volume, kind, EventLevel::Info, message))
}

impl<V: Served> Server<V> {
    fn pins_happened(&mut self, question: Question) {
        if let (Some(event), Some(watcher)) = (pin_event(&self.volume.0, question), &mut self.watcher) {
            watcher.event(event);
        }
    }
}
