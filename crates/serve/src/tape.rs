//! How recorded requests travel from a server to whoever records them: heads of 32 bytes, and behind each as many
//! requests of 32 bytes. Both sides are of one machine; numbers are little-endian all the same.
//!
//! | head | size | |
//! |---|---|---|
//! | 0 | 4 | `BMrc` |
//! | 4 | 4 | requests behind it; bit 31: nothing comes after them |
//! | 8 | 8 | requests lost so far, since the recording began |
//! | 16 | 8 | no request that began earlier than this will come |
//! | 24 | 8 | 0 |
//!
//! | request | size | |
//! |---|---|---|
//! | 0 | 8 | when it began, nanoseconds since 1970 |
//! | 8 | 8 | how long it took, nanoseconds; all ones: it was not answered when the recording ended |
//! | 16 | 8 | first byte |
//! | 24 | 4 | bytes |
//! | 28 | 1 | 0 read, 1 write, 2 flush, 3 discard, 4 write of zeros |
//! | 29 | 1 | bit 0: FUA |
//! | 30 | 2 | 0 |

use bimetal_engine::action::RequestKind;
use bimetal_units::Nanos;
use std::io;

/// Bytes of a head, and of a request.
pub(crate) const UNIT: usize = 32;
/// Requests behind one head at most: whoever claims more is no server of ours.
pub(crate) const MAX_REQUESTS_PER_HEAD: u32 = 1 << 16;
const MAGIC: [u8; 4] = *b"BMrc";
const LAST: u32 = 1 << 31;
const UNANSWERED: u64 = u64::MAX;

/// One request as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// When the engine got it, by the server's clock.
    pub began: Nanos,
    /// From then until its reply was ready; none if it was not when the recording ended.
    pub response: Option<Nanos>,
    /// First byte; 0 of a flush.
    pub offset: u64,
    /// Bytes; 0 of a flush.
    pub bytes: u32,
    /// What it asked for.
    pub kind: RequestKind,
}

/// Requests that came together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// In the order in which they were answered.
    pub requests: Vec<Recorded>,
    /// How many were lost since the recording began.
    pub lost: u64,
    /// No request that began earlier than this will come.
    pub settled: Nanos,
    /// Nothing comes after this one.
    pub last: bool,
}

pub(crate) fn head(requests: u32, lost: u64, settled: Nanos, last: bool) -> [u8; UNIT] {
    let mut head = [0; UNIT];
    head[..4].copy_from_slice(&MAGIC);
    head[4..8].copy_from_slice(&(requests | if last { LAST } else { 0 }).to_le_bytes());
    head[8..16].copy_from_slice(&lost.to_le_bytes());
    head[16..24].copy_from_slice(&settled.0.to_le_bytes());
    head
}

impl Recorded {
    pub(crate) fn encode(&self) -> [u8; UNIT] {
        let (kind, fua) = match self.kind {
            RequestKind::Read => (0, false),
            RequestKind::Write { fua } => (1, fua),
            RequestKind::Flush => (2, false),
            RequestKind::Discard { fua } => (3, fua),
            RequestKind::WriteZeroes { fua } => (4, fua),
        };
        let mut out = [0; UNIT];
        out[..8].copy_from_slice(&self.began.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.response.map_or(UNANSWERED, |response| response.0).to_le_bytes());
        out[16..24].copy_from_slice(&self.offset.to_le_bytes());
        out[24..28].copy_from_slice(&self.bytes.to_le_bytes());
        (out[28], out[29]) = (kind, u8::from(fua));
        out
    }

    fn decode(unit: &[u8; UNIT]) -> Option<Recorded> {
        let (began, response) = (long(unit, 0), long(unit, 8));
        let fua = match unit[29] {
            0 => false,
            1 => true,
            _ => return None,
        };
        let kind = match unit[28] {
            0 if !fua => RequestKind::Read,
            1 => RequestKind::Write { fua },
            2 if !fua => RequestKind::Flush,
            3 => RequestKind::Discard { fua },
            4 => RequestKind::WriteZeroes { fua },
            _ => return None,
        };
        Some(Recorded {
            began: Nanos(began),
            response: (response != UNANSWERED).then_some(Nanos(response)),
            offset: long(unit, 16),
            bytes: word(unit, 24),
            kind,
        })
    }
}

