//! Counts of what was done to the machine.

use super::storm::Harm;

/// Counts of what was done to the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Injected {
    /// Reads that failed.
    pub reads: u64,
    /// Writes that failed.
    pub writes: u64,
    /// Flushes that failed.
    pub flushes: u64,
    /// Discards that failed.
    pub discards: u64,
    /// Devices that lost cached writes.
    pub lost_caches: u64,
    /// Reads that met a bad sector.
    pub bad_sectors: u64,
    /// Writes that were acknowledged and harmed, by [`Harm`].
    pub harms: [u64; Harm::ALL.len()],
    /// Stalls.
    pub stalls: u64,
    /// Times that a device slowed down step by step.
    pub ramps: u64,
    /// Devices that vanished.
    pub vanished: u64,
    /// Times that the connections to an export broke.
    pub breaks: u64,
    /// Servers that died and lost what was not flushed.
    pub forgot: u64,
    /// Requests that waited too long for an export that was away.
    pub timed_out: u64,
    /// Times that answers came after their connection had ended.
    pub late_answers: u64,
}

impl Injected {
    /// All errors together.
    pub fn total(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.discards + self.bad_sectors
    }

    /// Writes that were acknowledged and harmed.
    pub fn harmed(&self) -> u64 {
        self.harms.iter().sum()
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Injected) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.discards += other.discards;
        self.lost_caches += other.lost_caches;
        self.bad_sectors += other.bad_sectors;
        self.harms.iter_mut().zip(other.harms).for_each(|(mine, theirs)| *mine += theirs);
        self.stalls += other.stalls;
        self.ramps += other.ramps;
        self.vanished += other.vanished;
        self.breaks += other.breaks;
        self.forgot += other.forgot;
        self.timed_out += other.timed_out;
        self.late_answers += other.late_answers;
    }
}
