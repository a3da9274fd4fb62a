//! Doing again what was recorded.

use crate::frame::{HEAD, Kind, MAX_FRAME_BYTES, RecordingError, check_head, next};
use crate::item::{Did, Item, Rare, number, token};
use crate::tape::State;
use bimetal_driver::RealArena;
use bimetal_engine::Engine;
use bimetal_engine::action::{Action, Machine as _, Request, RequestId, Token};
use bimetal_engine::arena::{Arena as _, Buf};
use bimetal_engine::options::Event;
use bimetal_units::{ByTier, FAST, Nanos, Tier};
use std::collections::HashMap;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Where the engine first did something else than was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which item of the recording, counted from 1.
    pub item: u64,
    /// When it was recorded.
    pub at: Nanos,
    /// What was recorded.
    pub recorded: String,
    /// What the engine did now.
    pub done: String,
}

/// An event, and when it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// When.
    pub at: Nanos,
    /// What.
    pub event: Event,
}

/// What took longest of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Longest {
    /// When it was asked for.
    pub at: Nanos,
    /// What it was, in words.
    pub what: String,
    /// How long it took; until the end of the recording if it was not answered.
    pub took_ns: u64,
    /// Whether it was answered.
    pub answered: bool,
}

/// What a recording held, and what doing it again has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The identity of the volume.
    pub volume: [u8; 16],
    /// When it begins.
    pub from: Nanos,
    /// When it ends.
    pub to: Nanos,
    /// Items of the recording that were done again.
    pub items: u64,
    /// Requests of clients.
    pub requests: u64,
    /// Answers of devices.
    pub completions: u64,
    /// Those of them that were errors.
    pub errors: u64,
    /// Things that the engine wanted done, answers to clients included.
    pub actions: u64,
    /// Answers to clients.
    pub replies: u64,
    /// Bytes of metadata that were read meanwhile.
    pub metadata_bytes: u64,
    /// What the engine told.
    pub events: Vec<Told>,
    /// What took each device longest, in tier order.
    pub slowest: ByTier<Option<Longest>>,
    /// The request that took longest.
    pub longest: Option<Longest>,
    /// The engine panicked at the end, as it had when it was recorded.
    pub panicked: bool,
    /// It ends in the middle of something, or is damaged there; what was before counts.
    pub torn: bool,
    /// Where the engine first did something else: nothing was done again behind that.
    pub difference: Option<Difference>,
}

/// Makes the engine of a recording do again what it did. A panic of it is a difference, unless it was recorded.
///
/// # Errors
/// When it is no recording, or one that this engine cannot do again.
pub fn replay(from: &mut impl Read) -> Result<Replayed, RecordingError> {
    let mut reader = Reader { from, torn: false, number: None };
    let mut report = Replayed { volume: reader.head()?, ..Replayed::default() };
    let state = reader.state()?;
    let bad = |what: String| RecordingError::State(what);
    let arena = state.arena.arena().map_err(|error| bad(error.to_string()))?;
    (report.from, report.to) = (state.now, state.now);
    let mut player = Player {
        engine: state.engine.revive(arena),
        now: state.now,
        newest: 0,
        in_flight: HashMap::new(),
        asked: HashMap::new(),
        report,
    };
    let result = catch_unwind(AssertUnwindSafe(|| player.play(&mut reader)));
    match result {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => {
            player.differs("what comes next in it".to_owned(), "a panic of the engine".to_owned());
        }
    }
    player.report.torn |= reader.torn;
    Ok(player.finish())
}

/// A recording that is being read.
struct Reader<'a, R> {
    from: &'a mut R,
    torn: bool,
    /// Of the last frame.
    number: Option<u64>,
}

impl<R: Read> Reader<'_, R> {
    fn head(&mut self) -> Result<[u8; 16], RecordingError> {
        let mut head = Vec::with_capacity(HEAD);
        self.from.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
        let head: &[u8; HEAD] = head.as_slice().try_into().map_err(|_| RecordingError::Foreign)?;
        check_head(head)
    }

    /// The next frame, if it follows on the last one.
    fn frame(&mut self) -> std::io::Result<Option<(Kind, Vec<u8>)>> {
        let Some((kind, number, bytes)) = next(self.from, &mut self.torn)? else { return Ok(None) };
        if self.number.is_some_and(|last| last.checked_add(1) != Some(number)) {
            self.torn = true;
            return Ok(None);
        }
        self.number = Some(number);
        Ok(Some((kind, bytes)))
    }

    fn state(&mut self) -> Result<State, RecordingError> {
        let mut pieces = Vec::new();
        loop {
            match self.frame()? {
                Some((Kind::State, bytes)) => pieces.extend(bytes),
                Some((Kind::StateEnd, bytes)) => {
                    pieces.extend(bytes);
                    break;
                }
                Some((Kind::Calls, _)) | None => return Err(RecordingError::NoState),
            }
        }
        postcard::from_bytes(&pieces).map_err(|error| RecordingError::State(error.to_string()))
    }
}

