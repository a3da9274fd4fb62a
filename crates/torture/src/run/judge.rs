//! What damage may lead to. A volume may stay closed for what `docs/FORMAT.md` lists and for nothing else; so with that
//! made whole again, whatever else is damaged, it must open. It does not stay closed then: the run goes on.

use super::*;
use crate::anatomy::{Anatomy, Part};
use bimetal_engine::format::geometry::{HEADER_COPIES, header_at};
use bimetal_engine::format::header::CheckpointHeader;
use bimetal_engine::format::log::{GroupHeader, SegmentHeader};
use bimetal_units::{Area, FAST};
use std::collections::BTreeSet;

/// A damaged page and what it is part of; none for what the slow device has beside superblocks.
type Wounded = ((usize, u64), Option<Part>);

impl Run<'_> {
    /// The devices as they would be had nothing damaged them.
    fn whole(&self) -> Vec<Disk> {
        let mut disks = self.world.disks.clone();
        for wound in self.world.truth.wounds(&disks) {
            self.world.truth.heal(&mut disks, wound);
        }
        disks
    }

    /// Where the parts of the volume lie, damage aside.
    pub(super) fn anatomy(&self) -> Option<Anatomy> {
        Anatomy::of(&self.whole()[0], self.volume_id())
    }

    /// The same where checkpoint headers are what stands there: who opens the volume may have to go on from an older one.
    fn anatomy_of_headers_found(&self) -> Option<Anatomy> {
        let mut fast = self.whole().swap_remove(0);
        for page in header_at(0) / PAGE..header_at(2) / PAGE {
            let mut found = [0; PAGE_BYTES];
            if !self.world.disks[0].has_bad(page) {
                self.world.disks[0].peek(page, &mut found);
            }
            fast.put_back(page, &found);
        }
        Anatomy::of(&fast, self.volume_id())
    }

    fn wounded(&self, anatomy: &Anatomy) -> Vec<Wounded> {
        let slow = anatomy.superblocks(1);
        let part = |(device, page): (usize, u64)| match device {
            0 => Some(anatomy.part(page)),
            _ => slow.contains(&page).then_some(Part::Superblock),
        };
        self.world.truth.wounds(&self.world.disks).into_iter().map(|wound| (wound, part(wound))).collect()
    }

    /// A volume with damaged devices was refused: legal for what was damaged of what may close it.
    pub(super) fn refused(&mut self, error: &OpenError) -> Result<Option<Engine<SimArena>>, String> {
        self.stats.count("open-refused-after-damage");
        self.world.die(Death::Kill);
        let Some(anatomy) = self.anatomy() else { return Ok(None) };
        let wounded = self.wounded(&anatomy);
        let mut closing = may_close(&wounded, &anatomy);
        if let Some(found) = self.anatomy_of_headers_found() {
            closing.extend(may_close(&self.wounded(&found), &found));
        }
        let listed = |wounds: &[Wounded]| {
            let names = wounds.iter().take(12).map(|((device, page), part)| match part {
                Some(part) => format!("{part:?} at byte {} of {}", page * PAGE, NAMES[*device]),
                None => format!("byte {} of {}", page * PAGE, NAMES[*device]),
            });
            names.collect::<Vec<_>>().join(", ")
        };
        if closing.is_empty() {
            let what = listed(&wounded);
            return Err(format!(
                "open: refused, although nothing is damaged that may close it: {error} ({what})"
            ));
        }
        for (wound, _) in &closing {
            self.world.truth.heal(&mut self.world.disks, *wound);
        }
        match self.try_open()? {
            Stretch::Done(Ok(engine)) => Ok(Some(engine)),
            Stretch::Done(Err(error)) => {
                let left: Vec<_> = wounded.into_iter().filter(|w| !closing.contains(w)).collect();
                let what = listed(&left);
                Err(format!("open: refused, with all whole again that may close it: {error} ({what})"))
            }
            Stretch::Crashed => Err("open: it crashed without a fuse".into()),
        }
    }

    /// Of damage to groups that nothing says were durable nothing tells: the log ends before them, and what they made
    /// durable is lost, legally; their slots may hold other chunks. The volume is opened so, which must end in an answer,
    /// and whatever it holds then is not judged. Then the groups are made whole again, and the run goes on.
    pub(super) fn settle_log_tail(&mut self) -> Result<(), String> {
        if !self.damaged {
            return Ok(());
        }
        let wounds: BTreeSet<_> = self.world.truth.wounds(&self.world.disks).into_iter().collect();
        if !wounds.iter().any(|(device, _)| *device == 0) {
            return Ok(());
        }
        let Some(anatomy) = self.anatomy() else { return Ok(()) };
        let known = self.known_durable(&anatomy);
        let mut lost: Vec<(usize, u64)> = Vec::new();
        for group in anatomy.groups.iter().filter(|group| group.seq > known) {
            lost.extend(wounds.range((0, group.pages.start)..(0, group.pages.end)));
            // The header of a segment that begins with it.
            let before = (0, group.pages.start.wrapping_sub(1));
            if wounds.contains(&before) && anatomy.part(before.1) == Part::SegmentHeader {
                lost.push(before);
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        self.stats.count("log-tail-lost");
        let disks = self.world.disks.clone();
        let truth = self.world.truth.clone();
        _ = self.try_open()?;
        self.world.die(Death::Kill);
        (self.world.disks, self.world.truth) = (disks, truth);
        for wound in lost {
            self.world.truth.heal(&mut self.world.disks, wound);
        }
        Ok(())
    }

    /// A volume was opened on devices with damage: what was missing then is missing for good, but where opening did not
    /// look, as in segments with an index.
    pub(super) fn decide(&mut self) -> Result<(), String> {
        if !self.damaged {
            return Ok(());
        }
        let Some(anatomy) = self.anatomy() else { return Ok(()) };
        self.must_stand_twice(&anatomy)?;
        let indexed = anatomy.indexed(&self.world.disks[0], self.volume_id());
        self.world.truth.decided(|device, page| {
            // A superblock that was lost stays behind the other one until it is written again, and of metadata that is there
            // twice an opening looks at the second copy only where the first is not good.
            let twice =
                || matches!(anatomy.part(page), Part::Root | Part::Directory | Part::Map | Part::Sums);
            anatomy.superblocks(device).contains(&page)
                || device == 0 && twice()
                || device == 0 && indexed.iter().any(|s| s.contains(&page))
        });
        Ok(())
    }

    /// An opening writes what it could not read of superblocks and checkpoint headers again, so that the next bad sector costs
    /// nothing either. Where its writes are harmed, some of that may not have happened.
    fn must_stand_twice(&self, anatomy: &Anatomy) -> Result<(), String> {
        let headers = header_at(0) / PAGE..header_at(2) / PAGE;
        let fast = headers.chain(anatomy.superblocks(0)).map(|page| (0, page));
        let slow = anatomy.superblocks(1).map(|page| (1, page));
        let bad = fast.chain(slow).find(|(device, page)| self.world.disks[*device].has_bad(*page));
        match bad.filter(|_| !self.harms) {
            Some((device, page)) => Err(format!(
                "open: byte {} of {} could not be read, and is not written again",
                page * PAGE,
                NAMES[device]
            )),
            None => Ok(()),
        }
    }

    /// The last group that something on the fast device says was durable, where an opening finds it (*Claims behind the end*).
    pub(super) fn known_durable(&self, anatomy: &Anatomy) -> u64 {
        let (disk, id) = (&self.world.disks[0], self.volume_id());
        let mut page = vec![0; PAGE_BYTES];
        let mut known = 0;
        for (place, copy) in (0..2).flat_map(|place| (0..HEADER_COPIES).map(move |copy| (place, copy))) {
            let at = header_at(place) / PAGE + copy;
            disk.peek(at, &mut page);
            if !disk.has_bad(at) {
                known = known.max(CheckpointHeader::decode(&page, &id, place).map_or(0, |h| h.durable.0));
            }
        }
        // A group's header may take several pages.
        let mut pages = vec![0; 8 * PAGE_BYTES];
        let (first, last) = (anatomy.geo.areas_at / PAGE, anatomy.geo.second_superblock_at(FAST) / PAGE);
        let claiming = anatomy.claiming(disk, id);
        for at in first..last {
            let area = at - (at - first) % u64::from(anatomy.geo.area_blocks());
            if disk.has_bad(at) || !disk.peek(at, &mut page) {
                continue;
            }
            if page.starts_with(b"BMTLsegm") && claiming.headers.contains(&area) {
                let area = Area(u32::from_le_bytes(page[64..68].try_into().expect("four bytes")));
                known = known.max(SegmentHeader::decode(&page, &id, area).map_or(0, |h| h.durable.0));
            } else if page.starts_with(b"BMTLgrup") && claiming.groups.contains(&area) {
                let end = last.min(at + 8);
                for (i, part) in (at..end).zip(pages.chunks_exact_mut(PAGE_BYTES)) {
                    disk.peek(i, part);
                }
                known = known.max(GroupHeader::decode(&pages, &id).map_or(0, |(h, ..)| h.durable.0));
            }
        }
        known
    }
}

/// Of wounds, those that may keep a volume closed: of what there are two copies of, only where both are damaged.
fn may_close(wounded: &[Wounded], anatomy: &Anatomy) -> Vec<Wounded> {
    let copies = |of: &Wounded| wounded.iter().filter(|w| w.0.0 == of.0.0 && w.1 == of.1).count();
    let closes = |wound: &&Wounded| match wound.1 {
        Some(Part::Superblock | Part::Header(_)) => copies(wound) > 1,
        Some(Part::Index) => hides_the_end(wounded, anatomy, wound.0.1),
        Some(part) if part.may_close() => {
            let twin = anatomy.twin(wound.0.1);
            twin.is_none_or(|twin| wounded.iter().any(|other| other.0 == (0, twin)))
        }
        Some(_) => false,
        None => false,
    };
    wounded.iter().filter(closes).copied().collect()
}

/// Whether of an index both are damaged that tell where the groups of the segment end: its trailer, and a block before it.
fn hides_the_end(wounded: &[Wounded], anatomy: &Anatomy, page: u64) -> bool {
    let (first, pages) = (anatomy.geo.areas_at / PAGE, u64::from(anatomy.geo.area_bytes) / PAGE);
    let area = |page: u64| (page - first) / pages;
    let of_it = wounded.iter().filter(|w| w.1 == Some(Part::Index) && area(w.0.1) == area(page));
    let of_it: Vec<u64> = of_it.map(|w| w.0.1).collect();
    of_it.len() > 1 && of_it.iter().any(|page| (page - first) % pages == pages - 1)
}
