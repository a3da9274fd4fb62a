//! A volume on simulated devices, led step by step: for tests that tell one story.

use crate::damage::image;
use bimetal_engine::action::{Machine, Request, RequestError, RequestId, RequestKind};
use bimetal_engine::arena::{Arena, Buf, Pool};
use bimetal_engine::coverage::Stage;
use bimetal_engine::format::geometry::Geometry;
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_engine::loss::Suspects;
use bimetal_engine::options::{
    CheckReport, CreateOptions, DeviceInfo, Finding, Marking, OpenError, OpenOptions, RepairReport, Tuning,
};
use bimetal_engine::{Engine, Task};
use bimetal_torture::arena::{ArenaMemory, ArenaSizes, SimArena};
use bimetal_torture::disk::Disk;
use bimetal_torture::world::storm::Layout;
use bimetal_torture::world::{Death, FaultRates, Flow, World};
use bimetal_units::{FAST, Nanos, SLOW, Tier};
use std::ops::Range;

/// Bytes in a block and in a chunk of these volumes.
pub const BLOCK: u64 = 4096;
pub const CHUNK: u64 = 64 << 10;
pub const VOLUME: [u8; 16] = *b"a volume's story";
/// A story that needs more steps than this is stuck.
const PATIENCE: u32 = 100_000;

/// Whether these are nothing but this byte.
pub fn all(bytes: &[u8], byte: u8) -> bool {
    bytes.iter().all(|b| *b == byte)
}

/// A volume, its devices, and what is under way.
pub struct Story {
    pub world: World,
    pub tuning: Tuning,
    pub memory_sizes: ArenaSizes,
    volume: [u8; 16],
    marking: Marking,
    fast_checksums: bool,
    engine: Option<Engine<SimArena>>,
    memory: ArenaMemory,
    answers: Vec<(RequestId, Result<(), RequestError>)>,
}

/// A request under way.
pub struct Asked {
    id: RequestId,
    /// Whole blocks around what is asked for.
    buf: Option<Buf>,
    /// What is asked for in them.
    bytes: Range<usize>,
}

/// The block that holds the second copy of a block of a root, of the map or of the directory.
pub fn twin(geo: &Geometry, block: u64) -> Option<u64> {
    let at = block * BLOCK;
    let roots = (0..2).flat_map(|place| (0..geo.root_blocks).map(move |block| (place, block)));
    let root = roots.clone().find(|(place, block)| geo.root_at(*place, *block) == at);
    let twin = match root {
        Some((place, block)) => geo.root_twin_at(place, block),
        None => {
            let places = (0..geo.pages()).flat_map(|page| [(page, 0), (page, 1)]);
            let (page, place) = places.clone().find(|(page, place)| geo.page_at(*page, *place) == at)?;
            geo.page_twin_at(page, place)
        }
    };
    twin.map(|at| at / BLOCK)
}

/// Bytes of the blocks around a range, and where in them the range is.
fn cover(offset: u64, len: u64) -> (u32, Range<usize>) {
    let head = offset % BLOCK;
    ((head + len).next_multiple_of(BLOCK) as u32, head as usize..(head + len) as usize)
}

impl Story {
    /// Devices of these many chunks, and nothing on them yet.
    fn of(fast_chunks: u64, slow_chunks: u64) -> Story {
        Story::with(vec![Disk::new(fast_chunks * CHUNK, 1), Disk::new(slow_chunks * CHUNK, 2)])
    }

    /// These devices, with whatever is on them; the volume is not open. Nothing moves by heat or for want of it, and what has landed does
    /// not wait until the slow device is in use.
    pub fn with(disks: Vec<Disk>) -> Story {
        let mut tuning = Tuning {
            promote_touches: 1_000_000,
            idle_after_ns: 10 * Nanos::MS,
            small_write_bytes: 0,
            rest_at_most_ns: 0,
            ..Tuning::default()
        };
        tuning.economy.copies_quiet_share = 1 << 20;
        Story {
            world: World::new(disks, 7),
            tuning,
            memory_sizes: ArenaSizes::default(),
            volume: VOLUME,
            marking: Marking::Off,
            fast_checksums: true,
            engine: None,
            memory: ArenaMemory::default(),
            answers: Vec::new(),
        }
    }

    /// Makes a volume of these many chunks on each device, and opens it.
    pub fn begin(fast_chunks: u64, slow_chunks: u64) -> Story {
        Story::begin_as(VOLUME, fast_chunks, slow_chunks)
    }

