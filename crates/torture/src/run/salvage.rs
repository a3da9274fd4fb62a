//! What would be left if the fast device were lost, and the power of the slow one cut with it: the slow one is opened alone. What
//! it calls good must be what the model allows, so never stale; the rest is an error; and what it calls suspect is, where that is
//! asked for, the block's own, however old. Nothing is written.
//!
//! It is done on copies of the devices, in a world of its own, so that whatever else a seed does stays as it was.

use super::lone::{Look, read_what_is_lost, same};
use super::*;
use bimetal_engine::action::RequestKind;
use bimetal_engine::loss::{LossClass, LossRange, Losses, Suspects};
use bimetal_units::{FAST, SLOW};

/// The generator's number.
const SALVAGE: u64 = 0x7361_6c76;

impl Run<'_> {
    /// Looks at the slow device alone, first without what it calls suspect, then with it. Not where devices were damaged: nothing
    /// holds what is read then against a checksum.
    pub(super) fn look_without_fast(&mut self) -> Result<(), String> {
        if self.damaged || self.world.injected.harmed() > 0 {
            return Ok(());
        }
        let mut rng = Rng::new(self.plan.seed ^ self.world.now().0, SALVAGE);
        let mut disks = self.world.disks.clone();
        // A process that was killed leaves the cache as it was, and hides a flush that is missing.
        disks[usize::from(SLOW.0)].power_cut(rng.pick(&CutStyle::ALL), &mut rng);
        let alone = |what| format!("without the fast device: {what}");
        let losses = self.look_at_slow(&disks, Suspects::Refused).map_err(alone)?;
        self.look_at_slow(&disks, Suspects::Read).map_err(alone)?;
        self.stats.count("looked-without-fast");
        let of = |class| losses.bytes(class);
        let (lost, suspect) = (of(LossClass::Lost), of(LossClass::Suspect));
        if lost + suspect < self.plan.size_bytes {
            self.stats.count("good-without-fast");
        }
        if suspect > 0 {
            self.stats.count("suspect-without-fast");
        }
        Ok(())
    }

    fn look_at_slow(&self, disks: &[Disk], suspects: Suspects) -> Result<Losses, String> {
        let mut world = World::new(disks.to_vec(), self.plan.seed);
        (world.read_only, world.missing) = (true, Some(usize::from(FAST.0)));
        let task =
            bimetal_engine::open_degraded(self.arena(), self.devices(), FAST, self.options(), suspects);
        let mut look = Look::open(world, task)?.map_err(|error| format!("refused: {error}"))?;
        let losses = look.engine.all_losses();
        let size = look.engine.size_bytes();
        let (lost, suspect) = (losses.bytes(LossClass::Lost), losses.bytes(LossClass::Suspect));
        let told = look.engine.loss().cloned().ok_or("it does not say that a device is missing")?;
        if (told.lost_bytes, told.suspect_bytes, told.good_bytes) != (lost, suspect, size - lost - suspect) {
            return Err(format!("it says {told:?}, and lists {lost} lost and {suspect} suspect"));
        }
        if told.as_of_unix_s.is_none() {
            return Err("nothing is known of it, though nothing was damaged".into());
        }
        let mut at = 0;
        for range in &losses.ranges {
            if range.offset < at || range.len == 0 || range.offset + range.len > size {
                return Err(format!("losses are not in order, or not in the volume: {range:?} behind {at}"));
            }
            look.read_what_is_good(&self.model, self.damaged, at..range.offset)?;
            match (range.class, suspects) {
                (LossClass::Suspect, Suspects::Read) => self.read_what_is_suspect(&mut look, range)?,
                _ => read_what_is_lost(&mut look, range)?,
            }
            at = range.offset + range.len;
        }
        look.read_what_is_good(&self.model, self.damaged, at..size)?;
        look.rest_and_close()?;
        same(&disks[usize::from(SLOW.0)], &look.world.disks[usize::from(SLOW.0)]).map(|()| losses)
    }

    /// What is suspect is zeros, or was written to this very sector once.
    fn read_what_is_suspect(&self, look: &mut Look, range: &LossRange) -> Result<(), String> {
        let (mut at, end) = (range.offset, range.offset + range.len);
        while at < end {
            let len = UNIT.min(end - at);
            let data = look.ask(RequestKind::Read, at, len)?;
            let data = data.map_err(|error| format!("\"{error}\" for {at}+{len}, which is suspect"))?;
            for (i, found) in data.chunks_exact(SECTOR).enumerate() {
                let sector = at / SECTOR as u64 + i as u64;
                if let Some(other) = self.model.sector_of(found).filter(|other| *other != sector) {
                    return Err(format!("suspect sector {sector} holds what was written to sector {other}"));
                }
            }
            at += len;
        }
        Ok(())
    }
}
