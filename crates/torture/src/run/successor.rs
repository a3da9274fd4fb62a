//! Devices take one another's place: begun amid load, gone on with after crashes, cancelled, done without. What stands for the volume
//! file says which one is to, and the devices say which one has.

use super::*;
use crate::plan::Successor;
use bimetal_engine::format::Id;
use bimetal_engine::format::geometry::Geometry;
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_replace::{Header, Pace, Replacement, Standing};
use bimetal_units::{Generation, Tier};

/// The generator's number.
const SUCCESSION: u64 = 0x7375_6363;
/// A volume here is small: so is what is copied at once.
const PACE: Pace = Pace { piece_bytes: 64 << 10, region_bytes: 64 << 10, rest_times: 2 };

/// What stands for the volume file.
pub(super) struct Succession {
    rng: Rng,
    /// Whose place is to be taken, how, and where superblocks are.
    named: Option<(Successor, Geometry)>,
    /// One is to begin in this life.
    pub(super) wanted: Option<Successor>,
    /// It was settled that the one that is there is done without.
    settled: bool,
    /// Nobody knows whose place it is.
    torn: bool,
    count: u8,
    /// By tier, the device whose place was taken last.
    retired: [Option<Disk>; 2],
    left_bytes: u64,
}

impl Succession {
    pub(super) fn new(seed: u64) -> Succession {
        let rng = Rng::new(seed, SUCCESSION);
        Succession {
            rng,
            named: None,
            wanted: None,
            settled: false,
            torn: false,
            count: 0,
            retired: [None, None],
            left_bytes: 0,
        }
    }

    fn forget(&mut self) {
        (self.named, self.settled) = (None, true);
    }
}