/// What was handed to a device or came from a client, and is not answered.
struct Asked {
    at: Nanos,
    tier: Tier,
    what: String,
}

struct Player {
    engine: Engine<RealArena>,
    now: Nanos,
    /// The newest token, by its number.
    newest: u32,
    in_flight: HashMap<Token, Asked>,
    asked: HashMap<u64, Asked>,
    report: Replayed,
}

impl Player {
    fn play<R: Read>(&mut self, reader: &mut Reader<'_, R>) -> std::io::Result<()> {
        while let Some((kind, bytes)) = reader.frame()? {
            // How it was later on is known by then; but tokens are counted anew from there.
            if kind != Kind::Calls {
                self.newest = 0;
                continue;
            }
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let Ok((item, behind)) = postcard::take_from_bytes::<Item>(rest) else {
                    reader.torn = true;
                    return Ok(());
                };
                rest = self.with_sums(behind);
                self.report.items += 1;
                let panics =
                    matches!(postcard::take_from_bytes(rest), Ok((Item::Panicked { asked: false }, _)));
                if !self.step(item, panics) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Tells the arena what the next call will ask for, where that comes next; what comes behind it.
    fn with_sums<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        match postcard::take_from_bytes::<Item>(bytes) {
            Ok((Item::Sums(sums), behind)) => {
                let sums = sums.into_iter().map(u32::from_le_bytes);
                self.engine.with_arena(|arena| arena.tell_sums(sums));
                behind
            }
            _ => bytes,
        }
    }
}

impl Player {
    /// Does one call; whether the engine did what was recorded.
    fn step(&mut self, item: Item, panics: bool) -> bool {
        let same = match item {
            Item::Later(ns) => {
                self.now = Nanos(self.now.0.wrapping_add(ns as u64));
                self.report.to = self.report.to.max(self.now);
                return true;
            }
            Item::Sums(sums) => {
                self.engine.with_arena(|arena| arena.tell_sums(sums.into_iter().map(u32::from_le_bytes)));
                return true;
            }
            Item::Read { start, bytes } => return self.was_read(start, &bytes),
            Item::Panicked { asked } => return self.panics(asked),
            _ if panics => {
                let call = catch_unwind(AssertUnwindSafe(|| self.call(item, true)));
                self.report.panicked = call.is_err();
                call.is_ok_and(|same| same)
                    || self.report.panicked
                    || self.differs("a panic of the engine".to_owned(), "none".to_owned())
            }
            item => self.call(item, false),
        };
        let told_out = self.engine.with_arena(|arena| arena.is_told_out());
        if same && !told_out && !self.report.panicked {
            let recorded = "other checksums of payload are asked for".to_owned();
            return self.differs(recorded, "more or fewer of them".to_owned());
        }
        same
    }

    /// Makes a call. One that is to panic may be an answer to what was never asked.
    fn call(&mut self, item: Item, panics: bool) -> bool {
        let now = self.now;
        match item {
            Item::Nothing => match self.engine.next_action(now) {
                None => true,
                Some(action) => {
                    let done = self.engine.with_arena(|arena| Did::new(&action, arena)).words();
                    self.differs("that it wants nothing".to_owned(), done)
                }
            },
            Item::Did(did) => self.does(&did),
            Item::Completion { place, before, result } => {
                let generation = u64::from(self.newest.wrapping_sub(before));
                let token = Token(generation << 32 | u64::from(place));
                self.report.completions += 1;
                self.report.errors += u64::from(result.is_err());
                if panics || self.engine.awaits(token) {
                    self.ended(token);
                    self.engine.on_completion(now, token, result);
                    true
                } else {
                    self.differs("an answer of a device".to_owned(), "nothing that it answers".to_owned())
                }
            }
            Item::Timer => {
                self.engine.on_timer(now);
                true
            }
            Item::Request { id, kind, offset, len, buf } => {
                self.report.requests += 1;
                let what = format!("request {id}, a {kind:?} of {len} bytes at byte {offset}").to_lowercase();
                self.asked.insert(id, Asked { at: now, tier: FAST, what });
                let buf = buf.map(|(start, len)| Buf { start, len });
                self.engine.on_request(now, Request { id: RequestId(id), kind, offset, len, buf });
                true
            }
            Item::Rare(rare) => {
                self.rare(rare);
                true
            }
            Item::Events(recorded) => self.tells(recorded),
            Item::Later(_) | Item::Sums(_) | Item::Read { .. } | Item::Panicked { .. } => true,
        }
    }