    /// A volume on which a stream has come to a chunk at home on the slow tier, and has written so many of its bytes; gives that
    /// chunk.
    pub fn begin_streaming(bytes: u64, fill: u8) -> (Story, u64) {
        let mut s = Story::begin(40, 40);
        let chunk = s.slow_chunk();
        s.stop();
        (s.tuning.economy.stream_bytes, s.tuning.economy.joined_bytes) = (4096, 512);
        s.open().expect("the volume opens");
        s.write(chunk - 2 * BLOCK, 2 * BLOCK, fill);
        s.write(chunk, bytes, fill);
        (s, chunk)
    }

    /// The same under another identity.
    pub fn begin_as(volume: [u8; 16], fast_chunks: u64, slow_chunks: u64) -> Story {
        let story = Story { volume, ..Story::of(fast_chunks, slow_chunks) };
        story.made(12, 2)
    }

    /// The same with a landing zone of these many chunks.
    pub fn begin_with_zone(fast_chunks: u64, slow_chunks: u64, zone_chunks: u64) -> Story {
        Story::of(fast_chunks, slow_chunks).made(zone_chunks, 2)
    }

    /// The same where each area, and so each segment of the log, has so many.
    pub fn begin_with_areas(fast_chunks: u64, slow_chunks: u64, zone_chunks: u64, area_chunks: u64) -> Story {
        Story::of(fast_chunks, slow_chunks).made(zone_chunks, area_chunks)
    }

    /// The same whose fast tier has no pages of checksums, as those that older programs made.
    pub fn begin_without_fast_pages(fast_chunks: u64, slow_chunks: u64) -> Story {
        Story { fast_checksums: false, ..Story::of(fast_chunks, slow_chunks) }.made(12, 2)
    }

    /// A volume whose slow device describes itself, never rests, and calls good what was not written for a minute.
    pub fn begin_marked(marking: Marking, fast_chunks: u64, slow_chunks: u64) -> Story {
        let mut story = Story { marking, ..Story::of(fast_chunks, slow_chunks) };
        story.tuning.rest_after_ns = 24 * 3600 * Nanos::SECOND;
        story.made(12, 2)
    }

    fn made(mut self, zone_chunks: u64, area_chunks: u64) -> Story {
        let story = &mut self;
        let options = CreateOptions {
            chunk_bytes: CHUNK as u32,
            landing_bytes: Some(zone_chunks * CHUNK),
            area_bytes: Some((area_chunks * CHUNK) as u32),
            marking: story.marking,
            fast_checksums: story.fast_checksums,
            ..CreateOptions::new(story.volume)
        };
        let (arena, devices) = (story.arena(), story.devices());
        story.task(bimetal_engine::create(arena, devices, options)).expect("the volume is made");
        story.open().expect("the volume opens");
        self
    }

    fn arena(&self) -> SimArena {
        self.memory.arena(self.memory_sizes, false)
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        let device =
            |(disk, name): (&Disk, &str)| DeviceInfo { name: name.into(), size_bytes: disk.size_bytes() };
        self.world.disks.iter().zip(["fast", "slow"]).map(device).collect()
    }

    fn options(&self) -> OpenOptions {
        OpenOptions { volume_id: Some(self.volume), tuning: self.tuning.clone() }
    }

    fn task<T>(&mut self, mut task: Task<SimArena, T>) -> T {
        for _ in 0..PATIENCE {
            assert!(self.world.pump(&mut task).expect("a legal action") == Flow::Quiet);
            if let Some(result) = task.take_result() {
                return result;
            }
            self.world.advance(&mut task, Nanos(u64::MAX)).expect("a legal action");
        }
        panic!("the task is stuck");
    }

    /// Opens the volume after a death.
    pub fn open(&mut self) -> Result<(), OpenError> {
        let (arena, devices, options) = (self.arena(), self.devices(), self.options());
        self.engine = Some(self.task(bimetal_engine::open(arena, devices, options))?);
        Ok(())
    }

    /// Looks at the volume without the slow device, of which nothing may be asked, and nothing may be written to the other one
    /// until the machine dies.
    pub fn open_without_slow(&mut self) -> Result<(), OpenError> {
        let (arena, devices, options) = (self.arena(), self.devices(), self.options());
        (self.world.read_only, self.world.missing) = (true, Some(1));
        self.engine = Some(self.task(bimetal_engine::open_degraded(
            arena,
            devices,
            SLOW,
            options,
            Suspects::Refused,
        ))?);
        Ok(())
    }

