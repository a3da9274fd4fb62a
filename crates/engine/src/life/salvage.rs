//! Opens a volume whose fast device is lost: the marks on the slow one say what is good, what is lost, and what may be stale.
//! Nothing is written.

use crate::api::coverage::Stage;
use crate::api::loss::{LossClass, LossRange, Losses, Suspects};
use crate::api::options::{OpenError, OpenOptions};
use crate::base::arena::Arena;
use crate::base::bits::Bits;
use crate::base::place::Place;
use crate::engine::Engine;
use crate::format::geometry::Geometry;
use crate::format::header::CheckpointHeader;
use crate::format::marks::{Mark, MarkLayout};
use crate::life::health::Life;
use crate::life::hints::Learnt;
use crate::life::open;
use crate::life::recovery::{Reader, Recovered};
use crate::path::log::LogEnd;
use crate::placement::pins::keep::{Found, judge};
use crate::volume::pages::Pages;
use crate::volume::state::State;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// What is left of a volume whose fast device is lost.
#[derive(Serialize, Deserialize)]
pub(crate) struct Salvage {
    layout: MarkLayout,
    blocks_per_chunk: u32,
    /// Blocks that are lost, by chunk, in words of 32.
    lost: Vec<u32>,
    /// Regions that may be stale.
    suspect: Bits,
    suspects: Suspects,
}

impl Salvage {
    /// Nothing, as far as is known.
    fn nothing(geo: &Geometry, layout: MarkLayout, suspects: Suspects) -> Salvage {
        Salvage {
            layout,
            blocks_per_chunk: geo.blocks_per_chunk(),
            lost: vec![u32::MAX; geo.chunks as usize * geo.mask_words()],
            suspect: Bits::all(layout.regions()),
            suspects,
        }
    }

    fn found(&mut self, chunk: Chunk, mark: &Mark) {
        let words = self.layout.mask_words();
        (0..words).for_each(|word| self.lost[chunk.0 as usize * words + word] = mark.lost.word(word));
    }

    /// Why a block is no good; none where it is.
    fn class(&self, chunk: Chunk, block: u32) -> Option<LossClass> {
        let word = self.lost[chunk.0 as usize * self.layout.mask_words() + block as usize / 32];
        if word >> (block % 32) & 1 != 0 {
            return Some(LossClass::Lost);
        }
        self.suspect.has(self.layout.region_of(chunk)).then_some(LossClass::Suspect)
    }

    /// Whether a block is read from where it is said to be, or reads zeros.
    pub(crate) fn is_readable(&self, chunk: Chunk, block: u32) -> bool {
        match self.class(chunk, block) {
            None => true,
            Some(LossClass::Lost) => false,
            Some(LossClass::Suspect) => self.suspects == Suspects::Read,
        }
    }

    /// What is no good of a chunk that begins at this byte; gives how many steps that took.
    pub(crate) fn chunk_losses(&self, chunk: Chunk, at: u64, losses: &mut Losses) -> u32 {
        let words = self.layout.mask_words();
        let lost = &self.lost[chunk.0 as usize * words..][..words];
        let len = u64::from(BLOCK_BYTES);
        if lost.iter().all(|word| *word == 0) {
            let class = self.suspect.has(self.layout.region_of(chunk)).then_some(LossClass::Suspect);
            let len = len * u64::from(self.blocks_per_chunk);
            class.into_iter().for_each(|class| losses.push(LossRange { offset: at, len, class }));
            return 1;
        }
        for block in 0..self.blocks_per_chunk {
            if let Some(class) = self.class(chunk, block) {
                losses.push(LossRange { offset: at + u64::from(block) * len, len, class });
            }
        }
        self.blocks_per_chunk
    }
}

/// Reads what the slow device says about itself; whoever gets the volume finds it read-only.
pub(crate) async fn open_slow<A: Arena>(
    reader: &Reader<A>,
    options: OpenOptions,
    suspects: Suspects,
) -> Result<Engine<A>, OpenError> {
    reader.io.stage(Stage::OpenFlush);
    // Who only looks acknowledges nothing: a device that refuses to flush is read all the same.
    _ = reader.io.flush(SLOW).await;
    reader.io.stage(Stage::OpenSuperblocks);
    let superblocks = reader.superblocks(options.volume_id).await?;
    let slow = &superblocks[1];
    let geo = slow.geometry.clone();
    let Some(layout) = geo.marks() else {
        let [fast, slow] = [FAST, SLOW].map(|tier| reader.devices[usize::from(tier.0)].name.clone());
        let what = format!(
            "{fast} is missing, and only it says where things are: of {slow} alone nothing can be read, as the volume was \
             made without marks"
        );
        return Err(OpenError::BadOption { what });
    };
    reader.io.stage(Stage::OpenCheckpoint);
    let mut state = State::new(geo.clone(), &options.tuning);
    let mut salvage = Salvage::nothing(&geo, layout, suspects);
    let mut read = Vec::new();
    let found = reader.marks_in_force(slow, |page, _, marks| read.push((page, marks.to_vec()))).await?;
    let mut as_of = None;
    if let Some(found) = found {
        for (page, marks) in read {
            for (chunk, mark) in layout.chunks_of(page).map(Chunk).zip(marks) {
                salvage.found(chunk, &mark);
                let home = mark.slot.map(|slot| Home { tier: SLOW, slot });
                state.map.set(chunk, home, &mark.held);
            }
        }
        salvage.suspect = found.header.open;
        as_of = Some(found.header.unix_s);
    }
    state.zone.rest_is_free();
    let slots = reader.used_slots(&state)?;
    let recovered = Recovered {
        pages: Pages::new(geo.pages()),
        header: no_checkpoint(&geo),
        superblocks,
        state,
        log: LogEnd { place: Place(0), cursor: 0, last: Seq(0), claimed: Seq(0) },
        unconfirmed: Vec::new(),
    };
    let pins = judge([Found::Nothing, Found::Nothing]);
    let learnt = Learnt::nothing(&recovered.state.geo, &options.tuning);
    let mut engine = open::engine(reader, recovered, Seq(0), slots, (pins, learnt), options);
    engine.life = Life::without(engine.life.superblock.clone(), FAST);
    engine.life.salvage = Some(salvage);
    engine.count_losses(FAST, as_of);
    Ok(engine)
}

/// Where there is no checkpoint to go on from: the one after it is never written.
fn no_checkpoint(geo: &Geometry) -> CheckpointHeader {
    CheckpointHeader {
        number: 0,
        generation: Generation(0),
        applied: Seq(0),
        durable: Seq(0),
        tail_area: geo.zone_first,
        tail_ordinal: 0,
        tail_first: Seq(0),
        list_entries: 0,
        root_blocks: 0,
        root_sum: 0,
        fast_bytes: geo.device_bytes[0],
    }
}