    fn rare(&mut self, rare: Rare) {
        let (engine, now) = (&mut self.engine, self.now);
        match rare {
            Rare::PreferFast { offset, len } => engine.prefer_fast(now, offset, len),
            Rare::Shutdown => engine.begin_shutdown(now),
            // What they answer follows from what was recorded, and shows in what is done next.
            Rare::Pin { offset, len, tier } => drop(engine.begin_pin(now, offset, len, tier)),
            Rare::PinAnswer => drop(engine.take_pin_answer()),
            Rare::BeginScrub => drop(engine.begin_scrub(now)),
            Rare::StopScrub => drop(engine.stop_scrub(now)),
            Rare::PauseMoves { paused } => engine.pause_moves(now, paused),
            Rare::Why { offset } => drop(engine.why(now, offset)),
            Rare::RefuseChanges(why) => engine.refuse_changes(why),
            Rare::OutliveKills => engine.outlive_kills(),
            Rare::DeviceReplaced { tier, id, name } => engine.device_replaced(tier, id, name),
            Rare::ReadElsewhere { tier, is } => engine.is_read_elsewhere(tier, is),
        }
    }

    /// Asks the engine what to do, and compares.
    fn does(&mut self, recorded: &Did) -> bool {
        let Some(action) = self.engine.next_action(self.now) else {
            return self.differs(recorded.words(), "nothing".to_owned());
        };
        let done = self.engine.with_arena(|arena| Did::new(&action, arena));
        if done != *recorded {
            let (was, is) = (recorded.words(), done.words());
            let is = if was == is { format!("{is}, with another token, buffer or metadata") } else { is };
            return self.differs(was, is);
        }
        self.report.actions += 1;
        if let Some(token) = token(&action) {
            self.newest = number(token);
        }
        self.begun(&action, &done);
        true
    }

    fn begun(&mut self, action: &Action, did: &Did) {
        let tier = match *action {
            Action::Read { device, .. }
            | Action::Write { device, .. }
            | Action::Flush { device, .. }
            | Action::Discard { device, .. } => device,
            Action::Reply { id, .. } => {
                self.report.replies += 1;
                if let Some(asked) = self.asked.remove(&id.0) {
                    note(&mut self.report.longest, &asked, self.now, true);
                }
                return;
            }
        };
        if let Some(token) = token(action) {
            self.in_flight.insert(token, Asked { at: self.now, tier, what: did.words() });
        }
    }

    fn ended(&mut self, token: Token) {
        if let Some(asked) = self.in_flight.remove(&token) {
            note(&mut self.report.slowest[asked.tier], &asked, self.now, true);
        }
    }

    fn tells(&mut self, recorded: Vec<Event>) -> bool {
        let told = self.engine.take_events();
        if told != recorded {
            let words = |events: &[Event]| {
                let all: Vec<&str> = events.iter().map(|event| event.message.as_str()).collect();
                format!("the events {all:?}")
            };
            return self.differs(words(&recorded), words(&told));
        }
        let at = self.now;
        self.report.events.extend(told.into_iter().map(|event| Told { at, event }));
        true
    }

    /// Metadata comes to a buffer.
    fn was_read(&mut self, start: u64, bytes: &[u8]) -> bool {
        self.report.metadata_bytes += bytes.len() as u64;
        let fits = u32::try_from(bytes.len()).is_ok_and(|len| len <= MAX_FRAME_BYTES);
        let buf = Buf { start, len: bytes.len() as u32 };
        let taken = self.engine.with_arena(|arena| {
            let fits = fits && arena.is_metadata(buf);
            if fits {
                arena.bytes_mut(buf).copy_from_slice(bytes);
            }
            fits
        });
        taken || self.differs("metadata that was read".to_owned(), "no buffer for it".to_owned())
    }

    fn panics(&mut self, asked: bool) -> bool {
        if asked && !self.report.panicked {
            let now = self.now;
            let call = catch_unwind(AssertUnwindSafe(|| self.engine.next_action(now)));
            self.report.panicked = call.is_err();
        }
        self.report.panicked || self.differs("a panic of the engine".to_owned(), "none".to_owned())
    }

    fn differs(&mut self, recorded: String, done: String) -> bool {
        let (item, at) = (self.report.items, self.now);
        self.report.difference.get_or_insert(Difference { item, at, recorded, done });
        false
    }

    /// What was not answered at the end took until then.
    fn finish(mut self) -> Replayed {
        let to = self.now;
        for asked in self.in_flight.values() {
            note(&mut self.report.slowest[asked.tier], asked, to, false);
        }
        for asked in self.asked.values() {
            note(&mut self.report.longest, asked, to, false);
        }
        self.report
    }
}

fn note(longest: &mut Option<Longest>, asked: &Asked, now: Nanos, answered: bool) {
    let took_ns = now.since(asked.at);
    // Among equals the one that comes first by its words: maps have no order.
    let before = longest.as_ref().map(|longest| (longest.took_ns, &longest.what));
    if before.is_none_or(|(ns, what)| took_ns > ns || took_ns == ns && asked.what < *what) {
        *longest = Some(Longest { at: asked.at, what: asked.what.clone(), took_ns, answered });
    }
}