fn word(unit: &[u8; UNIT], at: usize) -> u32 {
    u32::from_le_bytes([0, 1, 2, 3].map(|byte| unit[at + byte]))
}

fn long(unit: &[u8; UNIT], at: usize) -> u64 {
    u64::from(word(unit, at + 4)) << 32 | u64::from(word(unit, at))
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what it sends is no recording")
}

/// Takes the first batch off these bytes, if all of it is there.
pub(crate) fn take_batch(bytes: &mut Vec<u8>) -> io::Result<Option<Batch>> {
    let Some(head) = bytes.first_chunk::<UNIT>() else { return Ok(None) };
    let count = word(head, 4);
    let requests = count & !LAST;
    if head[..4] != MAGIC || requests > MAX_REQUESTS_PER_HEAD {
        return Err(nonsense());
    }
    let length = UNIT * (1 + requests as usize);
    let Some(all) = bytes.get(UNIT..length) else { return Ok(None) };
    let (units, _) = all.as_chunks::<UNIT>();
    let found: Option<Vec<Recorded>> = units.iter().map(Recorded::decode).collect();
    let batch = Batch {
        requests: found.ok_or_else(nonsense)?,
        lost: long(head, 8),
        settled: Nanos(long(head, 16)),
        last: count & LAST != 0,
    };
    bytes.drain(..length);
    Ok(Some(batch))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Vec<Recorded>, Vec<u8>) {
        let kinds = [
            RequestKind::Read,
            RequestKind::Write { fua: false },
            RequestKind::Write { fua: true },
            RequestKind::Flush,
            RequestKind::Discard { fua: true },
            RequestKind::WriteZeroes { fua: false },
        ];
        let requests: Vec<Recorded> = kinds
            .into_iter()
            .zip(1u64..)
            .map(|(kind, number)| Recorded {
                began: Nanos(number << 60),
                response: (number != 3).then_some(Nanos(number * 77)),
                offset: number * 4096,
                bytes: number as u32 * 512,
                kind,
            })
            .collect();
        let mut bytes = head(requests.len() as u32, 5, Nanos(9), false).to_vec();
        bytes.extend(requests.iter().flat_map(Recorded::encode));
        bytes.extend(head(0, 6, Nanos(10), true));
        (requests, bytes)
    }

    #[test]
    fn what_is_sent_is_what_is_taken_however_it_comes() {
        let (requests, bytes) = sample();
        for drop in [1, 31, 33, bytes.len()] {
            let (mut have, mut batches) = (Vec::new(), Vec::new());
            for part in bytes.chunks(drop) {
                have.extend_from_slice(part);
                batches.extend(std::iter::from_fn(|| take_batch(&mut have).expect("sound")));
            }
            let first = Batch { requests: requests.clone(), lost: 5, settled: Nanos(9), last: false };
            let second = Batch { lost: 6, settled: Nanos(10), last: true, ..Batch::default() };
            assert_eq!((batches, have.len()), (vec![first, second], 0));
        }
    }

    /// Damaged in one or two places, the same ways every time: refused or taken, in bounded memory, without a panic.
    #[test]
    fn damage_is_refused_or_taken() {
        let (_, bytes) = sample();
        let (mut state, mut refused) = (88_172_645_463_325_252u64, 0);
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize
        };
        for _ in 0..20_000 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + random() % 2 {
                let at = random() % damaged.len();
                damaged[at] = random() as u8;
            }
            damaged.truncate(random() % (bytes.len() + 1));
            let mut taken = 0;
            loop {
                match take_batch(&mut damaged) {
                    Ok(Some(batch)) => taken += 1 + batch.requests.len(),
                    Ok(None) => break,
                    Err(_) => {
                        refused += 1;
                        break;
                    }
                }
            }
            assert!(taken * UNIT <= bytes.len());
        }
        assert!(refused > 500, "{refused}");
    }
}
