//! A protected volume. At each freeze it is kept what the model knew then: what the image of that freeze must hold. Before openings it
//! is looked at by the image alone, on a copy of the slow device whose power was cut; and now and then the fast device is lost for
//! good, the copy takes its place, with crashes on the way, and the volume goes on as it was at the freeze.

use super::lone::Look;
use super::*;
use crate::disk::IoId;
use bimetal_engine::action::DeviceError;
use bimetal_engine::format::Id;
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_protect::{
    Disk as ImageDisk, Image, Layout, NoImage, Protection, Reader, Salvage, StandInError, Standing, image,
    newest_header, scan, stand_in,
};
use bimetal_units::rng::mix;
use bimetal_units::{BLOCK_BYTES, FAST, SLOW, Tier};
use std::collections::BTreeMap;

/// The generator's number.
const IMAGE: u64 = 0x7361_7665;
const BLOCK: u64 = BLOCK_BYTES as u64;
/// Writes and flushes from one crash of the copy's taking place to the next, at most.
const STAND_IN_STEPS: u64 = 64;

/// What was known at a freeze.
struct Moment {
    model: Model,
    pins: PinKeeper,
}

/// What is known of a protected volume's images.
#[derive(Default)]
pub(super) struct Images {
    /// By the freeze's number: those of which an image may be found.
    moments: BTreeMap<u64, Moment>,
    /// Openings so far.
    openings: u64,
}