impl Run<'_> {
    /// Whether a device is on its way to another's place.
    pub(super) fn is_replacing(&self) -> bool {
        self.succession.named.is_some()
    }

    /// Between two openings: the devices say who has which place.
    pub(super) fn settle_places(&mut self) {
        let Some((successor, geometry)) = self.succession.named.clone() else {
            self.world.disks.truncate(2);
            return;
        };
        let tier = successor.tier;
        let [place, other] = [usize::from(tier.0), 1 - usize::from(tier.0)];
        let new = self.superblock(2, tier, &geometry);
        let others = self.superblock(other, Tier(other as u8), &geometry);
        if new.as_ref().zip(others.as_ref()).is_some_and(|(new, other)| new.devices == other.devices) {
            self.world.disks.swap_remove(place);
            self.succession.named = None;
            self.stats.count("found-in-its-place");
        }
    }

    /// Nobody goes on with the one that is on its way.
    pub(super) fn forget_successor(&mut self) {
        self.settle_places();
        self.succession.named = None;
        self.world.disks.truncate(2);
    }

    /// Before the volume is opened: one that has no place yet has its part in what is written.
    pub(super) fn join_successor(&mut self) {
        self.settle_places();
        (self.succession.settled, self.succession.torn) = (false, false);
        let Some((successor, geometry)) = self.succession.named.clone() else { return };
        let tier = successor.tier;
        let place = usize::from(tier.0);
        let Some(old) = self.superblock(place, tier, &geometry) else { return };
        let id = self.successor_id();
        let plan = replace_plan(&old, &geometry, id);
        let is_its = |header: &Header| {
            header.volume == old.volume && header.tier == tier && header.old == old.devices[place]
        };
        let header = |at: u64| Header::decode(&self.block(2, at)?);
        let newest =
            plan.own.into_iter().filter_map(header).filter(is_its).max_by_key(|header| header.number);
        let resumed = newest.and_then(|header| {
            Replacement::resume(bimetal_replace::Plan { new: header.new, ..plan.clone() }, &header)
        });
        self.stats.count(if resumed.is_some() { "copy-goes-on" } else { "copy-begins-anew" });
        let replacement = resumed.unwrap_or_else(|| self.copy_from_nothing(plan));
        self.begin_copying(replacement, &successor);
    }

    fn begin_copying(&mut self, mut replacement: Replacement, successor: &Successor) {
        self.succession.left_bytes = 0;
        if successor.leaves_unreadable {
            replacement.leave_unreadable();
        }
        self.world.begin_replacement(replacement);
    }

    fn copy_from_nothing(&mut self, plan: bimetal_replace::Plan) -> Replacement {
        let places = plan.own.map(|at| at / PAGE);
        places.into_iter().for_each(|page| self.world.disks[2].put_back(page, &[0; PAGE_BYTES]));
        Replacement::begin(plan)
    }

    fn successor_id(&mut self) -> Id {
        std::array::from_fn(|_| self.succession.rng.next_u64() as u8)
    }

    fn block(&self, device: usize, at: u64) -> Option<Vec<u8>> {
        let mut block = vec![0; PAGE_BYTES];
        self.world.disks[device].read(at, &mut block).ok().map(|()| block)
    }

    /// The newest superblock that a device has as one of this volume's.
    fn superblock(&self, device: usize, tier: Tier, geometry: &Geometry) -> Option<Superblock> {
        // Of two that are equal the first one counts.
        let found = own(tier, geometry).map(|at| match Superblock::decode(&self.block(device, at)?, at) {
            Found::Valid(superblock) => Some(*superblock),
            _ => None,
        });
        let is_its = |it: &Superblock| it.volume == self.volume_id() && it.tier == tier;
        found.into_iter().rev().flatten().filter(is_its).max_by_key(|superblock| superblock.generation)
    }

    /// The volume is open.
    pub(super) fn successor_goes_on(&mut self, generation: u64) {
        if let Some(replacement) = self.world.replacement() {
            replacement.opened(Generation(generation));
            replacement.copy(true);
        }
    }

    /// Takes the next step of a replacement, where there is one, or begins one if it is time. Whether there is more to do.
    pub(super) fn look_after_successor(
        &mut self,
        engine: &mut Engine<SimArena>,
        answered: u64,
    ) -> Result<bool, String> {
        let now = self.world.now();
        let Some(progress) = self.world.replacement().map(|replacement| replacement.progress()) else {
            return Ok(self.may_begin_successor(engine, answered));
        };
        let drawn = self.succession.named.as_ref().map(|(successor, _)| *successor);
        if std::mem::replace(&mut self.succession.left_bytes, progress.left_bytes) < progress.left_bytes {
            self.stats.count("left-out");
            self.damaged = true;
            self.fresh.clear();
        }
        match progress.standing {
            Standing::Copying => {
                let cancel = drawn.is_some_and(|drawn| self.succession.rng.one_in(drawn.cancel_one_in));
                let cancelled = cancel && self.world.replacement().is_some_and(Replacement::cancel);
                if cancelled {
                    self.stats.count("copy-cancelled");
                }
                return Ok(cancelled);
            }
            Standing::Whole => {
                let takes_over =
                    drawn.is_some_and(|drawn| self.succession.rng.one_in(drawn.takes_over_one_in));
                let superblocks = engine.superblocks().filter(|_| takes_over);
                if let Some((superblocks, replacement)) = superblocks.zip(self.world.replacement()) {
                    replacement.begin_takeover(superblocks, now);
                    return Ok(replacement.progress().standing == Standing::TakingOver);
                }
                return Ok(false);
            }
            Standing::TakingOver => return Ok(false),
            Standing::TakenOver => {
                let new = self.world.replacement().map(|replacement| replacement.plan().new);
                self.succession.retired[usize::from(progress.tier.0)] = self.world.take_over()?;
                let name = NAMES[usize::from(progress.tier.0)].to_owned();
                new.into_iter().for_each(|new| engine.device_replaced(progress.tier, new, name.clone()));
                self.succession.named = None;
                self.stats.count("took-its-place");
            }
            Standing::Failed(_) if !self.succession.settled => {
                self.succession.forget();
                self.world.replacement().into_iter().for_each(Replacement::settle);
            }
            Standing::Failed(_) => {
                let is_over = self.world.replacement().is_some_and(|replacement| replacement.is_over());
                if is_over {
                    self.world.drop_successor();
                    self.succession.settled = false;
                    self.stats.count("done-without");
                }
                return Ok(is_over);
            }
            Standing::Torn(why) => {
                if !std::mem::replace(&mut self.succession.torn, true) {
                    engine.refuse_changes(format!("the new device failed ({why}) when it took over"));
                    self.stats.count("successor-torn");
                    return Ok(true);
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same in a task: where it fails it is done without.
    pub(super) fn settle_successor(&mut self) {
        if let Some(replacement) = self.world.replacement()
            && matches!(replacement.progress().standing, Standing::Failed(_))
            && !replacement.is_settled()
        {
            replacement.settle();
            self.succession.forget();
        }
    }

    fn may_begin_successor(&mut self, engine: &Engine<SimArena>, answered: u64) -> bool {
        let Some(wanted) = self.succession.wanted.filter(|wanted| answered >= u64::from(wanted.after)) else {
            return false;
        };
        let Some(superblocks) = engine.superblocks().filter(|_| self.world.disks.len() == 2) else {
            return false;
        };
        let place = usize::from(wanted.tier.0);
        self.succession.wanted = None;
        self.succession.count += 1;
        let salt = self.plan.seed ^ (u64::from(self.succession.count) << 32);
        let retired = self.succession.retired[place].take().filter(|_| wanted.was_here);
        if retired.is_some() {
            self.stats.count("was-here");
        }
        let new = || Disk::new(self.world.disks[place].size_bytes(), salt);
        let disk = retired.unwrap_or_else(new);
        self.world.disks.push(disk);
        let old = &superblocks[place];
        let geometry = old.geometry.clone();
        let id = self.successor_id();
        let replacement = self.copy_from_nothing(replace_plan(old, &geometry, id));
        self.succession.named = Some((wanted, geometry));
        self.begin_copying(replacement, &wanted);
        self.world.replacement().into_iter().for_each(|replacement| replacement.copy(true));
        self.stats.count("copy-begun");
        true
    }
}

/// Where a device has its own superblocks.
fn own(tier: Tier, geometry: &Geometry) -> [u64; 2] {
    [0, geometry.second_superblock_at(tier)]
}

fn replace_plan(old: &Superblock, geometry: &Geometry, new: Id) -> bimetal_replace::Plan {
    let place = usize::from(old.tier.0);
    bimetal_replace::Plan {
        volume: old.volume,
        tier: old.tier,
        old: old.devices[place],
        new,
        bytes: geometry.device_bytes[place],
        own: own(old.tier, geometry),
        generation: old.generation,
        pace: PACE,
    }
}
