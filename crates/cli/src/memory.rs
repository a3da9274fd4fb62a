//! What a server may take: `--memory` and `--lock-memory`.

use crate::args::MemoryArgs;
use crate::size;
use crate::volume::{self, Volume};
use anyhow::bail;
use bimetal_driver::{BlockFile, PoolSizes, lock_memory};
use bimetal_engine::options::Tuning;
use bimetal_serve::CLIENT_MEMORY_BYTES;

/// The program, its stack, the ring's queues, and what requests in flight take.
const OVERHEAD_BYTES: u64 = 16 << 20;

/// Buffers for a volume on these devices, within the limit; what is left beside them is the landing zone's to grow. What the
/// tables will take is known from the superblock, so that too low a limit is refused before anything is written.
pub(crate) fn pools(
    args: MemoryArgs,
    tape_bytes: u64,
    volume: &Volume,
    files: &[BlockFile],
    tuning: &mut Tuning,
) -> anyhow::Result<PoolSizes> {
    let most = volume.pools();
    let (Some(limit), Some(superblock)) = (args.memory, files.iter().find_map(volume::lone_superblock))
    else {
        // Without a superblock that can be read, opening will say what is wrong.
        return Ok(most);
    };
    let geometry = superblock.geometry;
    tuning.landing_ram_bytes = 0;
    let own = bimetal_engine::landing_ram_bytes_least(&geometry);
    let remote: u64 = files.iter().map(BlockFile::ram_bytes).sum();
    let beside = CLIENT_MEMORY_BYTES + OVERHEAD_BYTES + remote + tape_bytes;
    let all = |tuning: &Tuning| bimetal_engine::ram_bytes_at_most(&geometry, tuning) + beside;
    let least = PoolSizes { copy: most.copy, ..PoolSizes::least(geometry.chunk_bytes, geometry.area_bytes) };
    // Checksums that are in memory alone are good to have, and nothing needs them.
    let checksums = std::mem::take(&mut tuning.fast_checksum_bytes);
    let without = all(tuning);
    tuning.fast_checksum_bytes = checksums.min(limit.saturating_sub(without + least.total()) / 4);
    if all(tuning) + least.total() > limit {
        tuning.fast_checksum_bytes = 0;
    }
    let fixed = all(tuning);
    match limit.checked_sub(fixed).and_then(|budget| most.within(least, budget)) {
        Some(pools) => {
            tuning.landing_ram_bytes = own + (limit - fixed - pools.total());
            Ok(pools)
        }
        None => bail!(
            "--memory {} is too little for {}: its tables take up to {}, and buffers {}; give it {}M or more",
            size::show(limit),
            volume.file.display(),
            size::show(fixed),
            size::show(least.total()),
            (fixed + least.total()).div_ceil(1 << 20)
        ),
    }
}

/// Locks memory, if that is asked for, once the large pieces are there. What cannot be had is said and done without.
pub(crate) fn lock(args: MemoryArgs) {
    if args.lock_memory
        && let Err(error) = lock_memory()
    {
        tracing::warn!(
            "cannot lock memory ({error}); raise the limit (LimitMEMLOCK= of the service, `ulimit -l`), or give less \
             with --memory"
        );
    }
}
