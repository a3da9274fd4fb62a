//! An engine whose calls are recorded.

use crate::item::{Item, Rare};
use crate::tape::{Shot, Tape};
use bimetal_driver::RealArena;
use bimetal_driver::signals::block_stop_signals;
use bimetal_engine::action::{Action, DeviceError, Request, Token};
use bimetal_engine::options::{Event, Level};
use bimetal_engine::pins::PinError;
use bimetal_engine::scrub::ScrubError;
use bimetal_engine::unused::Unused;
use bimetal_engine::why::Why;
use bimetal_engine::{Engine, Machine};
use bimetal_units::{Nanos, Tier};
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// After an error so much longer is recorded before it is written: what the error has led to.
const AFTERMATH_NS: u64 = 10 * Nanos::SECOND;
/// After one error was written, the next one is when so much time has passed.
const BETWEEN_INCIDENTS_NS: u64 = 600 * Nanos::SECOND;

/// How an engine is recorded.
#[derive(Clone, Debug)]
pub struct FlightPlan {
    /// Memory that the recording takes at most, bytes.
    pub memory_bytes: u64,
    /// Where it is written when something went wrong.
    pub file: PathBuf,
    /// What the volume is called.
    pub volume: String,
}

/// An engine, and the recording of what it is told and does, if there is one.
///
/// It is called as the engine is; what only asks goes to [`Flight::engine`].
pub struct Flight {
    engine: Engine<RealArena>,
    recorder: Option<Box<Recorder>>,
}

struct Recorder {
    plan: FlightPlan,
    tape: Tape,
    /// The engine is being asked what to do.
    asking: bool,
    /// When something went wrong that is not written yet.
    wrong_at: Option<Nanos>,
    written_at: Option<Nanos>,
    writing: Option<JoinHandle<()>>,
}

impl Flight {
    /// An engine that is not recorded.
    pub fn unrecorded(engine: Engine<RealArena>) -> Flight {
        Flight { engine, recorder: None }
    }

    /// Records an engine from now on. Where its state takes more memory than it may, it says so and does not.
    pub fn recorded(mut engine: Engine<RealArena>, now: Nanos, plan: FlightPlan) -> Flight {
        let mut tape = Tape::new(plan.memory_bytes, engine.status().volume_id, now);
        engine.with_arena(RealArena::note_sums);
        let mut flight = Flight { engine, recorder: None };
        if tape.begin(&mut flight.engine) {
            let recorder =
                Recorder { plan, tape, asking: false, wrong_at: None, written_at: None, writing: None };
            flight.recorder = Some(Box::new(recorder));
        } else {
            flight.give_up(&plan);
        }
        flight
    }

    /// The engine, to be asked.
    pub fn engine(&self) -> &Engine<RealArena> {
        &self.engine
    }

    /// What is recorded so far; none where nothing is.
    pub fn shot(&mut self) -> Option<Shot> {
        Some(self.recorder.as_mut()?.tape.shot())
    }

    fn give_up(&mut self, plan: &FlightPlan) {
        self.engine.with_arena(RealArena::forget_sums);
        tracing::warn!(
            "{} is not recorded: how its engine is takes more than a quarter of {} bytes; give --flight-recorder more",
            plan.volume,
            plan.memory_bytes
        );
    }

    /// A call that is rare: what it does is given back.
    fn rare<R>(
        &mut self,
        now: Option<Nanos>,
        what: Rare,
        call: impl FnOnce(&mut Engine<RealArena>) -> R,
    ) -> R {
        if let Some(recorder) = &mut self.recorder {
            now.into_iter().for_each(|now| recorder.tape.at(now));
            recorder.tape.push(&Item::Rare(what));
        }
        let result = call(&mut self.engine);
        self.note_sums();
        result
    }