    /// Opens the volume without the slow device, of which nothing may be asked, to write to the other one.
    pub fn open_alone(&mut self) -> Result<(), OpenError> {
        let (arena, devices, options) = (self.arena(), self.devices(), self.options());
        self.world.missing = Some(1);
        self.engine = Some(self.task(bimetal_engine::open_alone(arena, devices, options))?);
        Ok(())
    }

    /// Begins that, which the machine does not survive, after so many steps. False: it was open before.
    pub fn open_alone_until(&mut self, steps: u32, death: Death) -> bool {
        let (arena, devices, options) = (self.arena(), self.devices(), self.options());
        self.world.missing = Some(1);
        self.task_until(bimetal_engine::open_alone(arena, devices, options), steps, death)
    }

    /// The same without the fast device.
    pub fn open_without_fast(&mut self, suspects: Suspects) -> Result<(), OpenError> {
        let (arena, devices, options) = (self.arena(), self.devices(), self.options());
        (self.world.read_only, self.world.missing) = (true, Some(0));
        self.engine =
            Some(self.task(bimetal_engine::open_degraded(arena, devices, FAST, options, suspects))?);
        Ok(())
    }

    /// Begins to open the volume, which the machine does not survive, after so many steps. False: it was open before.
    pub fn open_until(&mut self, steps: u32, death: Death) -> bool {
        let (arena, devices, options) = (self.arena(), self.devices(), self.options());
        self.task_until(bimetal_engine::open(arena, devices, options), steps, death)
    }

    /// Does a task that the machine does not survive, after so many steps. False: it was done before.
    fn task_until<T>(&mut self, mut task: Task<SimArena, T>, steps: u32, death: Death) -> bool {
        self.world.fuse = Some(steps);
        for _ in 0..PATIENCE {
            if self.world.pump(&mut task).expect("a legal action") == Flow::Crash
                || self.world.advance(&mut task, Nanos(u64::MAX)).expect("a legal action") == Flow::Crash
            {
                self.die(death);
                return true;
            }
            if task.take_result().is_some() {
                self.world.fuse = None;
                return false;
            }
        }
        panic!("the task is stuck");
    }

    /// What the offline check says is wrong.
    pub fn findings(&mut self) -> Result<Vec<Finding>, OpenError> {
        self.checked().map(|report| report.findings)
    }

    /// All that the offline check says.
    pub fn checked(&mut self) -> Result<CheckReport, OpenError> {
        let (arena, devices, options) = (self.arena(), self.devices(), self.options());
        self.world.read_only = true;
        let report = self.task(bimetal_engine::check(arena, devices, options));
        self.world.read_only = false;
        report
    }

    /// What a repair would do; it must not write.
    pub fn planned(&mut self) -> Result<RepairReport, OpenError> {
        self.world.read_only = true;
        let report = self.repair_task(false);
        self.world.read_only = false;
        report
    }

    /// Repairs the volume offline.
    pub fn repair(&mut self) -> Result<RepairReport, OpenError> {
        self.repair_task(true)
    }

    fn repair_task(&mut self, apply: bool) -> Result<RepairReport, OpenError> {
        let (arena, devices, options) = (self.arena(), self.devices(), self.options());
        self.task(bimetal_engine::repair(arena, devices, options, apply))
    }

    /// Begins a repair that the machine does not survive, after so many steps. False: it was done before.
    pub fn repair_until(&mut self, steps: u32, death: Death) -> bool {
        let (arena, devices, options) = (self.arena(), self.devices(), self.options());
        self.task_until(bimetal_engine::repair(arena, devices, options, true), steps, death)
    }

    /// The volume, which has no pages of checksums of the fast tier, as it would be had it been made by a program of version 3.
    pub fn make_old(&mut self) {
        for (tier, disk) in [FAST, SLOW].into_iter().zip(&mut self.world.disks) {
            let geo = match Superblock::decode(&image::get(disk, 0, 1), 0) {
                Found::Valid(superblock) => superblock.geometry,
                other => panic!("{other:?} is no superblock"),
            };
            for at in [0, geo.second_superblock_at(tier) / BLOCK] {
                let mut bytes = image::get(disk, at, 1);
                bytes[16] = 3;
                bytes[240..248].fill(0);
                bytes[12..16].copy_from_slice(&224u32.to_le_bytes());
                image::reseal(&mut bytes);
                image::put(disk, at, &bytes);
            }
        }
    }

    /// The sentences of the offline check's findings.
    pub fn check(&mut self) -> Result<Vec<String>, OpenError> {
        Ok(self.findings()?.into_iter().map(|f| f.what).collect())
    }

