//! By what an export is known as the slow device that it was: the superblocks, and the number of the opening in them.

use crate::session::{Doubt, Seal};
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_units::{BLOCK_BYTES, SLOW};

impl Seal {
    /// Of the slow device of a volume that was opened under this generation; its second superblock is there.
    pub fn of_slow_device(volume: [u8; 16], generation: u64, second_at: u64) -> Seal {
        let places = vec![0, second_at];
        let at = places.clone();
        let judge = move |blocks: &[Vec<u8>]| judge(blocks, &at, volume, generation);
        Seal { places, judge: Box::new(judge) }
    }
}

/// Whether the superblocks are those of our volume's slow device, as it was opened. One that is whole is enough, where none
/// says otherwise.
fn judge(blocks: &[Vec<u8>], places: &[u64], volume: [u8; 16], generation: u64) -> Result<(), Doubt> {
    let mut is_ours = false;
    for (block, &at) in blocks.iter().zip(places) {
        match Superblock::decode(block, at) {
            Found::Nothing => {}
            Found::Newer(format) => {
                return Err(Doubt::Other(format!("a newer release wrote to it (format {format})")));
            }
            Found::Valid(found) if found.volume != volume || found.tier != SLOW => {
                return Err(Doubt::Other("it holds another volume by now".to_owned()));
            }
            Found::Valid(found) if found.generation.0 != generation => {
                let theirs = found.generation.0;
                return Err(Doubt::Other(match theirs < generation {
                    true => format!(
                        "it is as it was under generation {theirs}, and generation {generation} was made durable there: it \
                         has lost what it had promised to keep"
                    ),
                    false => format!(
                        "it was opened by somebody else (generation {theirs}, this server has {generation}): two servers \
                         on one volume destroy it"
                    ),
                }));
            }
            Found::Valid(_) => is_ours = true,
        }
    }
    match is_ours {
        true => Ok(()),
        false => Err(Doubt::Nothing(format!(
            "the superblocks of the volume are not there any more (blocks of {BLOCK_BYTES} bytes at {places:?}); its server has \
             lost what it had promised to keep, or exports something else"
        ))),
    }
}
