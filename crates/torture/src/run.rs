//! Runs one plan: create, then lives on the same devices, each ending in a crash and followed by
//! a recovery that is verified against the model.

mod alone;
mod damage;
mod fresh;
mod image;
mod judge;
mod lone;
mod opening;
mod rest;
mod rot;
mod salvage;
mod successor;

use super::client::Client;
use super::pins::PinKeeper;
use super::plan::{Life, Limits, Op, OpKind, Plan, When};
use super::scrubs::Scrubber;
use super::{Stats, draw};
use crate::arena::{ArenaMemory, ArenaSizes, SimArena};
use crate::coverage::{Fault, StageSet};
use crate::disk::{CutStyle, Disk, PAGE_BYTES};
use crate::model::{Model, SECTOR};
use crate::world::{Death, FaultRates, Flow, Staged, World};
use bimetal_engine::arena::Pool;
use bimetal_engine::options::{CreateOptions, DeviceInfo, OpenError, OpenOptions, Tuning};
use bimetal_engine::{Engine, Task};
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;

/// A request, task or stop that takes longer than this (virtual) is stuck. Dozens of streams that wait
/// for one slow flush each, on the slowest of the devices drawn, have taken a minute.
const STUCK_NS: u64 = 300 * Nanos::SECOND;
/// The same where devices stall for half a minute and take seconds for a command.
const STUCK_IN_STORM_NS: u64 = 1200 * Nanos::SECOND;
/// More, for each chunk that requests in flight meanwhile covered: where no more of the slow tier may be unflushed than a
/// chunk, each waits for a flush of its own, which takes a second and longer.
const CHUNK_PATIENCE_NS: u64 = 2 * Nanos::SECOND;
/// The unit in which a verification reads.
const UNIT: u64 = 64 << 10;
/// Steps from the end of a pair's second fault to the crash, at most.
const PAIR_STEPS: u32 = 64;
/// Events kept for a report.
const EVENTS: usize = 20;
const NAMES: [&str; 2] = ["fast", "slow"];
const PAGE: u64 = PAGE_BYTES as u64;

/// How a stretch of a run ended.
enum Stretch<T> {
    Done(T),
    Crashed,
}

/// One run of one plan.
pub struct Run<'a> {
    plan: &'a mut Plan,
    stats: &'a mut Stats,
    memory: ArenaMemory,
    world: World,
    model: Model,
    rng: Rng,
    /// Units written since they were last verified.
    unverified: Vec<bool>,
    /// Stages at the last crash, until a recovery ended.
    crashed_in: StageSet,
    /// Whether any I/O error was injected so far.
    errors_ever: bool,
    /// Whether devices failed while the volume was opened that is open now.
    failed_while_opening: bool,
    /// Whether sectors went bad: an error is legal from then on.
    damaged: bool,
    /// What was written since.
    fresh: fresh::Fresh,
    /// Ranges that could not be read since this was last taken, of which damage is the only excuse.
    unreadable: Vec<(u64, u64)>,
    /// Pages of metadata as they were when the last life ended, where devices are damaged.
    earlier: Vec<(u64, Vec<u8>)>,
    lost_caches: u64,
    volumes: u64,
    events: Vec<String>,
    /// Whether any write is to be harmed in this plan.
    harms: bool,
    /// A message of this life named the place of a failure.
    named: bool,
    patience_ns: u64,
    pins: PinKeeper,
    scrubs: Scrubber,
    /// Of this opening.
    limits: Limits,
    /// Steps from where the generation is raised to the crash.
    raise_fuse: Option<u32>,
    /// While it is open without its slow device.
    alone: Option<alone::Alone>,
    /// It was written to so, and both devices have not been together since.
    left_behind: bool,
    /// What rotted on the fast device in this life.
    fast_rots: Vec<rot::FastRot>,
    /// Of a protected volume, once its size is known.
    images: Option<image::Images>,
    /// Something that says where the image is has gone bad.
    image_went_bad: bool,
    succession: successor::Succession,
    /// Until when the second fault of a pair lasts; the beginning of time where it is over.
    pair_ends: Option<Nanos>,
}

