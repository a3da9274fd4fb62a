//! A volume's tape, handed over to whoever plans with it (`plan_tape.rs` has what it keeps).

use crate::ask::{Answer, Question, TapeDoc};
use crate::control::{greet, nonsense};
use crate::flight::{PATIENCE, greet_with};
use crate::plan_tape::{ENTRY_BYTES, PlanTape, Taped};
use crate::requests::Pending;
use crate::served::Served;
use crate::server::Server;
use bimetal_engine::action::RequestKind;
use bimetal_nbd::Command;
use bimetal_units::Nanos;
use std::io::{self, BufReader, Read as _, Write as _};
use std::path::Path;

/// Entries that are believed to follow at most: whoever claims more is no server of ours.
const MOST_ENTRIES: u64 = 1 << 30;

impl<V: Served> Server<V> {
    /// From now on it is kept in so much memory what is asked for, for plans; in none, nothing is.
    pub fn keep_tape(&mut self, memory_bytes: u64) {
        let fast = self.engine.status().tiers.first().map_or(0, |tier| tier.size_bytes);
        self.plan_tape = PlanTape::new(memory_bytes, fast);
    }

    /// A request has come.
    pub(crate) fn note_for_plans(&mut self, now: Nanos, kind: RequestKind, offset: u64, length: u64) {
        if let Some(tape) = &mut self.plan_tape {
            tape.note(now, kind, offset, length);
        }
    }

    /// A request has its answer.
    pub(crate) fn note_answer_for_plans(&mut self, pending: &Pending, now: Nanos) {
        if let Some(tape) = &mut self.plan_tape
            && matches!(pending.request.command, Command::Read | Command::Write | Command::WriteZeroes)
        {
            tape.answered(now, now.since(pending.began));
        }
    }

    /// Hands over what was asked for lately.
    pub(crate) fn hand_over_tape(&mut self, place: usize) {
        let volume = self.volume.0.clone();
        let now = self.now();
        let Some(tape) = &self.plan_tape else {
            let what = "its server does not note what it is asked for; serve it without --plan-tape 0";
            return self.desk.tell(place, Some(&Answer::Refused(format!("{volume}: {what}"))));
        };
        let fast_bytes = self.engine.status().tiers.first().map_or(0, |tier| tier.size_bytes);
        let mut shot = tape.shot(now);
        self.hand_out(place, "tape", move |stream| {
            let facts = shot.finish();
            let doc = TapeDoc {
                volume,
                fast_bytes,
                entries: facts.entries,
                share: facts.share,
                others_after: facts.others_after,
                until_unix_ns: facts.until.0,
                answered: facts.answered.count,
                response_us: facts.answered.took_ns / 1000,
            };
            greet_with(stream, &Answer::Tape(doc))?;
            let mut out = io::BufWriter::new(stream);
            shot.write(&mut out)?;
            out.flush()
        });
    }
}

/// A tape as it was handed over: what is to be known of it, and its entries.
pub type Tape = (TapeDoc, Vec<Taped>);

/// Asks the server behind a control socket what its volume was asked for lately, or gives the sentence that says why it does
/// not tell; `None` when there is no server.
///
/// # Errors
/// When the server does not answer within seconds, or with nonsense.
pub fn live_tape(socket: &Path) -> io::Result<Option<Result<Tape, String>>> {
    let Some((stream, answer, rest)) = greet(socket, &Question::Tape {})? else { return Ok(None) };
    let doc = match answer {
        Answer::Tape(doc) => doc,
        Answer::Refused(why) => return Ok(Some(Err(why))),
        _ => return Err(nonsense()),
    };
    if doc.entries > MOST_ENTRIES || !(doc.share > 0.0 && doc.share <= 1.0) {
        return Err(nonsense());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut stream = BufReader::new(io::Cursor::new(rest).chain(stream));
    let (mut entries, mut bytes) = (Vec::new(), [0; ENTRY_BYTES]);
    for _ in 0..doc.entries {
        stream.read_exact(&mut bytes)?;
        entries.push(Taped::decode(&bytes).ok_or_else(nonsense)?);
    }
    // A clock that was set back makes two of them change places, which nobody can have asked for.
    entries.sort_by_key(|entry| entry.at);
    Ok(Some(Ok((doc, entries))))
}
