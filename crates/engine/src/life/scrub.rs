//! How far a scrub has come is read by an opening.

use crate::api::options::OpenError;
use crate::base::arena::{Arena, Pool};
use crate::format::Id;
use crate::format::geometry::{Geometry, SCRUB_AT};
use crate::format::page::{self, PageKind};
use crate::format::scrub::{ScrubPage, get_scrub};
use crate::life::open::no_memory;
use crate::life::recovery::Reader;
use bimetal_units::*;

impl<A: Arena> Reader<A> {
    /// Reads how far a scrub has come. Where that is torn, makes no sense or cannot be read, it is as if none had been begun.
    pub(crate) async fn scrub(&self, volume: &Id, geo: &Geometry) -> Result<ScrubPage, OpenError> {
        let buf = self.io.alloc(Pool::Meta, BLOCK_BYTES).ok_or_else(no_memory)?;
        let read = self.io.read(FAST, SCRUB_AT, buf).await;
        let page = self.io.with(|arena| {
            let found = page::decode(arena.bytes(buf), PageKind::Scrub, volume, 0);
            found.and_then(|(payload, _)| get_scrub(payload, geo.chunks, geo.volume_bytes()))
        });
        self.io.free(buf);
        Ok(page.filter(|_| read.is_ok()).unwrap_or_default())
    }
}