impl<'a> Run<'a> {
    /// Prepares to run a plan, in this memory.
    pub fn new(plan: &'a mut Plan, stats: &'a mut Stats, memory: ArenaMemory, trace: bool) -> Run<'a> {
        let mut world = World::new(Vec::new(), plan.seed);
        world.trace = trace;
        let (rng, seed) = (Rng::new(plan.seed, 3), plan.seed);
        // What rots may be another's place by the time that it is looked for.
        let may_rot = !plan.replaces;
        Run {
            model: Model::new(0, 0),
            limits: plan.limits(),
            raise_fuse: None,
            alone: None,
            left_behind: false,
            fast_rots: Vec::new(),
            images: None,
            image_went_bad: false,
            succession: successor::Succession::new(seed),
            pair_ends: None,
            plan,
            stats,
            memory,
            world,
            rng,
            unverified: Vec::new(),
            crashed_in: StageSet::default(),
            errors_ever: false,
            failed_while_opening: false,
            damaged: false,
            fresh: fresh::Fresh::default(),
            unreadable: Vec::new(),
            earlier: Vec::new(),
            lost_caches: 0,
            volumes: 0,
            events: Vec::new(),
            harms: false,
            named: false,
            patience_ns: STUCK_NS,
            pins: PinKeeper::new(seed),
            scrubs: Scrubber::new(seed, may_rot),
        }
    }

    /// Runs it. An error is a violation.
    pub fn run(&mut self) -> Result<(), String> {
        let result = self.run_plan();
        self.stats.hash = self.world.hash();
        self.stats.coverage.add(&self.world.coverage);
        result.map_err(|mut what| {
            if let Some(protection) = self.world.protection() {
                what += &format!("\nthe image: {}", protection.where_all_stands());
            }
            if !self.events.is_empty() {
                what += &format!("\nevents: {}", self.events.join("; "));
            }
            what
        })
    }

    fn run_plan(&mut self) -> Result<(), String> {
        let drawn = self.plan.size_bytes > 0;
        self.create()?;
        if !self.measure()? {
            self.world.disks.clear();
            self.create()?;
            if !self.measure()? {
                return Err("opening refuses the default tuning".into());
            }
        }
        if !drawn {
            self.plan.lives = draw::lives(self.plan);
        }
        self.limits = self.plan.limits();
        self.new_model();
        let aims = |life: &Life| life.storm.aims.len() + life.opening.storm.aims.len();
        self.harms = self.plan.lives.iter().any(|life| aims(life) > 0);
        for i in 0..self.plan.lives.len() {
            let life = self.plan.lives[i].clone();
            self.stats.reached_life = i;
            if self.world.trace {
                eprintln!("--- life {i}");
            }
            if !self.live(&life)? {
                return Ok(());
            }
        }
        self.close()
    }

    /// The limits of the next opening.
    fn open_within(&mut self, limits: Limits) {
        self.limits = limits;
        if !self.memory_has_all_sums() {
            self.heal_fast_rots();
        }
    }

    fn new_model(&mut self) {
        self.images = self.plan.protect.map(|_| image::Images::default());
        self.pins.begin_anew();
        self.model = Model::new(self.plan.size_bytes, self.plan.seed.wrapping_add(self.volumes << 56));
        self.fresh = fresh::Fresh::new(self.plan.size_bytes);
        self.unverified = vec![false; self.plan.size_bytes.div_ceil(UNIT) as usize];
    }

    fn arena(&self) -> SimArena {
        // So much that it is never in pieces.
        let copy =
            self.plan.protect.map_or(0, |protect| 2 * bimetal_protect::Plan::pool_bytes(protect.piece_bytes));
        self.memory.arena(ArenaSizes { copy: copy as u32, ..self.limits.arena }, self.plan.poison_all)
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        let name =
            |(disk, name): (&Disk, &str)| DeviceInfo { name: name.into(), size_bytes: disk.size_bytes() };
        self.world.disks.iter().zip(NAMES).map(name).collect()
    }

    /// One life. False: the volume is beyond repair, legally.
    fn live(&mut self, life: &Life) -> Result<bool, String> {
        if life.alone && self.damaged {
            return Ok(true);
        }
        if life.recreate && !self.damaged {
            self.create()?;
            self.earlier.clear();
            self.new_model();
            self.crashed_in = StageSet::default();
        }
        self.begin_life();
        self.learn_layout();
        self.open_within(life.limits.as_deref().cloned().unwrap_or_else(|| self.plan.limits()));
        if life.alone {
            return self.live_alone(life).map(|()| true);
        }
        if life.fast_lost {
            self.forget_successor();
            self.lose_fast()?;
        }
        let Some(mut engine) = self.begin(life)? else { return Ok(false) };
        self.write_beside_damage(&mut engine)?;
        self.unverified.fill(false);
        self.world.services = life.services.to_vec();
        self.world.rates = life.rates;
        self.patience_ns = if life.storm.is_slow() { STUCK_IN_STORM_NS } else { STUCK_NS };
        self.world.begin(life.storm.clone());
        if self.world.may_lose_writes() {
            self.heal_fast_rots();
        }
        let stopped = self.work(&mut engine, life).inspect_err(|_| self.keep_events(&mut engine))?;
        self.patience_ns = STUCK_NS;
        self.end_life(engine, life, stopped)?;
        self.hurt_image(life.image_harms);
        if life.check && !self.errors_ever && !self.damaged && !self.is_replacing() {
            self.check()?;
        }
        Ok(true)
    }

    /// Opens and verifies; and once more, where the life crashes when all is verified.
    fn begin(&mut self, life: &Life) -> Result<Option<Engine<SimArena>>, String> {
        let engine = self.open_and_verify(life)?;
        match (life.twice, engine) {
            (Some(death), Some(engine)) => {
                self.stats.count("second-recovery");
                self.die(engine, death, 0);
                self.open_and_verify(&Life { opening: Default::default(), ..life.clone() })
            }
            (_, engine) => Ok(engine),
        }
    }

    fn open_and_verify(&mut self, life: &Life) -> Result<Option<Engine<SimArena>>, String> {
        let Some(mut engine) = self.open(life)? else { return Ok(None) };
        self.opened(&engine)?;
        match life.alone {
            true => self.verify_what_is_left(&mut engine)?,
            false => self.verify(&mut engine, life.verify_all)?,
        }
        Ok(Some(engine))
    }

    fn begin_life(&mut self) {
        self.stats.injected.add(&self.world.injected);
        self.world.injected = Default::default();
        self.lost_caches = 0;
        self.named = false;
        self.pair_ends = None;
    }

    fn opened(&mut self, engine: &Engine<SimArena>) -> Result<(), String> {
        self.crashed_in = StageSet::default();
        self.lost_caches = self.world.injected.lost_caches;
        self.decide()?;
        self.left_behind = self.alone.is_some();
        self.seal_export();
        self.successor_goes_on(engine.status().generation);
        if engine.size_bytes() != self.plan.size_bytes {
            return Err(format!("the size was {} and is {}", self.plan.size_bytes, engine.size_bytes()));
        }
        let failed = self.errors_ever || self.failed_while_opening;
        self.pins.opened(engine, self.damaged, failed)
    }

    /// The client's part of a life, up to its end. True: the engine stopped in order.
    fn work(&mut self, engine: &mut Engine<SimArena>, life: &Life) -> Result<bool, String> {
        let mut client = Client::new(&life.ops, life.depth);
        let after = u64::from(life.after).min(life.ops.len() as u64);
        let fuse = life.death.map(|_| life.points);
        self.succession.wanted = life.successor;
        let flow = self.drive(engine, &mut client, Some((after, life)))?;
        let mut stopped = false;
        if flow == Flow::Quiet {
            if life.calm {
                // A second fault that waited for its moment does not come into the calm.
                self.world.fuse = None;
                client.stop();
                self.wait_blind(engine, &mut client, life)?;
                self.rest(engine, &mut client)?;
                self.verify_fresh(engine)?;
                self.scrub_finds_all(engine)?;
            }
            self.world.fuse = fuse;
            match life.when {
                When::Busy => _ = self.lull(engine, &mut client, 100 * Nanos::MS)?,
                When::Idle(ns) => _ = self.lull(engine, &mut client, ns)?,
                When::Stopping => {
                    client.stop();
                    stopped = self.stop(engine, &mut client)? == Flow::Quiet;
                }
            }
        }
        self.stats.operations += client.answered;
        if stopped && !client.is_quiet() {
            return Err(format!("stopped without an answer to {}", client.waiting()));
        }
        Ok(stopped)
    }

    fn errors_legal(&self) -> bool {
        let i = &self.world.injected;
        self.damaged || i.reads + i.writes + i.flushes + i.bad_sectors + i.harmed() + i.vanished > 0
    }

    /// Serves the engine and takes answers at this instant.
    fn serve(&mut self, engine: &mut Engine<SimArena>, client: &mut Client<'_>) -> Result<Flow, String> {
        loop {
            client.feed(engine, &mut self.world, &mut self.model);
            self.pins.look(engine, self.world.now());
            self.rot_amid(engine);
            self.scrubs.look(engine, self.world.now(), self.errors_ever || self.errors_legal())?;
            let flow = self.world.pump(engine)?;
            let looked = self.look_after_successor(engine, client.answered)?;
            self.note_freeze();
            self.note_lost_caches();
            let legal = self.errors_legal() || self.alone.is_some();
            let any = client.settle(engine, &mut self.world, &mut self.model, legal)?;
            let outcomes = std::mem::take(&mut client.outcomes);
            self.judge_alone(engine, &outcomes)?;
            self.judge(outcomes)?;
            if std::mem::take(&mut client.failed_reads) > 0 {
                self.must_have_named(engine)?;
            }
            if flow == Flow::Crash || !any && !looked {
                return Ok(flow);
            }
        }
    }

    fn note_lost_caches(&mut self) {
        if self.world.injected.lost_caches > self.lost_caches {
            self.lost_caches = self.world.injected.lost_caches;
            self.model.cache_was_lost();
        }
    }

    /// Goes to the next event; a request that has waited too long is a violation.
    fn step(
        &mut self,
        engine: &mut Engine<SimArena>,
        client: &Client<'_>,
        until: Nanos,
    ) -> Result<Flow, String> {
        let now = self.world.now();
        let chunk = u64::from(self.plan.geometry.chunk_bytes);
        let stuck = client.stuck(|bytes| self.patience_ns + bytes / chunk * CHUNK_PATIENCE_NS);
        let (stuck, patience_ns) = stuck.unwrap_or((Nanos(u64::MAX), 0));
        if now >= stuck {
            let (patience, stands) = (patience_ns / Nanos::SECOND, engine.where_all_stands());
            return Err(format!("stuck: unanswered for {patience} s: {} ({stands})", client.waiting()));
        }
        let wake = client.wake(now).unwrap_or(Nanos(u64::MAX));
        self.world.advance(engine, until.min(stuck).min(wake))
    }

    /// Lets the client work until it is done, or until its end begins.
    fn drive(
        &mut self,
        engine: &mut Engine<SimArena>,
        client: &mut Client<'_>,
        end: Option<(u64, &Life)>,
    ) -> Result<Flow, String> {
        let mut idle_since = self.world.now();
        loop {
            let answered = client.answered;
            if self.serve(engine, client)? == Flow::Crash {
                return Ok(Flow::Crash);
            }
            if client.answered > answered || !client.is_quiet() || client.wake(self.world.now()).is_some() {
                idle_since = self.world.now();
            }
            if let Some((_, life)) = end {
                self.look_for_pair(engine, life);
            }
            if let Some((after, life)) = end
                && client.answered >= after
            {
                if life.calm {
                    return Ok(Flow::Quiet);
                }
                match life.when {
                    When::Busy if self.world.fuse.is_some() => {}
                    When::Busy if life.hunt.is_some() => {
                        let mut found = false;
                        engine.stages_in_flight(&mut |stage| found |= Some(stage) == life.hunt);
                        self.world.fuse = (found && life.death.is_some()).then_some(0);
                    }
                    When::Busy => self.world.fuse = life.death.map(|_| life.points),
                    When::Idle(_) => client.stop(),
                    When::Stopping => return Ok(Flow::Quiet),
                }
            }
            if client.is_done() {
                return Ok(Flow::Quiet);
            }
            let limit = idle_since.after(self.patience_ns);
            if self.world.now() >= limit {
                return Err("stuck: the engine takes no requests".into());
            }
            if self.step(engine, client, limit)? == Flow::Crash {
                return Ok(Flow::Crash);
            }
        }
    }

    /// Where one fault has left something, another one comes.
    fn look_for_pair(&mut self, engine: &Engine<SimArena>, life: &Life) {
        let Some(pair) = life.pair else { return };
        match self.pair_ends {
            None => {
                let mut found = false;
                engine.moments(&mut |moment| found |= moment == pair.moment);
                if found {
                    self.stats.count(pair.moment.name());
                    self.heal_fast_rots();
                    self.world.rates = pair.rates;
                    self.pair_ends = Some(self.world.now().after(pair.ns));
                }
            }
            Some(ends) if ends > Nanos(0) && self.world.now() >= ends => {
                self.world.rates = life.rates;
                self.pair_ends = Some(Nanos(0));
                self.world.fuse = self.world.fuse.or(life.death.map(|_| life.points % PAIR_STEPS));
            }
            Some(_) => {}
        }
    }

    /// Lets time pass without new requests.
    fn lull(
        &mut self,
        engine: &mut Engine<SimArena>,
        client: &mut Client<'_>,
        ns: u64,
    ) -> Result<Flow, String> {
        let end = self.world.now().after(ns);
        while self.world.now() < end {
            if self.serve(engine, client)? == Flow::Crash || self.step(engine, client, end)? == Flow::Crash {
                return Ok(Flow::Crash);
            }
        }
        Ok(Flow::Quiet)
    }

    /// Stops the engine in order.
    fn stop(&mut self, engine: &mut Engine<SimArena>, client: &mut Client<'_>) -> Result<Flow, String> {
        let limit = self.world.now().after(self.patience_ns);
        engine.begin_shutdown(self.world.now());
        loop {
            if self.serve(engine, client)? == Flow::Crash {
                return Ok(Flow::Crash);
            }
            if engine.is_stopped() && self.world.image_is_finished() {
                self.world.fuse = None;
                return Ok(Flow::Quiet);
            }
            if self.world.now() >= limit {
                return Err(format!("stuck: the engine does not stop: {}", engine.where_all_stands()));
            }
            if self.step(engine, client, limit)? == Flow::Crash {
                return Ok(Flow::Crash);
            }
        }
    }

    /// Ends a life: an orderly stop must have left nothing behind; else the machine dies.
    fn end_life(&mut self, mut engine: Engine<SimArena>, life: &Life, stopped: bool) -> Result<(), String> {
        self.stats.cycles += 1;
        self.scrubs.judge(&engine, self.errors_ever || self.errors_legal())?;
        self.stats.status(&engine.status());
        self.damaged |= self.world.injected.harmed() > 0;
        self.keep_events(&mut engine);
        let failed = self.errors_legal();
        self.errors_ever |= failed;
        self.stats.io_error_lives += u64::from(failed);
        // One that was full, and had no place to go.
        let failed = failed || self.alone.is_some() && engine.status().state == "read-only";
        if stopped {
            self.stats.count("clean-stop");
            if self.world.busy() {
                return Err("stopped with I/O in flight".into());
            }
            let arena = engine.into_arena();
            // What is being copied has memory still.
            let pools = Pool::ALL.into_iter().filter(|_| self.world.replacement().is_none());
            for pool in pools.collect::<Vec<_>>() {
                let left = arena.outstanding(pool);
                if left > 0 {
                    return Err(format!("stopped with {left} buffers of {pool:?} not given back"));
                }
            }
            if !failed {
                self.model.cover_all();
            }
            self.fresh.cover_all();
            drop(arena);
            // What an orderly stop promises must not need the cache.
            let style = self.rng.pick(&CutStyle::ALL);
            self.cut_power(style, 0);
            self.forget();
        } else {
            let death = life.death.unwrap_or(Death::Kill);
            self.die(engine, death, life.torn_sectors);
        }
        let spoiled = life.bad_sectors + u32::from(self.scrubs.rots());
        if spoiled + life.decays > 0 {
            self.world.write_back();
        }
        self.spoil(spoiled)?;
        self.decay(life.decays, life.decay_payload);
        self.heal_unnoticed_rots()?;
        self.remember_metadata();
        Ok(())
    }

    fn keep_events(&mut self, engine: &mut Engine<SimArena>) {
        let events = engine.take_events().into_iter().map(|e| e.message);
        self.events.extend(events.inspect(|e| self.named |= names_place(e)));
        let extra = self.events.len().saturating_sub(EVENTS);
        self.events.drain(..extra);
    }

    /// The engine dies where it stands.
    fn die(&mut self, mut engine: Engine<SimArena>, death: Death, torn_sectors: u32) {
        let (name, fault) = match death {
            Death::PowerCut(_) => ("power-cut", Fault::PowerCut),
            Death::Kill => ("kill", Fault::Kill),
        };
        self.stats.count(name);
        self.crashed_in = engine.stages();
        self.crashed_in.iter().for_each(|s| self.world.coverage.hit(s, fault));
        self.keep_events(&mut engine);
        drop(engine);
        match death {
            Death::PowerCut(style) => self.cut_power(style, torn_sectors),
            Death::Kill => self.world.die(death),
        }
        self.forget();
    }

    /// The model takes the crash; rates and times are calm until the next life's work.
    fn forget(&mut self) {
        self.heal_fast_rots();
        self.fresh.crash();
        let i = &self.world.injected;
        if i.reads + i.writes + i.flushes + i.harmed() + i.vanished > 0 {
            self.fresh.clear();
        }
        for sector in self.model.crash() {
            self.unverified[(u64::from(sector) * SECTOR as u64 / UNIT) as usize] = true;
        }
        self.world.rates = FaultRates::default();
        self.begin_life();
    }

    /// Reads back what was written lately and a sample of the rest, or all.
    fn verify(&mut self, engine: &mut Engine<SimArena>, all: bool) -> Result<(), String> {
        let mut ops = Vec::new();
        for unit in 0..self.unverified.len() {
            if !(all || self.unverified[unit] || self.rng.one_in(8)) {
                continue;
            }
            let offset = unit as u64 * UNIT;
            let len = UNIT.min(self.plan.size_bytes - offset);
            ops.push(Op { kind: OpKind::Read, offset, len, fua: false, pause_ns: 0, drain: false });
        }
        self.read_all(engine, &ops)
    }

    /// Reads, and has the model judge it.
    fn read_all(&mut self, engine: &mut Engine<SimArena>, ops: &[Op]) -> Result<(), String> {
        let mut client = Client::new(ops, 8);
        let flow = self.drive(engine, &mut client, None)?;
        assert!(flow == Flow::Quiet, "nothing crashes while verifying");
        self.stats.verified_bytes += ops.iter().map(|op| op.len).sum::<u64>();
        Ok(())
    }

    /// The offline check finds nothing, and writes nothing.
    fn check(&mut self) -> Result<(), String> {
        self.stats.count("check");
        let mut task = bimetal_engine::check(self.arena(), self.devices(), self.options());
        self.world.read_only = true;
        let result = self.task("check", &mut task);
        self.world.read_only = false;
        match result? {
            Stretch::Done(Ok(report)) if report.findings.is_empty() => Ok(()),
            Stretch::Done(Ok(report)) => {
                let f = &report.findings[0];
                let count = report.findings.len();
                Err(format!(
                    "check: {count} findings; the first, on {:?} at {}: {}",
                    f.device, f.offset, f.what
                ))
            }
            Stretch::Done(Err(error)) => Err(format!("check: {error}")),
            Stretch::Crashed => Err("check: it crashed without a fuse".into()),
        }
    }

    /// The end of a run: all must be there, and the volume must stop and be clean.
    fn close(&mut self) -> Result<(), String> {
        self.begin_life();
        self.open_within(self.plan.limits());
        self.settle_log_tail()?;
        let mut engine = match self.try_open()? {
            Stretch::Done(Ok(engine)) => engine,
            Stretch::Done(Err(error)) if self.damaged => match self.refused(&error)? {
                Some(engine) => engine,
                None => return Ok(()),
            },
            Stretch::Done(Err(error)) => return Err(format!("the last opening: {error}")),
            Stretch::Crashed => return Err("the last opening: it crashed without a fuse".into()),
        };
        self.opened(&engine)?;
        let stopped = self.verify(&mut engine, true).and_then(|()| {
            let mut client = Client::new(&[], 1);
            self.rest(&mut engine, &mut client)?;
            self.verify_fresh(&mut engine)?;
            self.stop(&mut engine, &mut client)
        });
        self.keep_events(&mut engine);
        stopped?;
        drop(engine);
        self.world.die(Death::Kill);
        let may_lack = self.errors_ever || self.damaged || self.is_replacing();
        if may_lack { Ok(()) } else { self.check() }
    }
}

/// Whether a message says where something failed.
fn names_place(message: &str) -> bool {
    let device = NAMES.iter().any(|name| message.contains(name)) || message.contains("newest copy was lost");
    device && message.contains("byte")
}