    #[inline]
    fn note_sums(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            let tape = &mut recorder.tape;
            self.engine.with_arena(|arena| tape.sums(arena));
        }
    }

    /// A client's request.
    pub fn on_request(&mut self, now: Nanos, request: Request) {
        if let Some(recorder) = &mut self.recorder {
            let Request { id, kind, offset, len, buf } = request;
            recorder.tape.at(now);
            recorder.tape.asked();
            let buf = buf.map(|buf| (buf.start, buf.len));
            recorder.tape.push(&Item::Request { id: id.0, kind, offset, len, buf });
        }
        self.engine.on_request(now, request);
        self.note_sums();
    }

    /// What is worth telling since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        let events = self.engine.take_events();
        if let Some(recorder) = &mut self.recorder
            && !events.is_empty()
        {
            recorder.tape.push(&Item::Events(events.clone()));
            if events.iter().any(|event| event.level == Level::Error || event.error.is_some()) {
                recorder.went_wrong();
            }
        }
        events
    }

    /// A client would like a range to be fast.
    pub fn prefer_fast(&mut self, now: Nanos, offset: u64, len: u64) {
        self.rare(Some(now), Rare::PreferFast { offset, len }, |e| e.prefer_fast(now, offset, len));
    }

    /// Takes no new requests and closes the volume.
    pub fn begin_shutdown(&mut self, now: Nanos) {
        self.rare(Some(now), Rare::Shutdown, |e| e.begin_shutdown(now));
    }

    /// Begins to pin a range, or to unpin it.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn begin_pin(
        &mut self,
        now: Nanos,
        offset: u64,
        len: u64,
        tier: Option<Tier>,
    ) -> Result<(), PinError> {
        self.rare(Some(now), Rare::Pin { offset, len, tier }, |e| e.begin_pin(now, offset, len, tier))
    }

    /// What became of that, once.
    pub fn take_pin_answer(&mut self) -> Option<Result<(), PinError>> {
        self.rare(None, Rare::PinAnswer, Engine::take_pin_answer)
    }

    /// Begins a scrub.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn begin_scrub(&mut self, now: Nanos) -> Result<(), ScrubError> {
        self.rare(Some(now), Rare::BeginScrub, |e| e.begin_scrub(now))
    }

    /// Stops the scrub that is under way.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn stop_scrub(&mut self, now: Nanos) -> Result<(), ScrubError> {
        self.rare(Some(now), Rare::StopScrub, |e| e.stop_scrub(now))
    }

    /// Moves nothing but what empties the landing zone, or moves as ever.
    pub fn pause_moves(&mut self, now: Nanos, paused: bool) {
        self.rare(Some(now), Rare::PauseMoves { paused }, |e| e.pause_moves(now, paused));
    }

    /// What is known of the chunk with this byte.
    pub fn why(&mut self, now: Nanos, offset: u64) -> Option<Why> {
        self.rare(Some(now), Rare::Why { offset }, |e| e.why(now, offset))
    }

    /// Takes no more changes, for this reason.
    pub fn refuse_changes(&mut self, why: String) {
        self.rare(None, Rare::RefuseChanges(why.clone()), |e| e.refuse_changes(why));
    }

    /// Another device has the place of one from now on.
    pub fn device_replaced(&mut self, tier: Tier, id: [u8; 16], name: String) {
        let what = Rare::DeviceReplaced { tier, id, name: name.clone() };
        self.rare(None, what, |e| e.device_replaced(tier, id, name));
    }

    /// From now on nothing is answered that a killed process would take with it.
    pub fn outlive_kills(&mut self) {
        self.rare(None, Rare::OutliveKills, Engine::outlive_kills);
    }

    /// The engine wants nothing more: time for what takes longer.
    fn at_rest(&mut self) {
        let Some(recorder) = &mut self.recorder else { return };
        if recorder.tape.is_due() && !recorder.tape.begin(&mut self.engine) {
            let plan = recorder.plan.clone();
            self.recorder = None;
            return self.give_up(&plan);
        }
        recorder.write_what_went_wrong();
    }
}

impl Recorder {
    /// Something went wrong: that is written, unless something was of late.
    fn went_wrong(&mut self) {
        let now = self.tape.now();
        if self.written_at.is_none_or(|at| now.since(at) >= BETWEEN_INCIDENTS_NS) {
            self.wrong_at.get_or_insert(now);
        }
    }

