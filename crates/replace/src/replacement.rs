//! What is asked of the old device and answered by both.

use crate::bugs::{Bug, planted};
use crate::copying::Copying;
use crate::header::Header;
use crate::plan::{Before, Plan, Progress, Standing};
use crate::regions::Regions;
use crate::takeover::Takeover;
use bimetal_engine::Machine;
use bimetal_engine::action::{Action, BufList, Class, DeviceError, Token};
use bimetal_engine::arena::{Arena, Buf, Pool};
use bimetal_engine::format::superblock::Superblock;
use bimetal_units::{BLOCK_BYTES, Generation, Nanos, SLOW, Tier};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// What the successor is called until it has taken the other's place.
pub const SUCCESSOR: Tier = Tier(2);
/// Marks the tokens that are not the machine's.
const OWN: u64 = 1 << 63;
/// Linux's EIO.
const EIO: i32 = 5;
/// How often the successor is told how far it is.
const HEADER_EVERY_NS: u64 = 2 * Nanos::SECOND;
/// Who is to settle that it is done without is called so often.
const SETTLE_NS: u64 = Nanos::SECOND / 10;
/// A successor that does not answer for so long is done without.
const PATIENCE_NS: u64 = 30 * Nanos::SECOND;

/// Something that the machine asked of the old device.
struct Op {
    range: Range<u64>,
    is_write: bool,
    is_flush: bool,
    /// A flush of the device failed meanwhile, which said so to somebody else.
    failed_already: Option<DeviceError>,
    /// Both were asked.
    on_both: bool,
    /// Where a read was to go, until it was tried elsewhere.
    read: Option<(Buf, Class)>,
    /// Answers that are still to come.
    waits: u32,
    result: Result<(), DeviceError>,
}

/// What an answer with a token of ours is to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Own {
    /// The same as was asked of the old device, by this token.
    Twin(u64),
    /// A piece, by its first byte.
    Piece(u64),
    /// A flush before a header.
    HeaderFlush,
    /// A header.
    Header,
    /// A step of the takeover.
    Takeover,
}

/// What becomes of the header.
#[derive(Debug)]
enum Writing {
    No,
    /// Flushes are waited for, which began then; it will claim so much.
    Flushing {
        waits: u32,
        began: Nanos,
        low: u64,
        ok: bool,
    },
    /// It is being written.
    Header(Buf),
}

/// A device that takes another's place, between a machine and its driver.
pub struct Replacement {
    pub(crate) plan: Plan,
    pub(crate) copying: Copying,
    regions: Regions,
    ops: BTreeMap<u64, Op>,
    own: BTreeMap<u64, (Own, Tier, Nanos)>,
    next_token: u64,
    /// Writes that wait for a piece or for a header.
    held: VecDeque<Action>,
    pub(crate) out: VecDeque<Action>,
    /// A flush of the old device has failed that the machine does not know of: the device may have forgotten what was written,
    /// and says so once.
    flush_failed: Option<DeviceError>,
    /// The same of the other device, and the flushes of it that are on their way; those that were when it failed fail, whatever it says.
    other_failed: Option<DeviceError>,
    other_flushes: BTreeMap<u64, Option<DeviceError>>,
    /// It has failed one: what was written before may be lost whatever a later one says, so that no header claims more, or closes
    /// a region, until the volume is opened again.
    doubts_old: bool,
    /// The old device has failed to read something, and has read nothing since: what the successor reads says nothing of it. And what
    /// the machine knows of that.
    old_reads_nothing: bool,
    told_of_old: bool,
    /// What the machine is to be told beside the answers as they come.
    told: VecDeque<(Token, Result<(), DeviceError>)>,
    now: Nanos,
    writing: Writing,
    /// A header is to be written, whatever has been copied.
    header_due: bool,
    header_at: Nanos,
    /// Which of its superblocks shows that the old device reads anything: where one could not be read it is the other.
    pub(crate) probes_second: bool,
    /// What the newest header claims to be copied.
    claimed: u64,
    /// Of the newest header.
    number: u64,
    /// The successor may be the volume's already: its first superblock stays.
    pub(crate) keeps_first: bool,
    pub(crate) takeover: Takeover,
    /// Of a step that was given up: what it asked for is not answered yet.
    pub(crate) given_up: Option<Buf>,
    /// Of both devices, as they will be.
    pub(crate) superblocks: Option<[Superblock; 2]>,
    /// The takeover is not tried before.
    pub(crate) not_before: Nanos,
    failure: Option<String>,
    is_settled: bool,
}