    /// The machine dies here.
    pub fn die(&mut self, death: Death) {
        self.engine = None;
        self.answers.clear();
        self.world.rates = FaultRates::default();
        self.world.die(death);
    }

    pub fn engine(&mut self) -> &mut Engine<SimArena> {
        self.engine.as_mut().expect("the volume is open")
    }

    /// Hands in a request.
    pub fn ask(&mut self, kind: RequestKind, offset: u64, len: u64, fill: u8) -> Asked {
        let (id, now) = (self.world.request_id(), self.world.now());
        let engine = self.engine.as_mut().expect("the volume is open");
        let payload = matches!(kind, RequestKind::Read | RequestKind::Write { .. });
        let (around, bytes) = cover(offset, len);
        let buf = payload.then(|| {
            engine.with_arena(|a| {
                let buf = a.alloc(Pool::Client, around).expect("the client's pool has room");
                a.payload_mut(buf)[bytes.clone()].fill(fill);
                buf
            })
        });
        engine.on_request(now, Request { id, kind, offset, len, buf });
        Asked { id, buf, bytes }
    }

    /// One event. False: nothing will ever happen again by itself.
    pub fn step(&mut self) -> bool {
        let engine = self.engine.as_mut().expect("the volume is open");
        self.world.pump(engine).expect("a legal action");
        let more = self.world.next_event(engine).is_some();
        if more {
            self.world.advance(engine, Nanos(u64::MAX)).expect("a legal action");
            self.world.pump(engine).expect("a legal action");
        }
        self.answers.append(&mut self.world.replies);
        more
    }

    /// One event, or the machine's death where the fuse has burned down. True: it is dead.
    pub fn step_or_crash(&mut self) -> bool {
        let engine = self.engine.as_mut().expect("the volume is open");
        let soon = self.world.now().after(Nanos::SECOND);
        self.world.pump(engine).expect("a legal action") == Flow::Crash
            || self.world.advance(engine, soon).expect("a legal action") == Flow::Crash
            || self.world.pump(engine).expect("a legal action") == Flow::Crash
    }

    /// Takes over what was answered in steps that may end in a crash.
    pub fn collect_answers(&mut self) {
        self.answers.append(&mut self.world.replies);
    }

    /// What became of the request, if it has been answered: what was read, if it was a read.
    pub fn take_answer(&mut self, asked: &Asked) -> Option<Result<Vec<u8>, RequestError>> {
        let place = self.answers.iter().position(|(id, _)| *id == asked.id)?;
        let (_, result) = self.answers.swap_remove(place);
        let bytes = asked.buf.map(|buf| {
            self.engine().with_arena(|a| {
                let bytes = a.payload(buf)[asked.bytes.clone()].to_vec();
                a.free(buf);
                bytes
            })
        });
        Some(result.map(|()| bytes.unwrap_or_default()))
    }

    /// Goes on until the request is answered; what was read, if it was a read.
    pub fn answer(&mut self, asked: Asked) -> Result<Vec<u8>, RequestError> {
        for _ in 0..PATIENCE {
            if let Some(result) = self.take_answer(&asked) {
                return result;
            }
            self.step();
        }
        panic!("no answer");
    }

    /// Writes these bytes.
    pub fn write_bytes(&mut self, offset: u64, bytes: &[u8]) -> Result<(), RequestError> {
        let (id, now) = (self.world.request_id(), self.world.now());
        let len = bytes.len() as u64;
        let (around, within) = cover(offset, len);
        let engine = self.engine();
        let buf = engine.with_arena(|a| {
            let buf = a.alloc(Pool::Client, around).expect("the client's pool has room");
            a.payload_mut(buf)[within.clone()].copy_from_slice(bytes);
            buf
        });
        let kind = RequestKind::Write { fua: false };
        engine.on_request(now, Request { id, kind, offset, len, buf: Some(buf) });
        self.answer(Asked { id, buf: Some(buf), bytes: within }).map(drop)
    }

    pub fn write(&mut self, offset: u64, len: u64, fill: u8) {
        let asked = self.ask(RequestKind::Write { fua: false }, offset, len, fill);
        self.answer(asked).expect("a write succeeds");
    }

    pub fn flush(&mut self) {
        let asked = self.ask(RequestKind::Flush, 0, 0, 0);
        self.answer(asked).expect("a flush succeeds");
    }

    pub fn read(&mut self, offset: u64, len: u64) -> Result<Vec<u8>, RequestError> {
        let asked = self.ask(RequestKind::Read, offset, len, 0xee);
        self.answer(asked)
    }