impl Run<'_> {
    /// Where the image of the volume is; none where it is not protected.
    pub(super) fn image_layout(&self) -> Option<Layout> {
        let g = self.plan.geometry;
        let protect = self.plan.protect?;
        let [fast_bytes, slow_bytes] =
            [g.fast_bytes, g.slow_bytes].map(|bytes| bytes.next_multiple_of(BLOCK));
        Some(Layout { fast_bytes, slow_bytes, ring_bytes: protect.ring_bytes })
    }

    /// From the opening that comes on an image is kept.
    pub(super) fn protect(&mut self) {
        let (Some(protect), Some(layout)) = (self.plan.protect, self.image_layout()) else { return };
        let [fast, slow] = [FAST, SLOW].map(|tier| superblock(self.disk(tier), tier, layout));
        let (Some(images), Some(fast), Some(mut slow)) = (&mut self.images, fast, slow) else { return };
        images.openings += 1;
        slow.generation = fast.generation_with(&slow);
        let fresh = mix(self.plan.seed ^ (self.volumes << 32) ^ images.openings);
        let plan = bimetal_protect::Plan {
            piece_bytes: protect.piece_bytes,
            region_blocks: protect.region_blocks,
            open_ahead: protect.open_ahead,
            ..bimetal_protect::Plan::new(&slow, layout, (protect.seconds, protect.strict), fresh)
        };
        let [fast, slow] = [FAST, SLOW].map(|tier| self.disk(tier));
        let newest = newest_header(&mut reader(slow), layout.headers(), plan.volume);
        let protection = Protection::open(plan, newest.as_ref(), &mut reader(fast), &mut reader(slow));
        self.world.protect(protection);
    }

    fn disk(&self, tier: Tier) -> &Disk {
        &self.world.disks[usize::from(tier.0)]
    }

    /// Keeps what is known now, if this is a freeze.
    pub(super) fn note_freeze(&mut self) {
        let Some(freeze) = self.world.new_freeze() else { return };
        let counts = self.world.protection().and_then(|protection| protection.progress().image);
        let Some(images) = &mut self.images else { return };
        images.moments.retain(|number, _| counts.is_none_or(|image| *number >= image.number));
        let moment = Moment { model: self.model.clone(), pins: self.pins.clone() };
        images.moments.insert(freeze, moment);
        self.stats.count("freeze");
    }

    /// Whether there will be no newer image: it has all, or there is none, and that is said.
    pub(super) fn image_rests(&self) -> bool {
        self.world.protection().is_none_or(|protection| {
            let progress = protection.progress();
            progress.is_current || matches!(progress.standing, Standing::Off { .. } | Standing::StandIn)
        })
    }

    /// Looks at the image alone, after a power cut: all of it can be read and is what the volume may have held at its freeze. Not
    /// where devices were damaged: what is lost of the volume is so of its image.
    pub(super) fn look_at_image(&mut self) -> Result<(), String> {
        let Some(layout) = self.image_layout().filter(|_| !self.damaged) else { return Ok(()) };
        let mut rng = Rng::new(self.plan.seed ^ self.world.now().0, IMAGE);
        let mut disks = self.world.disks.clone();
        disks[1].power_cut(rng.pick(&CutStyle::ALL), &mut rng);
        let slow = &disks[1];
        let Some(superblock) = superblock(slow, SLOW, layout) else {
            return Err("image: the slow device has no superblock".into());
        };
        let newest = newest_header(&mut reader(slow), layout.headers(), superblock.volume);
        let image = newest.map(|newest| image(&mut reader(slow), &newest, &superblock, slow.size_bytes()));
        let (salvage, image) = match image {
            Some(Ok(found)) => found,
            Some(Err(NoImage::Doubtful | NoImage::Broken(_))) if !self.image_went_bad => {
                return Err("image: it is said to have gone bad".into());
            }
            _ => {
                self.stats.count("no-image");
                return Ok(());
            }
        };
        let what = |what| format!("image {:x}: {what}", image.number);
        self.read_image(salvage, image, disks).map_err(what)
    }

    fn read_image(&mut self, salvage: Salvage, image: Image, disks: Vec<Disk>) -> Result<(), String> {
        let has_lost = has_lost(&salvage);
        let Some(moment) = self.images.as_ref().and_then(|images| images.moments.get(&image.number)) else {
            return Err("of no freeze".into());
        };
        let mut model = moment.model.clone();
        model.crash();
        let mut devices = self.devices();
        devices[0].size_bytes = salvage.layout().fast_bytes;
        let mut world = World::new(disks, self.plan.seed);
        (world.read_only, world.missing) = (true, Some(usize::from(FAST.0)));
        world.salvage(salvage);
        let as_of_unix_s = image.frozen_unix_ms / 1000;
        let task = bimetal_engine::open_image(self.arena(), devices, as_of_unix_s, self.options());
        let mut look = match Look::open(world, task)? {
            Ok(look) => look,
            // Less memory than the volume was used with.
            Err(OpenError::Memory { .. }) if self.limits != self.plan.limits() => return Ok(()),
            Err(_) if has_lost => {
                self.stats.count("image-lost-in-part");
                return Ok(());
            }
            Err(error) => return Err(format!("refused: {error}")),
        };
        look.read_what_is_good(&model, has_lost, 0..self.plan.size_bytes)?;
        look.rest_and_close()?;
        self.stats.count("looked-at-image");
        Ok(())
    }

    /// So many blocks go bad of those that say where the image is, headers, maps and groups of the ring, and of what the ring holds.
    /// What is said of it then is less, and nothing that is wrong. Of the copy itself the engine's own checksums say what is bad.
    pub(super) fn hurt_image(&mut self, blocks: u32) {
        let Some(layout) = self.image_layout().filter(|_| blocks > 0) else { return };
        let mut rng = Rng::new(self.plan.seed ^ self.world.now().0, IMAGE + 2);
        self.world.write_back();
        for _ in 0..blocks {
            let ring = layout.ring_at() / PAGE..layout.end() / PAGE;
            let (device, page) = match rng.below(4) {
                0 => (1, rng.pick(&layout.headers()) / PAGE),
                1 => (0, rng.pick(&layout.maps()) / PAGE),
                kind => {
                    let group = self.group_near(ring.start + rng.below(ring.end - ring.start), &ring);
                    // Or something of what it holds.
                    let behind = if kind == 2 { 0 } else { rng.range(1, 4) };
                    (1, (group + behind).min(ring.end - 1))
                }
            };
            let (disk, mut bytes) = (&mut self.world.disks[device], [0; PAGE_BYTES]);
            if !disk.peek(page, &mut bytes) {
                continue;
            }
            if rng.one_in(2) {
                disk.add_bad_sector(page * 8);
            } else {
                bytes[rng.below(64) as usize] ^= 1 << rng.below(8);
                disk.put_back(page, &bytes);
            }
            self.stats.count("image-went-bad");
            self.image_went_bad = true;
        }
    }

    /// A group of the ring that begins here or behind, if any does.
    fn group_near(&self, from: u64, ring: &std::ops::Range<u64>) -> u64 {
        let mut bytes = [0; PAGE_BYTES];
        let mut is_group =
            |page: &u64| self.disk(SLOW).peek(*page, &mut bytes) && bytes.starts_with(b"BMTLrin");
        (from..ring.end).chain(ring.start..from).find(|page| is_group(page)).unwrap_or(from)
    }

    /// The fast device is lost for good. Where there is an image that lacks nothing, the copy takes its place; another device then
    /// takes that, and the volume is what it was at the freeze. Else nothing has happened.
    pub(super) fn lose_fast(&mut self) -> Result<(), String> {
        let Some(layout) = self.image_layout().filter(|_| !self.damaged) else { return Ok(()) };
        let mut rng = Rng::new(self.plan.seed ^ self.world.now().0, IMAGE + 1);
        let mut slow = self.world.disks[1].clone();
        let Some(number) = let_copy_stand_in(&mut slow, layout, &mut rng)? else { return Ok(()) };
        let images = self.images.take().unwrap_or_default();
        let Some(moment) = images.moments.get(&number) else { return Err("stands in: of no freeze".into()) };
        self.images = Some(Images { openings: images.openings, ..Images::default() });
        let id: Id = std::array::from_fn(|_| rng.next_u64() as u8);
        let mut fast = Disk::new(layout.maps()[1] + BLOCK, rng.next_u64());
        let mut bytes = [0; PAGE_BYTES];
        for page in 0..layout.fast_bytes / PAGE {
            slow.peek(layout.copy_at() / PAGE + page, &mut bytes);
            fast.put_back(page, &bytes);
        }
        for (disk, tier) in [(&mut fast, FAST), (&mut slow, SLOW)] {
            for at in superblocks_at(tier, layout) {
                disk.peek(at / PAGE, &mut bytes);
                rename(id, at, &mut bytes);
                disk.put_back(at / PAGE, &bytes);
            }
        }
        self.world.disks = vec![fast, slow];
        self.model.go_back_to(&moment.model);
        self.pins = moment.pins.clone();
        self.fresh = fresh::Fresh::new(self.plan.size_bytes);
        self.unverified.fill(true);
        self.crashed_in = StageSet::default();
        self.stats.count("image-took-place");
        Ok(())
    }
}