impl Replacement {
    /// From nothing.
    pub fn begin(plan: Plan) -> Replacement {
        let regions = Regions::new(plan.bytes, plan.pace.region_bytes);
        let copying = Copying::new(&plan, 0, Vec::new());
        Replacement {
            plan,
            copying,
            regions,
            ops: BTreeMap::new(),
            own: BTreeMap::new(),
            next_token: 0,
            held: VecDeque::new(),
            out: VecDeque::new(),
            flush_failed: None,
            other_failed: None,
            other_flushes: BTreeMap::new(),
            doubts_old: false,
            old_reads_nothing: false,
            told_of_old: false,
            told: VecDeque::new(),
            now: Nanos(0),
            writing: Writing::No,
            header_due: true,
            header_at: Nanos(0),
            probes_second: false,
            claimed: 0,
            number: 0,
            keeps_first: false,
            takeover: Takeover::No,
            given_up: None,
            superblocks: None,
            not_before: Nanos(0),
            failure: None,
            is_settled: false,
        }
    }

    /// Goes on where a header says, if it is of this successor and nothing was written past it since.
    pub fn resume(plan: Plan, header: &Header) -> Option<Replacement> {
        let fits = header.volume == plan.volume
            && (header.old, header.new, header.tier) == (plan.old, plan.new, plan.tier)
            && header.bytes == plan.bytes
            && (header.generation == plan.generation || planted(Bug::OtherOpeningBelieved));
        if !fits {
            return None;
        }
        let regions = Regions::of(plan.bytes, header.region_bytes, &header.open);
        let again = if planted(Bug::OpenNotCopied) { Vec::new() } else { regions.open().collect() };
        let copying = Copying::new(&plan, header.copied_bytes, again);
        let (claimed, number) = (header.copied_bytes, header.number);
        Some(Replacement { copying, regions, claimed, number, ..Replacement::begin(plan) })
    }

    /// The volume was opened under this generation: what is written from now on is of that.
    pub fn opened(&mut self, generation: Generation) {
        self.header_due |= self.plan.generation != generation;
        // Who opened it is not who uses it.
        self.told_of_old = false;
        self.plan.generation = generation;
    }

    /// A device was asked for this before, and has not answered. Nothing is copied of what may be changed by it until it has, as nobody
    /// knows what that would be.
    pub fn is_under_way(&mut self, device: Tier, token: Token, before: Before) {
        if device != self.plan.tier {
            if before == Before::Flushes {
                self.other_flushes.insert(token.0, None);
            }
            return;
        }
        let changes = before == Before::Changes;
        let range = if changes && !planted(Bug::BegunAmidWrites) { 0..self.plan.bytes } else { 0..0 };
        let is_flush = before == Before::Flushes;
        self.track(token, range, Op { is_write: changes, is_flush, ..Op::other() });
    }

    /// Copies from now on, or begins nothing new.
    pub fn copy(&mut self, on: bool) {
        self.copying.halted = !on || self.failure.is_some();
    }

    /// What the old device cannot read is left out from now on, once that is certain: it cannot be read from the successor either, which
    /// takes over without it. Gives whether that is so: each block of a slow device is held against a checksum by whoever reads it; of
    /// those of a fast one not all are, and what they are held against may be lost in a crash.
    pub fn leave_unreadable(&mut self) -> bool {
        let may = self.plan.tier == SLOW;
        if may {
            self.copying.leave_bad();
        }
        may
    }