    /// Stops in order.
    pub fn stop(&mut self) {
        let now = self.world.now();
        self.engine().begin_shutdown(now);
        for _ in 0..PATIENCE {
            self.step();
            if self.engine().is_stopped() {
                self.engine = None;
                return self.world.die(Death::Kill);
            }
        }
        panic!("it does not stop");
    }

    /// Goes on until an operation is in this stage.
    pub fn until_stage(&mut self, stage: Stage) {
        for _ in 0..PATIENCE {
            let mut found = false;
            self.engine().stages_in_flight(&mut |s| found |= s == stage);
            if found {
                return;
            }
            self.step();
        }
        panic!("{stage:?} is never reached");
    }

    /// Goes on until no operation is in this stage.
    pub fn until_no_stage(&mut self, stage: Stage) {
        for _ in 0..PATIENCE {
            let mut found = false;
            self.engine().stages_in_flight(&mut |s| found |= s == stage);
            if !found {
                return;
            }
            self.step();
        }
        panic!("{stage:?} never ends");
    }

    /// Lets this much time pass.
    pub fn wait(&mut self, ns: u64) {
        let end = self.world.now().after(ns);
        while self.world.now() < end {
            let engine = self.engine.as_mut().expect("the volume is open");
            self.world.pump(engine).expect("a legal action");
            self.world.advance(engine, end).expect("a legal action");
        }
        self.answers.append(&mut self.world.replies);
    }

    /// The offset of a chunk on the slow tier, of which the first block is written and flushed.
    pub fn slow_chunk(&mut self) -> u64 {
        let chunks = self.engine().size_bytes() / CHUNK;
        let settled = |at: &u64| {
            self.write(*at, BLOCK, 0x11);
            self.flush();
            self.wait(Nanos::SECOND);
            self.is_slow(*at)
        };
        (0..chunks).map(|c| c * CHUNK).find(settled).expect("a chunk that begins on the slow tier")
    }

    /// Some fast slots are free again: chunks that were written first are discarded.
    pub fn free_fast_slots(&mut self) {
        for i in 0..4 {
            let discard = self.ask(RequestKind::Discard { fua: false }, i * CHUNK, CHUNK, 0);
            self.answer(discard).expect("a discard succeeds");
        }
        self.flush();
        self.wait(Nanos::SECOND);
    }

    /// Pins the chunk at this byte to a tier, and goes on until it is there.
    pub fn pin_to(&mut self, at: u64, tier: Tier) {
        let now = self.world.now();
        self.engine().begin_pin(now, at, CHUNK, Some(tier)).expect("it may be pinned");
        let mut answered = false;
        while !answered || self.home_of(at).0 != tier {
            self.step();
            answered |= self.engine().take_pin_answer().is_some();
        }
        self.wait(Nanos::SECOND);
    }

    /// Where the chunk at this byte is at home.
    pub fn home_of(&mut self, at: u64) -> (Tier, u64) {
        let now = self.world.now();
        let why = self.engine().why(now, at).expect("a chunk");
        (why.home.expect("a home").tier, why.home_offset.expect("a home"))
    }

    /// Where its shadow is.
    pub fn shadow_of(&mut self, at: u64) -> Option<u64> {
        let now = self.world.now();
        self.engine().why(now, at).expect("a chunk").shadow_offset
    }

    /// A bit of the block at this byte of a device is another.
    pub fn flip(&mut self, device: usize, at: u64) {
        let mut page = [0; BLOCK as usize];
        self.world.disks[device].peek(at / BLOCK, &mut page);
        page[100] ^= 4;
        self.world.disks[device].put_back(at / BLOCK, &page);
    }

    /// Where what lies on the devices.
    pub fn layout(&self) -> Layout {
        Layout::new(self.volume, &self.geometry())
    }

    /// The same as it is recorded.
    pub fn geometry(&self) -> Geometry {
        let mut block = [0; BLOCK as usize];
        self.world.disks[0].peek(0, &mut block);
        match Superblock::decode(&block, 0) {
            Found::Valid(superblock) => superblock.geometry,
            other => panic!("{other:?} is no superblock"),
        }
    }

    /// Whether a read of the block is answered by the slow device.
    pub fn is_slow(&mut self, offset: u64) -> bool {
        let before = self.engine().status().tiers[1].read_bytes;
        self.read(offset, BLOCK).expect("it can be read");
        self.engine().status().tiers[1].read_bytes > before
    }
}