/// Lets the copy take the place of the fast device, with power cuts on the way. Gives the freeze that the volume is of then; none
/// where there is no image that lacks nothing.
fn let_copy_stand_in(slow: &mut Disk, layout: Layout, rng: &mut Rng) -> Result<Option<u64>, String> {
    let (mut left, mut of) = (rng.below(STAND_IN_STEPS), None);
    loop {
        let Some(superblock) = superblock(slow, SLOW, layout) else {
            return Err("stands in: the slow device has no superblock".into());
        };
        let Some(newest) = newest_header(&mut reader(slow), layout.headers(), superblock.volume) else {
            return Ok(None);
        };
        let header = &newest.header;
        let stands_in = header.stands_in(&superblock);
        let image = match stands_in {
            true => header.image,
            false => newest.image_of(&superblock, slow.size_bytes()).ok(),
        };
        let Some(image) = image else { return if stands_in { Ok(of) } else { Ok(None) } };
        if of.is_some_and(|of| of != image.number) {
            return Err("stands in: there is another image than before the crash".into());
        }
        let scanned = scan(&mut reader(slow), header, true);
        let id =
            if stands_in { superblock.devices[0] } else { std::array::from_fn(|_| rng.next_u64() as u8) };
        let mut failing = Failing { disk: slow, left };
        let rename = |_: Tier, at: u64, block: &mut [u8]| rename(id, at, block);
        match stand_in(&mut failing, header, &scanned, id, rename, |_, _| {}) {
            Ok(()) => of = Some(image.number),
            Err(StandInError::Failed(_)) => {
                of = Some(image.number);
                left += rng.below(STAND_IN_STEPS);
            }
            Err(StandInError::Lost(..) | StandInError::Broken(_)) if of.is_none() => return Ok(None),
            Err(error) => return Err(format!("stands in: {error:?}")),
        }
        slow.power_cut(rng.pick(&CutStyle::ALL), rng);
    }
}

/// A device that fails after so many writes and flushes.
struct Failing<'d> {
    disk: &'d mut Disk,
    left: u64,
}

/// It does one thing at a time.
const ONLY: IoId = IoId(0);

impl Failing<'_> {
    fn step(&mut self) -> Result<(), DeviceError> {
        self.left = self.left.checked_sub(1).ok_or(DeviceError { errno: 5 })?;
        Ok(())
    }
}

impl Reader for Failing<'_> {
    fn read(&mut self, at: u64, bytes: u64) -> Option<Vec<u8>> {
        reader(self.disk).read(at, bytes)
    }
}

impl ImageDisk for Failing<'_> {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.step()?;
        self.disk.submit_write(ONLY, at, bytes.to_vec(), false);
        self.disk.complete(ONLY);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), DeviceError> {
        self.step()?;
        self.disk.submit_flush(ONLY);
        self.disk.complete(ONLY);
        Ok(())
    }
}

/// Reads a device.
fn reader(disk: &Disk) -> impl FnMut(u64, u64) -> Option<Vec<u8>> + use<'_> {
    |at, bytes| {
        let mut out = vec![0; bytes as usize];
        let inside = at.checked_add(bytes).is_some_and(|end| end <= disk.size_bytes());
        (inside && disk.read(at, &mut out).is_ok()).then_some(out)
    }
}

fn superblocks_at(tier: Tier, layout: Layout) -> [u64; 2] {
    [0, if tier == FAST { layout.fast_bytes } else { layout.slow_bytes } - BLOCK]
}

/// The newer of a device's two superblocks.
fn superblock(disk: &Disk, tier: Tier, layout: Layout) -> Option<Superblock> {
    let found = superblocks_at(tier, layout).map(|at| {
        let block = reader(disk)(at, BLOCK)?;
        if let Found::Valid(superblock) = Superblock::decode(&block, at) { Some(*superblock) } else { None }
    });
    // Of two that are equal the first one counts.
    found.into_iter().rev().flatten().max_by_key(|superblock| superblock.generation)
}

/// Gives the fast device this name in a superblock.
fn rename(id: Id, at: u64, block: &mut [u8]) {
    if let Found::Valid(mut superblock) = Superblock::decode(block, at) {
        superblock.devices[0] = id;
        superblock.encode(block, at);
    }
}

/// Whether the image lacks anything.
fn has_lost(salvage: &Salvage) -> bool {
    let layout = salvage.layout();
    let lacks = |(tier, bytes): (Tier, u64)| {
        salvage.places(tier, 0..bytes / BLOCK).iter().any(|(_, at)| at.is_none())
    };
    [(FAST, layout.fast_bytes), (SLOW, layout.slow_bytes)].into_iter().any(lacks)
}