    /// What it does.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        let standing = match (&self.failure, &self.takeover) {
            (Some(why), _) if self.is_torn() => Standing::Torn(why.clone()),
            (Some(why), _) => Standing::Failed(why.clone()),
            (None, Takeover::Done) => Standing::TakenOver,
            (None, Takeover::No) if self.copying.is_whole() => Standing::Whole,
            (None, Takeover::No) => Standing::Copying,
            (None, _) => Standing::TakingOver,
        };
        Progress {
            standing,
            tier: self.plan.tier,
            copied_bytes: self.copying.done_bytes(),
            of_bytes: self.plan.bytes,
            unreadable_bytes: self.copying.bad_blocks() * u64::from(BLOCK_BYTES),
            leaves_unreadable: self.copying.leaves_bad(),
            left_bytes: self.copying.left_blocks() * u64::from(BLOCK_BYTES),
        }
    }

    /// Does without the successor from now on. Nothing more is written to the old device until that is settled, since what the
    /// successor says of itself would no longer be true.
    pub fn fail(&mut self, why: String) {
        if self.failure.is_none() && self.takeover != Takeover::Done {
            self.failure = Some(why);
            self.copying.halted = true;
            self.give_up_takeover();
            if self.keeps_first && !planted(Bug::TwinIgnored) {
                // Either may be the volume's: what both were asked for and one has failed, or a flush of it may have, is not done.
                let both = self.ops.values_mut().filter(|op| op.on_both);
                both.for_each(|op| op.failed_already = Some(DeviceError { errno: EIO }));
            }
        }
    }

    /// Does without the successor because somebody wishes it; gives whether it could. Once the other device may name the successor
    /// there is no way back: it would leave a volume of which nobody knows the device.
    pub fn cancel(&mut self) -> bool {
        let may = self.failure.is_none() && self.takeover == Takeover::No;
        let may = may && (!self.keeps_first || planted(Bug::CancelledLate));
        if may {
            self.fail("cancelled".to_owned());
        }
        may
    }

    /// Nobody will go on with this successor, whatever it says of itself.
    pub fn settle(&mut self) {
        self.is_settled = self.failure.is_some() && !self.is_torn();
    }

    /// Whether that is so.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Whether writes are refused, as nobody knows which device is the volume's.
    fn is_torn(&self) -> bool {
        self.failure.is_some() && self.keeps_first && !planted(Bug::TornWritten)
    }

    /// Whether nothing is left that needs it, after a failure.
    pub fn is_over(&self) -> bool {
        let is_empty =
            self.own.is_empty() && self.held.is_empty() && self.out.is_empty() && self.told.is_empty();
        // A flush that has failed is told first.
        let is_told = self.flush_failed.is_none()
            && self.other_failed.is_none()
            && self.other_flushes.values().all(Option::is_none)
            && self.ops.values().all(|op| op.failed_already.is_none());
        self.is_settled && is_empty && is_told
    }

    /// Nothing is taken from the machine: nor is it to be woken.
    fn takes_nothing(&self) -> bool {
        let unsettled = self.failure.is_some() && !self.is_settled && !self.is_torn();
        self.takeover != Takeover::No || unsettled && !planted(Bug::NotSettled)
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.ops.is_empty() && self.held.is_empty() && self.own.is_empty()
    }

    /// Whether an answer with this token is to something of ours, and not of the machine's.
    pub fn is_own(token: Token) -> bool {
        token.0 & OWN != 0
    }

    /// The next thing to do, of the machine's or of our own.
    pub fn next_action<M: Machine>(&mut self, machine: &mut M, now: Nanos) -> Option<Action> {
        self.now = now;
        self.tell_of_old(machine);
        // Not in the call that asks for it: who is answered at once believes that no device has anything to do.
        self.tell(machine, now);
        loop {
            self.work(now, machine);
            if let Some(action) = self.out.pop_front() {
                return Some(action);
            }
            if self.takes_nothing() {
                return None;
            }
            let action = machine.next_action(now)?;
            if let Some(action) = self.sort(action, now) {
                return Some(action);
            }
        }
    }

    fn tell_of_old<M: Machine>(&mut self, machine: &mut M) {
        let is = self.old_reads_nothing && self.failure.is_none() && !planted(Bug::ElsewhereIsEvidence);
        if std::mem::replace(&mut self.told_of_old, is) != is {
            machine.is_read_elsewhere(self.plan.tier, is);
        }
    }

    fn tell<M: Machine>(&mut self, machine: &mut M, now: Nanos) {
        while let Some((token, result)) = self.told.pop_front() {
            machine.on_completion(now, token, result);
        }
    }

    /// A device answered.
    pub fn on_completion<M: Machine>(
        &mut self,
        machine: &mut M,
        now: Nanos,
        token: Token,
        result: Result<(), DeviceError>,
    ) {
        self.now = now;
        let of_machine = match token.0 & OWN {
            0 => Some(token.0),
            _ => machine.with_arena(|arena| self.own_done(now, token, result, arena)),
        };
        let Some(of_machine) = of_machine else { return };
        let Some(op) = self.ops.get_mut(&of_machine) else {
            // What was asked of the other device; a twin that came too late is nobody's any more.
            if token.0 & OWN == 0 {
                let failed = self.other_flushes.remove(&token.0).flatten();
                machine.on_completion(now, token, failed.map_or(result, Err));
            }
            return;
        };
        op.waits -= 1;
        // Others are answered before this one is, where the successor is late: they are not to be believed.
        let is_doubt = |error: &DeviceError| {
            op.is_flush && !planted(Bug::FailureToldLate) || away(Err(*error)).is_some()
        };
        let failed = result.err().filter(|error| token.0 & OWN == 0 && is_doubt(error));
        if token.0 & OWN == 0 {
            if op.read.is_some() {
                self.old_reads_nothing = result.is_err();
            }
            op.result = result;
            let elsewhere = result.is_err() && self.failure.is_none();
            if let Some((buf, class)) = op.read.take().filter(|_| elsewhere)
                && self.copying.is_copied(&op.range)
            {
                op.waits += 1;
                let (offset, token) = (op.range.start, of_machine);
                self.ask_new(Own::Twin(token), now, |token| Action::Read {
                    device: SUCCESSOR,
                    offset,
                    buf,
                    token,
                    class,
                });
            }
        } else if !op.is_write && !op.range.is_empty() {
            op.result = result;
        }
        if let Some(error) = failed {
            self.flush_failed(error);
        }
        self.tell_of_old(machine);
        self.end_if_answered(of_machine, now);
        self.tell(machine, now);
    }

    /// When to call again at the latest.
    pub fn deadline(&self) -> Option<Nanos> {
        if !self.told.is_empty() {
            return Some(self.now);
        }
        if self.failure.is_some() && !self.is_settled && !self.is_torn() {
            // Whoever serves the volume is to look.
            return Some(self.now.after(SETTLE_NS));
        }
        let may_write =
            self.failure.is_none() && self.takeover == Takeover::No && matches!(self.writing, Writing::No);
        let wants =
            may_write && !self.doubts_old && (self.regions.any_open() || self.copying.low() != self.claimed);
        let header = wants.then_some(self.header_at);
        let twin = self.failure.is_none().then(|| self.oldest()).flatten();
        let twin = twin.map(|since| Nanos(since.0 + PATIENCE_NS));
        [header, twin, self.copying.deadline()].into_iter().flatten().min()
    }

    /// The same with when those behind it are to be asked, unless nobody would ask them.
    pub fn deadline_with(&self, others: Option<Nanos>) -> Option<Nanos> {
        let others = others.filter(|_| !self.takes_nothing());
        [self.deadline(), others].into_iter().flatten().min()
    }

    /// Whether it is done without.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether something that the machine writes to a range is on its way.
    pub(crate) fn is_being_written(&self, range: &Range<u64>) -> bool {
        let within = |op: &Op| op.range.start < range.end && range.start < op.range.end;
        self.ops.values().any(|op| op.is_write && within(op))
    }

    /// The old device has read something.
    pub(crate) fn old_has_read(&mut self) {
        self.old_reads_nothing = false;
    }

    /// When the oldest of what the successor has not answered was asked of it: tokens are in the order of time.
    fn oldest(&self) -> Option<Nanos> {
        self.own.values().find(|(_, device, _)| *device == SUCCESSOR).map(|(.., since)| *since)
    }

    /// Asks the successor for something of our own.
    pub(crate) fn ask_new(&mut self, own: Own, now: Nanos, action: impl FnOnce(Token) -> Action) {
        self.ask(own, SUCCESSOR, now, action);
    }

    /// Asks a device for something of our own.
    pub(crate) fn ask(&mut self, own: Own, device: Tier, now: Nanos, action: impl FnOnce(Token) -> Action) {
        self.next_token += 1;
        let token = OWN | self.next_token;
        self.own.insert(token, (own, device, now));
        self.out.push_back(action(Token(token)));
    }

    /// What is to be done with an action of the machine: at once, or `None`: later.
    fn sort(&mut self, action: Action, now: Nanos) -> Option<Action> {
        let (device, class) = match &action {
            Action::Read { device, class, .. } | Action::Write { device, class, .. } => (*device, *class),
            Action::Flush { device, .. } | Action::Discard { device, .. } => (*device, Class::Background),
            Action::Reply { .. } => return Some(action),
        };
        if class != Class::Background {
            self.copying.client_asked(now);
        }
        if device != self.plan.tier {
            return self.sort_of_other(action);
        }
        match &action {
            Action::Read { offset, buf, token, class, .. } => {
                let range = *offset..*offset + u64::from(buf.len);
                self.track(*token, range, Op::reads(*buf, *class));
            }
            Action::Discard { offset, len, token, .. } => {
                self.track(*token, *offset..*offset + *len, Op::other());
            }
            Action::Write { token, .. } | Action::Flush { token, .. } if self.is_torn() => {
                self.told.push_back((*token, Err(DeviceError { errno: EIO })));
                return None;
            }
            Action::Flush { token, .. } if self.flush_failed.is_some() => {
                let error = self.flush_failed.take().map_or(Ok(()), Err);
                self.told.push_back((*token, error));
                return None;
            }
            Action::Flush { token, .. } => {
                // Until then nothing that only the successor holds is needed after a crash.
                let both = self.keeps_first && self.failure.is_none() && !planted(Bug::FlushOldAlone);
                let op = Op { is_flush: true, on_both: both, waits: 1 + u32::from(both), ..Op::other() };
                self.track(*token, 0..0, op);
                if both {
                    self.ask_new(Own::Twin(token.0), now, |token| Action::Flush { device: SUCCESSOR, token });
                }
            }
            Action::Write { .. } => return self.write(action, now),
            Action::Reply { .. } => {}
        }
        Some(action)
    }

    /// What is asked of the other device goes there; but for a flush, where one of ours has failed.
    fn sort_of_other(&mut self, action: Action) -> Option<Action> {
        if let Action::Flush { token, .. } = &action {
            if let Some(error) = self.other_failed.take() {
                self.told.push_back((*token, Err(error)));
                return None;
            }
            self.other_flushes.insert(token.0, None);
        }
        Some(action)
    }

    fn track(&mut self, token: Token, range: Range<u64>, op: Op) {
        assert!(token.0 & OWN == 0, "the machine's tokens are below ours");
        let before = self.ops.insert(token.0, Op { range, ..op });
        assert!(before.is_none(), "a token is in use once");
    }

    /// A write of the machine to the old device.
    fn write(&mut self, action: Action, now: Nanos) -> Option<Action> {
        let Action::Write { offset, bufs, fua, token, class, .. } = &action else { return Some(action) };
        let range = *offset..*offset + bufs.iter().map(|buf| u64::from(buf.len)).sum::<u64>();
        let alone = self.failure.is_some() || self.copying.is_own(&range) || self.copying.is_ahead(&range);
        let fenced = self.copying.is_in_piece(&range) && !planted(Bug::PieceNotFenced);
        if fenced || !alone && !self.regions.admits(&range) && !planted(Bug::RegionNotOpened) {
            self.held.push_back(action);
            return None;
        }
        let both = !alone && !planted(Bug::OldAlone);
        let op = Op { is_write: true, on_both: both, waits: 1 + u32::from(both), ..Op::other() };
        self.track(*token, range.clone(), op);
        if both {
            self.regions.begin(&range, now);
            let (offset, bufs, fua, class): (_, BufList, _, _) =
                (*offset, bufs.clone(), *fua && self.keeps_first, *class);
            self.ask_new(Own::Twin(token.0), now, |token| Action::Write {
                device: SUCCESSOR,
                offset,
                bufs,
                fua,
                token,
                class,
            });
        }
        Some(action)
    }

    /// What was asked of the old device ends when all have answered.
    fn end_if_answered(&mut self, token: u64, now: Nanos) {
        if self.ops.get(&token).is_none_or(|op| op.waits > 0) {
            return;
        }
        let Some(op) = self.ops.remove(&token) else { return };
        if op.is_write && op.on_both {
            self.regions.end(&op.range, now);
            match op.result {
                Ok(()) => self.copying.written(&op.range),
                // Nobody knows what the old device has there now.
                Err(_) if planted(Bug::FailedWriteSame) => {}
                Err(_) => self.copying.differs(op.range),
            }
        }
        let result = op.failed_already.map_or(op.result, Err);
        if op.is_flush && result.is_err() {
            // Now the machine knows.
            self.flush_failed = None;
        }
        self.told.push_back((Token(token), result));
    }

    /// An answer to what we asked for. Gives the token of the machine's that it is a part of.
    fn own_done<A: Arena>(
        &mut self,
        now: Nanos,
        token: Token,
        result: Result<(), DeviceError>,
        arena: &mut A,
    ) -> Option<u64> {
        let (own, device, _) = self.own.remove(&token.0)?;
        if let Some(error) = away(result) {
            // The machine may have asked nothing of it meanwhile, and believe what it answers from now on.
            self.may_have_forgotten(device, error);
        }
        match own {
            Own::Twin(of) => {
                if self.ops.get(&of).is_some_and(|op| op.on_both) {
                    self.must(result);
                }
                return Some(of);
            }
            Own::Piece(start) => self.piece_done(start, now, result, arena),
            Own::HeaderFlush => {
                match (device, result) {
                    (SUCCESSOR, _) => self.must(result),
                    (_, Err(error)) if !planted(Bug::FlushErrorKept) => self.flush_failed(error),
                    _ => {}
                }
                if let Writing::Flushing { waits, ok, .. } = &mut self.writing {
                    *waits -= 1;
                    *ok &= result.is_ok();
                }
            }
            Own::Header => {
                if let Writing::Header(buf) = std::mem::replace(&mut self.writing, Writing::No) {
                    arena.free(buf);
                }
                self.must(result);
                self.regions.written();
            }
            Own::Takeover => {
                if let (Err(error), true) = (result, self.is_flushing_step()) {
                    self.may_have_forgotten(device, error);
                }
                self.takeover_done(now, result, arena);
            }
        }
        None
    }

    /// A device failed a flush of ours, or was away: it may have forgotten what it was told, and say so to nobody else.
    fn may_have_forgotten(&mut self, device: Tier, error: DeviceError) {
        if device == SUCCESSOR {
            self.must(Err(error));
        } else if device == self.plan.tier {
            self.flush_failed(error);
        } else if !planted(Bug::OtherFlushErrorKept) {
            self.other_failed = Some(error);
            self.other_flushes.values_mut().for_each(|failed| *failed = Some(error));
        }
    }

    /// Whether the other device has failed a flush that the machine does not know of.
    pub(crate) fn other_has_failed(&self) -> bool {
        self.other_failed.is_some()
    }

    /// The old device failed a flush: whoever of the machine waits for one hears of it, or who asks for one next.
    fn flush_failed(&mut self, error: DeviceError) {
        self.doubts_old |= !planted(Bug::OldBelievedAgain);
        self.flush_failed = Some(error);
        self.ops.values_mut().filter(|op| op.is_flush).for_each(|op| op.failed_already = Some(error));
    }

    /// What the successor cannot do ends it.
    pub(crate) fn must(&mut self, result: Result<(), DeviceError>) {
        if let Err(error) = result {
            self.fail(std::io::Error::from_raw_os_error(error.errno).to_string());
        }
    }

    /// Whatever can be done now.
    fn work<M: Machine>(&mut self, now: Nanos, machine: &mut M) {
        if self.failure.is_none() && self.oldest().is_some_and(|since| now.since(since) >= PATIENCE_NS) {
            self.fail(format!("it did not answer for {} s", PATIENCE_NS / Nanos::SECOND));
            // What it may still write of a buffer that is used for something else by then harms nobody, unless it is the volume's.
            if !self.keeps_first || planted(Bug::TornDoneWithout) {
                self.do_without(now);
            }
        }
        self.begin_pieces(now, machine);
        for _ in 0..self.held.len() {
            let Some(action) = self.held.pop_front() else { break };
            if let (true, Action::Write { token, .. }) = (self.is_torn(), &action) {
                self.told.push_back((*token, Err(DeviceError { errno: EIO })));
            } else if self.failure.is_some() && !self.is_settled {
                self.held.push_back(action);
            } else if let Some(action) = self.write(action, now) {
                self.out.push_back(action);
            }
        }
        if self.failure.is_none() {
            machine.with_arena(|arena| {
                // From the first step of the takeover on, superblocks take the places of headers.
                if matches!(self.takeover, Takeover::No | Takeover::Draining) {
                    self.work_on_header(now, arena);
                }
                self.work_on_takeover(now, arena);
            });
        }
    }

    /// The successor hangs: who waits for both waits for the old device alone.
    fn do_without(&mut self, now: Nanos) {
        let twins: Vec<u64> = self.ops.iter().filter(|(_, op)| op.on_both).map(|(token, _)| *token).collect();
        let mut late = Vec::new();
        for (token, (own, ..)) in &self.own {
            if let Own::Twin(of) = own
                && twins.contains(of)
            {
                late.push((*token, *of));
            }
        }
        for (token, of) in late {
            self.own.remove(&token);
            if let Some(op) = self.ops.get_mut(&of) {
                op.waits -= 1;
            }
            self.end_if_answered(of, now);
        }
    }

    /// Whether no header is on its way, and none is wanted.
    pub(crate) fn header_stands(&self) -> bool {
        matches!(self.writing, Writing::No) && !self.wants_header()
    }

    /// Whether somebody waits for a header.
    fn wants_header(&self) -> bool {
        self.regions.lacks() || self.header_due
    }

    /// Whether the newest header is in the second place.
    pub(crate) fn header_is_second(&self) -> bool {
        self.number % 2 == 1 || self.keeps_first && self.number > 0
    }

    fn work_on_header<A: Arena>(&mut self, now: Nanos, arena: &mut A) {
        match self.writing {
            Writing::No => {
                if self.wants_header() {
                    self.write_header(now, arena);
                } else if now >= self.header_at && self.takeover == Takeover::No {
                    self.header_at = Nanos(now.0 + HEADER_EVERY_NS);
                    self.begin_header(now);
                }
            }
            Writing::Flushing { waits: 0, began, low, ok } => {
                self.writing = Writing::No;
                let claims = ok && !self.doubts_old;
                if claims {
                    self.claimed = low;
                    self.regions.close(began);
                }
                // Who waits for a region has nobody else to call him.
                if claims || self.wants_header() {
                    self.write_header(now, arena);
                }
            }
            _ => {}
        }
    }

    /// Flushes what the next header is to claim.
    fn begin_header(&mut self, now: Nanos) {
        let (low, closes) = (self.copying.low(), self.regions.could_close(now));
        // What was read of the old device may have been in its cache alone.
        if self.doubts_old || low == self.claimed && !closes {
            return;
        }
        if planted(Bug::ClaimedUnflushed) {
            self.claimed = low;
            self.header_due = true;
            return;
        }
        let new = (!planted(Bug::ClosedUnflushed)).then_some(SUCCESSOR);
        let old = (closes || !planted(Bug::ClaimedFromCache)).then_some(self.plan.tier);
        let devices = [new, old];
        let waits = devices.iter().flatten().count() as u32;
        self.writing = Writing::Flushing { waits, began: now, low, ok: true };
        for device in devices.into_iter().flatten() {
            self.ask(Own::HeaderFlush, device, now, |token| Action::Flush { device, token });
        }
    }

    pub(crate) fn write_header<A: Arena>(&mut self, now: Nanos, arena: &mut A) {
        let Some(buf) = arena.alloc(Pool::CopyMeta, BLOCK_BYTES) else { return };
        self.header_due = false;
        self.number += 1;
        let Plan { volume, tier, old, new, bytes, generation, own, .. } = self.plan.clone();
        let (number, copied_bytes, region_bytes) = (self.number, self.claimed, self.regions.each());
        let open = self.regions.begin_writing();
        let header =
            Header { volume, old, new, tier, bytes, generation, number, copied_bytes, region_bytes, open };
        header.encode(arena.bytes_mut(buf));
        self.writing = Writing::Header(buf);
        let offset = own[usize::from(self.header_is_second())];
        self.ask_new(Own::Header, now, |token| Action::Write {
            device: SUCCESSOR,
            offset,
            bufs: BufList::from_elem(buf, 1),
            fua: true,
            token,
            class: Class::Background,
        });
    }
}

/// The error, if it says that the device was away: should it come back, it may have forgotten what it has not made durable.
fn away(result: Result<(), DeviceError>) -> Option<DeviceError> {
    result.err().filter(|error| error.is_away() && !planted(Bug::AbsenceIgnored))
}

impl Op {
    fn other() -> Op {
        Op {
            range: 0..0,
            is_write: false,
            is_flush: false,
            failed_already: None,
            on_both: false,
            read: None,
            waits: 1,
            result: Ok(()),
        }
    }

    fn reads(buf: Buf, class: Class) -> Op {
        Op { read: Some((buf, class)), ..Op::other() }
    }
}
