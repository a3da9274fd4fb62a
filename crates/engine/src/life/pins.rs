//! The list of pins is read and settled by an opening.

use crate::api::options::OpenError;
use crate::base::arena::{Arena, Pool};
use crate::format::Id;
use crate::format::geometry::{PINS_AT, pins_at};
use crate::format::page::{self, PageKind};
use crate::format::pins::put_pins;
use crate::life::open::no_memory;
use crate::life::recovery::Reader;
use crate::placement::pins::keep::{Found, PinsRead, find, judge};
use bimetal_units::*;

impl<A: Arena> Reader<A> {
    /// Reads the list of pins of a volume of so many chunks. Nothing that is wrong with it keeps a volume closed.
    pub(crate) async fn pins(&self, volume: &Id, chunks: u32) -> Result<PinsRead, OpenError> {
        let buf = self.io.alloc(Pool::Meta, 2 * BLOCK_BYTES).ok_or_else(no_memory)?;
        let unreadable = self.read_around(PINS_AT, buf).await;
        let found = [0u8, 1].map(|place| {
            let n = u32::from(place);
            match &unreadable {
                Ok(unreadable) if !unreadable.any(n..n + 1) => self.io.with(|arena| {
                    let block = arena.bytes(buf.slice(n * BLOCK_BYTES, BLOCK_BYTES));
                    find(block, volume, place, chunks)
                }),
                _ => Found::Unreadable,
            }
        });
        self.io.free(buf);
        Ok(judge(found))
    }

    /// Writes over a place that could not be read, where the list is known without it: were it read again later, it might
    /// say something else, a change that a crash cut short. Where that fails, it is left as it is: data does not wait.
    pub(crate) async fn settle_pins(&self, volume: &Id, read: &mut PinsRead) {
        let Some(place) = read.unreadable.filter(|_| read.known) else { return };
        let (version, mut payload) = (read.version + 2, Vec::new());
        put_pins(&mut payload, read.list.ranges());
        let fill = |block: &mut [u8]| {
            page::encode(block, PageKind::Pins, volume, u64::from(place), version, &payload);
        };
        let written = self.io.write_block(FAST, pins_at(place), fill).await;
        if written.is_ok() && self.io.flush(FAST).await.is_ok() {
            (read.version, read.newest) = (version, Some(place));
        }
    }
}
