//! Making and opening the volume, with crashes and errors on the way.

use super::*;
use crate::plan::Opening;
use crate::world::Injected;
use crate::world::storm::Storm;
use bimetal_engine::coverage::Stage;
use bimetal_units::SLOW;

impl Run<'_> {
    pub(super) fn volume_id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.plan.seed.to_le_bytes());
        id[8..].copy_from_slice(&self.volumes.to_le_bytes());
        id
    }

    pub(super) fn options(&self) -> OpenOptions {
        OpenOptions { volume_id: Some(self.volume_id()), tuning: self.limits.tuning.clone() }
    }

    /// A world from its beginning: refused attempts leave no trace, so that a plan replays what its drawing ran.
    fn make_world(&mut self) {
        let g = self.plan.geometry;
        let disk = |size: u64, salt| Disk::new(size.next_multiple_of(4096), salt);
        let seed = self.plan.seed;
        let [fast_bytes, slow_bytes] = match self.image_layout() {
            None => [g.fast_bytes, g.slow_bytes],
            Some(layout) => [layout.maps()[1] + PAGE, layout.end()],
        };
        let disks = vec![disk(fast_bytes, seed ^ 0xfa57), disk(slow_bytes, seed ^ 0x510e)];
        let trace = self.world.trace;
        self.world = World::new(disks, seed);
        self.world.trace = trace;
        if let Some(export) = self.plan.export {
            self.world.put_behind(export);
        }
    }

    /// Makes the volume; sizes and options that are refused grow until they are not.
    pub(super) fn create(&mut self) -> Result<(), String> {
        let fresh = self.world.disks.is_empty();
        self.volumes = if fresh { 1 } else { self.volumes + 1 };
        for _ in 0..16 {
            if fresh {
                self.make_world();
            }
            let g = self.plan.geometry;
            let options = CreateOptions {
                chunk_bytes: g.chunk_bytes,
                landing_bytes: g.landing_bytes,
                area_bytes: g.area_bytes,
                refs_per_page: g.refs_per_page,
                marking: g.marking,
                ..CreateOptions::new(self.volume_id())
            };
            let mut devices = self.devices();
            if let Some(layout) = self.image_layout() {
                [devices[0].size_bytes, devices[1].size_bytes] = [layout.fast_bytes, layout.slow_bytes];
            }
            let mut task = bimetal_engine::create(self.arena(), devices, options);
            let error = match self.task("create", &mut task)? {
                Stretch::Done(Ok(())) => {
                    self.world.layout = None;
                    return Ok(());
                }
                Stretch::Done(Err(error)) => error,
                Stretch::Crashed => return Err("create: it crashed without a fuse".into()),
            };
            self.yield_to(&error)?;
        }
        Err(format!("create refuses every geometry up to {:?}", self.plan.geometry))
    }

    fn yield_to(&mut self, error: &OpenError) -> Result<(), String> {
        let g = &mut self.plan.geometry;
        match error {
            OpenError::TooSmall { device, need_bytes, .. } => {
                let size = need_bytes + g.slack_bytes;
                *(if device == NAMES[0] { &mut g.fast_bytes } else { &mut g.slow_bytes }) = size;
            }
            OpenError::BadOption { .. } if g.area_bytes.is_some() => g.area_bytes = None,
            OpenError::BadOption { .. } => {
                let twice = g.landing_bytes.map(|b| b * 2);
                g.landing_bytes = twice.filter(|&b| b < g.fast_bytes.max(1 << 20));
            }
            _ => return Err(format!("create: {error}")),
        }
        Ok(())
    }

    /// Opens the new volume for its size. False: the limits drawn are refused, and are tame from now on.
    pub(super) fn measure(&mut self) -> Result<bool, String> {
        match self.try_open()? {
            Stretch::Done(Ok(engine)) => {
                self.plan.size_bytes = engine.size_bytes();
                drop(engine);
                self.world.die(Death::Kill);
                Ok(true)
            }
            Stretch::Done(Err(OpenError::BadOption { .. } | OpenError::Memory { .. })) => {
                self.plan.tuning = Tuning::default();
                self.limits.tuning = Tuning::default();
                self.stats.count("refused-tuning");
                Ok(false)
            }
            Stretch::Done(Err(error)) => Err(format!("the first opening: {error}")),
            Stretch::Crashed => Err("the first opening: it crashed without a fuse".into()),
        }
    }

    /// Serves a task to its end, or to the fuse's.
    pub(super) fn task<T>(&mut self, name: &str, task: &mut Task<SimArena, T>) -> Result<Stretch<T>, String> {
        let limit = self.world.now().after(self.patience_ns);
        self.world.progress();
        loop {
            if task.stage() == Some(Stage::OpenRaise) {
                self.world.fuse = self.raise_fuse.take().or(self.world.fuse);
            }
            self.settle_successor();
            let flow = self.world.pump(task)?;
            self.note_freeze();
            if flow == Flow::Crash {
                return Ok(Stretch::Crashed);
            }
            if let Some(result) = task.take_result() {
                self.world.fuse = None;
                if self.world.busy() {
                    return Err(format!("{name}: it ended with I/O in flight"));
                }
                return Ok(Stretch::Done(result));
            }
            if self.world.now() >= limit {
                return Err(format!("{name}: stuck at {:?}", task.stage()));
            }
            if self.world.advance(task, limit)? == Flow::Crash {
                return Ok(Stretch::Crashed);
            }
        }
    }

    /// With both devices, or without the slow one where it is missing. From then on an image is kept of a protected volume.
    fn opening(&mut self) -> Task<SimArena, Result<Engine<SimArena>, OpenError>> {
        self.join_successor();
        self.protect();
        match self.alone {
            None => bimetal_engine::open(self.arena(), self.devices(), self.options()),
            Some(_) => {
                self.world.missing = Some(usize::from(SLOW.0));
                bimetal_engine::open_alone(self.arena(), self.devices(), self.options())
            }
        }
    }

    pub(super) fn try_open(&mut self) -> Result<Stretch<Result<Engine<SimArena>, OpenError>>, String> {
        self.world.truth.opening_begins();
        let mut task = self.opening();
        let mut result = self.task("open", &mut task)?;
        let own = self.plan.limits();
        if matches!(result, Stretch::Done(Err(OpenError::Memory { .. }))) && self.limits != own {
            // With less memory than the volume was used with, it may be refused; with what it had, it is not.
            self.stats.count("refused-limits");
            self.world.die(Death::Kill);
            self.limits = own;
            task = self.opening();
            result = self.task("open", &mut task)?;
        }
        if matches!(result, Stretch::Crashed) {
            self.stats.recovery_stages = task.stages();
        }
        Ok(result)
    }

    /// Opens as the life wants: with crashes on the way, then with errors, then for good.
    /// `None`: the volume cannot be opened, and nothing is left of it that could be judged.
    pub(super) fn open(&mut self, life: &Life) -> Result<Option<Engine<SimArena>>, String> {
        self.failed_while_opening = false;
        self.settle_log_tail()?;
        self.look_at_each_alone(life)?;
        for &(steps, death) in &life.opening.crashes {
            self.world.fuse = Some(steps);
            match self.try_open()? {
                Stretch::Done(Ok(engine)) => return Ok(Some(engine)),
                Stretch::Done(Err(error)) if self.damaged => return self.refused(&error),
                Stretch::Done(Err(error)) => return Err(format!("open: {error}")),
                Stretch::Crashed => {
                    self.crash_in_recovery(death);
                    // What said that groups were durable may itself have been in a cache that a power cut takes.
                    self.settle_log_tail()?;
                    self.look_at_each_alone(life)?;
                }
            }
        }
        for &(steps, death) in &life.opening.raises {
            self.raise_fuse = Some(steps);
            let result = self.try_open()?;
            self.raise_fuse = None;
            match result {
                Stretch::Done(Ok(engine)) => return Ok(Some(engine)),
                Stretch::Done(Err(error)) if self.damaged => return self.refused(&error),
                Stretch::Done(Err(error)) => return Err(format!("open: {error}")),
                Stretch::Crashed => self.crash_in_recovery(death),
            }
            self.look_at_each_alone(life)?;
            // Where one is on its way the newer one may be all that names it.
            if !self.is_replacing() {
                self.hurt_newer_superblock();
            }
        }
        if life.opening.rates.is_some() || life.opening.storm != Storm::default() {
            match self.open_in_trouble(&life.opening)? {
                Some(Ok(engine)) => return Ok(Some(engine)),
                Some(Err(error)) => return self.refused(&error),
                None => self.settle_log_tail()?,
            }
        }
        match self.try_open()? {
            Stretch::Done(Ok(engine)) => Ok(Some(engine)),
            Stretch::Done(Err(error)) if self.damaged => self.refused(&error),
            Stretch::Done(Err(error)) => Err(format!("open: {error}")),
            Stretch::Crashed => Err("open: it crashed without a fuse".into()),
        }
    }

    /// What would be left if either device were missing, where the life wants to see that.
    fn look_at_each_alone(&mut self, life: &Life) -> Result<(), String> {
        self.settle_places();
        if life.lone {
            self.look_without_slow()?;
        }
        if life.image {
            self.look_at_image()?;
        }
        // What the slow device calls good it knew before it was left behind.
        if life.salvage && !self.left_behind {
            self.look_without_fast()?;
        }
        Ok(())
    }

    /// An attempt while devices fail and worse. It may fail, and says so clearly. `None`: it must be tried again.
    fn open_in_trouble(
        &mut self,
        opening: &Opening,
    ) -> Result<Option<Result<Engine<SimArena>, OpenError>>, String> {
        let before = self.world.injected;
        self.world.rates = opening.rates.unwrap_or_default();
        self.world.begin(opening.storm.clone());
        self.world.fuse = opening.storm_crash.map(|(steps, _)| steps);
        self.patience_ns = STUCK_IN_STORM_NS;
        let result = self.try_open()?;
        self.patience_ns = STUCK_NS;
        self.world.rates = FaultRates::default();
        self.world.calm();
        let failed = self.world.injected.total() > before.total();
        if self.world.injected.harmed() > before.harmed() {
            self.damaged = true;
            self.fresh.clear();
        }
        self.count_trouble(&before);
        match result {
            Stretch::Done(Ok(engine)) => {
                // What was wrong with the devices while it opened excuses nothing that it says afterwards, but of what it
                // read then and does without.
                self.failed_while_opening = failed;
                self.begin_life();
                // But a flush for its image that failed then: whoever asks for one next is told.
                self.world.injected.flushes += u64::from(failed && self.plan.protect.is_some());
                return Ok(Some(Ok(engine)));
            }
            Stretch::Done(Err(error)) if failed => {
                self.must_be_clear(&error)?;
                self.after_failed_open();
            }
            Stretch::Done(Err(error)) if self.damaged => return Ok(Some(Err(error))),
            Stretch::Done(Err(error)) => return Err(format!("open: {error}")),
            Stretch::Crashed => {
                let (_, death) = opening.storm_crash.ok_or("open: it crashed without a fuse")?;
                self.crash_in_recovery(death);
                self.begin_life();
            }
        }
        Ok(None)
    }

    fn count_trouble(&mut self, before: &Injected) {
        let now = self.world.injected;
        self.stats.count("trouble-while-opening");
        let kinds = [
            ("vanished-while-opening", now.vanished > before.vanished),
            ("slow-while-opening", now.stalls + now.ramps > before.stalls + before.ramps),
            ("harm-while-opening", now.harmed() > before.harmed()),
            ("error-while-opening", now.total() > before.total()),
        ];
        kinds.into_iter().filter(|(_, happened)| *happened).for_each(|(name, _)| self.stats.count(name));
    }

    /// Devices that only failed are not called corrupt: the sentence says that something could not be read.
    fn must_be_clear(&self, error: &OpenError) -> Result<(), String> {
        let says = |what: &str| ["cannot be read", "could not be read"].iter().any(|s| what.contains(s));
        match error {
            OpenError::Device { .. } => Ok(()),
            OpenError::Corrupt { what, .. } if says(what) => Ok(()),
            _ if self.damaged => Ok(()),
            error => Err(format!("open: devices failed for a while, and it said: {error}")),
        }
    }

    /// The process gives up after a failed opening: devices live on.
    fn after_failed_open(&mut self) {
        self.stats.count("failed-open");
        self.world.die(Death::Kill);
        self.begin_life();
    }

    fn crash_in_recovery(&mut self, death: Death) {
        let (name, fault) = match death {
            Death::PowerCut(_) => ("power-cut-in-recovery", Fault::CutInRecovery),
            Death::Kill => ("kill-in-recovery", Fault::KillInRecovery),
        };
        self.stats.count(name);
        let stages = self.stats.recovery_stages;
        stages.iter().for_each(|s| self.world.coverage.hit(s, fault));
        self.crashed_in.iter().for_each(|s| self.world.coverage.hit(s, Fault::CrashInRecovery));
        self.world.die(death);
    }
}