    /// Writes the recording on a thread of its own when it is time for that.
    fn write_what_went_wrong(&mut self) {
        let now = self.tape.now();
        if self.wrong_at.is_none_or(|at| now.since(at) < AFTERMATH_NS) {
            return;
        }
        (self.wrong_at, self.written_at) = (None, Some(now));
        let (shot, plan) = (self.tape.shot(), self.plan.clone());
        let run = move || {
            // Signals are for whoever serves.
            if block_stop_signals().is_ok() {
                save(&shot, &plan);
            }
        };
        match std::thread::Builder::new().name("flight".to_owned()).spawn(run) {
            Ok(thread) => self.writing = Some(thread),
            Err(error) => tracing::warn!("the recording of {} is lost: {error}", self.plan.volume),
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.note_sums();
        }
        let Some(recorder) = &mut self.recorder else { return };
        if std::thread::panicking() {
            recorder.tape.push(&Item::Panicked { asked: recorder.asking });
            recorder.wrong_at = Some(Nanos(0));
        }
        if recorder.wrong_at.is_some() {
            save(&recorder.tape.shot(), &recorder.plan);
        }
        if let Some(thread) = recorder.writing.take() {
            let _ = thread.join();
        }
    }
}

/// Writes a recording to the file for what went wrong, in place of the one before.
fn save(shot: &Shot, plan: &FlightPlan) {
    let file = plan.file.display();
    match write_file(shot, &plan.file) {
        Ok(()) => tracing::warn!(
            "what led to this is recorded in {file}; `bimetal sim replay-recording {file}` does it again"
        ),
        Err(error) => tracing::warn!("the recording of {} cannot be written to {file}: {error}", plan.volume),
    }
}

/// Writes a recording to a file that its owner alone may read, whole or not at all.
fn write_file(shot: &Shot, path: &Path) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    shot.write(&mut file)?;
    file.flush()?;
    file.persist(path)?;
    Ok(())
}

impl Machine for Flight {
    type Arena = RealArena;

    #[inline]
    fn next_action(&mut self, now: Nanos) -> Option<Action> {
        let Some(recorder) = &mut self.recorder else { return self.engine.next_action(now) };
        recorder.tape.at(now);
        recorder.asking = true;
        let action = self.engine.next_action(now);
        recorder.asking = false;
        let tape = &mut recorder.tape;
        self.engine.with_arena(|arena| {
            match &action {
                Some(action) => tape.did(action, arena),
                None => tape.push(&Item::Nothing),
            }
            tape.sums(arena);
        });
        if action.is_none() {
            self.at_rest();
        }
        action
    }

    #[inline]
    fn on_completion(&mut self, now: Nanos, token: Token, result: Result<(), DeviceError>) {
        if let Some(recorder) = &mut self.recorder {
            let tape = &mut recorder.tape;
            tape.at(now);
            self.engine.with_arena(|arena| tape.completed(token, result, arena));
        }
        self.engine.on_completion(now, token, result);
        self.note_sums();
    }

    fn unused(&self, device: Tier) -> Unused {
        self.engine.unused(device)
    }

    fn next_needed(&self, device: Tier, range: Range<u64>, most_bytes: u64) -> Option<Range<u64>> {
        self.engine.next_needed(device, range, most_bytes)
    }

    fn is_read_elsewhere(&mut self, device: Tier, is: bool) {
        let what = Rare::ReadElsewhere { tier: device, is };
        self.rare(None, what, |engine| engine.is_read_elsewhere(device, is));
    }

    fn deadline(&self) -> Option<Nanos> {
        self.engine.deadline()
    }

    fn on_timer(&mut self, now: Nanos) {
        if let Some(recorder) = &mut self.recorder {
            recorder.tape.at(now);
            recorder.tape.push(&Item::Timer);
        }
        self.engine.on_timer(now);
        self.note_sums();
    }

    fn with_arena<R>(&mut self, f: impl FnOnce(&mut RealArena) -> R) -> R {
        self.engine.with_arena(f)
    }
}
