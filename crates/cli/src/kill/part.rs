//! One connection's part of the volume, and what it may hold: the model is that of the torture.

use bimetal_torture::model::{FlushHandle, Mismatch, Model, ReadHandle, SECTOR, WriteHandle};

/// Connections take turns in the address space by extents of this many bytes, so that they never overlap
/// but share areas, segments and groups.
pub(crate) const EXTENT: u64 = 1 << 20;
pub(crate) const EXTENT_SECTORS: u64 = EXTENT / SECTOR as u64;

/// What is known of the sectors of a part. They are numbered through, as if its extents lay one behind the other.
pub(crate) struct Part {
    place: u64,
    parts: u64,
    extents: u64,
    model: Model,
}

impl Part {
    /// The part of this place among so many, of a new volume. `salt` sets its data apart from that of the others.
    pub(crate) fn new(place: u64, parts: u64, volume_bytes: u64, salt: u64) -> Part {
        let extents = volume_bytes / EXTENT / parts;
        Part { place, parts, extents, model: Model::new(extents * EXTENT, salt) }
    }

    pub(crate) fn extents(&self) -> u64 {
        self.extents
    }

    /// Where in the volume a sector is, bytes.
    pub(crate) fn byte_of(&self, sector: u64) -> u64 {
        let extent = sector / EXTENT_SECTORS * self.parts + self.place;
        extent * EXTENT + sector % EXTENT_SECTORS * SECTOR as u64
    }

    /// A write begins; its bytes.
    pub(crate) fn write(&mut self, first: u64, count: u64, fua: bool) -> (WriteHandle, Vec<u8>) {
        let (offset, mut bytes) = (bytes(first), vec![0; bytes(count) as usize]);
        let handle = self.model.begin_write(offset, bytes.len() as u64, fua);
        self.model.fill(handle, offset, &mut bytes);
        (handle, bytes)
    }

    /// Zeroing begins, or a discard of whole blocks.
    pub(crate) fn zero(&mut self, first: u64, count: u64, fua: bool) -> WriteHandle {
        self.model.begin_zeroes(bytes(first), bytes(count), fua)
    }

    /// It was answered.
    pub(crate) fn written(&mut self, handle: WriteHandle) {
        self.model.end_write(handle, true);
    }

    pub(crate) fn begin_flush(&mut self) -> FlushHandle {
        self.model.begin_flush()
    }

    pub(crate) fn end_flush(&mut self, handle: FlushHandle) {
        self.model.end_flush(handle, true);
    }

    pub(crate) fn begin_read(&mut self) -> ReadHandle {
        self.model.begin_read()
    }

    /// A read was answered; says what is wrong with it.
    pub(crate) fn end_read(&mut self, handle: ReadHandle, first: u64, data: &[u8]) -> Result<(), String> {
        self.model.end_read(handle, bytes(first), data).map_err(|wrong| self.describe(&wrong))
    }

    /// The server is gone: what was not flushed may be.
    pub(crate) fn crash(&mut self) {
        self.model.crash();
    }

    /// Checks sectors that were read after a crash, and settles on what they hold. Counts those that hold something older
    /// than what was written last.
    pub(crate) fn recovered(&mut self, first: u64, data: &[u8]) -> Result<u64, String> {
        let is_older = |(sector, bytes): &(u64, &[u8])| !self.model.is_newest(*sector, bytes);
        let older = (first..).zip(data.chunks_exact(SECTOR)).filter(is_older).count() as u64;
        let handle = self.begin_read();
        self.end_read(handle, first, data).map(|()| older)
    }

    fn describe(&self, Mismatch { sector, found, legal }: &Mismatch) -> String {
        let byte = self.byte_of(*sector);
        format!(
            "the sector at byte {byte} (the {sector}. of its connection) holds {found}; legal: {}",
            legal.join(" | ")
        )
    }
}

fn bytes(sectors: u64) -> u64 {
    sectors * SECTOR as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second of three parts, with a sector of its second extent written three times, the first one flushed.
    fn written() -> (Part, [Vec<u8>; 3]) {
        let mut part = Part::new(1, 3, 12 * EXTENT, 7);
        let sector = EXTENT_SECTORS + 5;
        let writes = [0, 1, 2].map(|number| {
            let (handle, bytes) = part.write(sector, 1, false);
            part.written(handle);
            if number == 0 {
                let flush = part.begin_flush();
                part.end_flush(flush);
            }
            bytes
        });
        (part, writes)
    }

    #[test]
    fn parts_take_turns() {
        let part = Part::new(1, 3, 12 * EXTENT, 7);
        assert_eq!(part.extents(), 4);
        assert_eq!(part.byte_of(5), EXTENT + 5 * 512);
        assert_eq!(part.byte_of(EXTENT_SECTORS), 4 * EXTENT);
    }

    #[test]
    fn a_server_that_lies_is_found_out() {
        let sector = EXTENT_SECTORS + 5;
        // Before a crash only the last write is right.
        let (mut part, writes) = written();
        let read = part.begin_read();
        assert!(part.end_read(read, sector, &writes[2]).is_ok());
        let read = part.begin_read();
        assert!(part.end_read(read, sector, &writes[1]).is_err());
        // After it, what was flushed and what came then; but what is found stays.
        for (number, older) in [(0, 1), (1, 1), (2, 0)] {
            let (mut part, writes) = written();
            part.crash();
            assert_eq!(part.recovered(sector, &writes[number]), Ok(older));
            let other = &writes[(number + 1) % 3];
            assert!(part.recovered(sector, other).is_err(), "it changed by itself");
            assert_eq!(part.recovered(sector, &writes[number]), Ok(0));
        }
        // A flush that was answered and did nothing, a write that tore, another connection's data.
        let (mut part, writes) = written();
        part.crash();
        let lie = part.recovered(sector, &[0; SECTOR]).expect_err("what was flushed is gone");
        assert!(lie.starts_with(&format!("the sector at byte {} ", 4 * EXTENT + 5 * 512)), "{lie}");
        let mut torn = writes[1].clone();
        torn[511] ^= 1;
        assert!(part.recovered(sector, &torn).is_err());
        let mut other = Part::new(0, 3, 12 * EXTENT, 8);
        let (_, foreign) = other.write(sector, 1, false);
        assert!(part.recovered(sector, &foreign).is_err());
        // FUA needs no flush, and what is older cannot come back.
        let (mut part, writes) = written();
        let handle = part.zero(sector, 1, true);
        part.written(handle);
        part.crash();
        assert!(part.recovered(sector, &writes[2]).is_err());
        assert_eq!(part.recovered(sector, &[0; SECTOR]), Ok(0));
    }
}
