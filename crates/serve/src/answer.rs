//! What a reply looks like on the wire: heads, and the payload that stands behind them.

use bimetal_engine::arena::Buf;
use bimetal_engine::extents::{Extents, Placement};
use bimetal_nbd::limits::MAX_READ_CHUNKS;
use bimetal_nbd::{
    MetaContext, NbdErrno, Placement as NbdPlacement, Request, Terms, data_chunk, error_chunk, hole_chunk,
    simple_reply, status_chunk,
};
use smallvec::SmallVec;

/// Extents that are looked at to find the holes of a read: a few for each of its chunks.
pub(crate) const READ_EXTENTS: usize = 4 * MAX_READ_CHUNKS;

/// Bytes that precede a payload, or all of a reply without one.
pub(crate) type Head = SmallVec<[u8; 32]>;

/// Something to be sent: a reply, or one chunk of a reply.
pub(crate) struct Reply {
    pub(crate) head: Head,
    /// The payload of a read that stands behind the head.
    pub(crate) payload: Option<Buf>,
    /// The cover to free when this has been sent.
    pub(crate) cover: Option<Buf>,
    /// Nothing else refers to the cover: it may be freed as soon as the payload is copied.
    pub(crate) alone: bool,
    /// The last of its request.
    pub(crate) last: bool,
}

impl Reply {
    fn new(head: &[u8]) -> Reply {
        Reply { head: Head::from_slice(head), payload: None, cover: None, alone: false, last: true }
    }

    /// The answer to a request that carries nothing: done, or why not.
    pub(crate) fn plain(request: &Request, terms: &Terms, error: Option<NbdErrno>) -> Reply {
        match error {
            Some(error) if request.wants_structured(terms) => Reply::new(&error_chunk(request.cookie, error)),
            error => Reply::new(&simple_reply(request.cookie, error)),
        }
    }

    /// The simple answer to a read.
    pub(crate) fn simple_read(request: &Request, payload: Buf, cover: Option<Buf>) -> Reply {
        let head = simple_reply(request.cookie, None);
        Reply { payload: Some(payload), cover, alone: true, ..Reply::new(&head) }
    }

    /// The answer to a BLOCK_STATUS: a chunk for each context.
    pub(crate) fn status(request: &Request, terms: &Terms, extents: &Extents) -> Reply {
        let mut bytes = Vec::new();
        let contexts: SmallVec<[MetaContext; 2]> = terms.contexts.iter().collect();
        for (place, &context) in contexts.iter().enumerate() {
            let done = place + 1 == contexts.len();
            // The request is shorter than 4 GiB, and its extents are not longer.
            let told = extents.iter().map(|extent| (extent.len as u32, told(extent.place)));
            status_chunk(&mut bytes, request.cookie, done, context, told, request.req_one);
        }
        Reply { head: Head::from_vec(bytes), ..Reply::new(&[]) }
    }
}

/// The chunks of a structured answer to a read, and whether any of them carries data: if not, the cover is
/// the caller's to free.
pub(crate) fn read_chunks(
    request: &Request,
    payload: Buf,
    cover: Option<Buf>,
    extents: &Extents,
) -> (SmallVec<[Reply; 2]>, bool) {
    let pieces = pieces(request, extents);
    let data = pieces.iter().filter(|piece| !piece.hole).count();
    let mut replies = SmallVec::new();
    let (mut at, mut data_left) = (0u32, data);
    for (place, piece) in pieces.iter().enumerate() {
        let (last, offset) = (place + 1 == pieces.len(), request.offset + u64::from(at));
        if piece.hole {
            let head = hole_chunk(request.cookie, last, offset, piece.len);
            replies.push(Reply { last, ..Reply::new(&head) });
        } else {
            let head = data_chunk(request.cookie, last, offset, piece.len);
            data_left -= 1;
            let cover = cover.filter(|_| data_left == 0);
            let payload = Some(payload.slice(at, piece.len));
            replies.push(Reply { payload, cover, alone: data == 1, last, ..Reply::new(&head) });
        }
        at += piece.len;
    }
    (replies, data > 0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    len: u32,
    hole: bool,
}

/// Cuts a read into data and holes, at most [`MAX_READ_CHUNKS`] and with DF one; what the extents do not tell
/// of, or what there is no chunk left for, is data.
fn pieces(request: &Request, extents: &Extents) -> SmallVec<[Piece; 4]> {
    let mut pieces: SmallVec<[Piece; 4]> = SmallVec::new();
    let mut told = 0u32;
    for extent in extents {
        let hole = extent.place == Placement::Hole;
        // Bounded by the request's length.
        let len = extent.len as u32;
        let full = pieces.len() + 1 == MAX_READ_CHUNKS;
        match pieces.last_mut() {
            Some(last) if last.hole == hole => last.len += len,
            _ if full => break,
            _ => pieces.push(Piece { len, hole }),
        }
        told += len;
    }
    let rest = request.length - told;
    match pieces.last_mut() {
        Some(last) if rest > 0 && !last.hole => last.len += rest,
        _ if rest > 0 => pieces.push(Piece { len: rest, hole: false }),
        _ => {}
    }
    if request.df && pieces.len() > 1 {
        return SmallVec::from_elem(Piece { len: request.length, hole: false }, 1);
    }
    pieces
}

fn told(place: Placement) -> NbdPlacement {
    match place {
        Placement::Hole => NbdPlacement::Hole,
        Placement::Home(tier) if tier == bimetal_units::FAST => NbdPlacement::Fast,
        Placement::Home(_) => NbdPlacement::Slow,
        Placement::Landed => NbdPlacement::Landed,
        Placement::Lost => NbdPlacement::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_engine::extents::Placed;
    use bimetal_nbd::{Chunk, Command, parse_chunk};
    use bimetal_units::{FAST, SLOW};

    const DATA: Placement = Placement::Home(FAST);

    fn read(length: u32) -> Request {
        Request::new(7, Command::Read, 1000, length)
    }

    fn cut(request: &Request, extents: &[(u64, Placement)]) -> Vec<(u32, bool)> {
        let extents = extents.iter().map(|&(len, place)| Placed { len, place }).collect();
        pieces(request, &extents).iter().map(|piece| (piece.len, piece.hole)).collect()
    }

    #[test]
    fn a_read_is_cut_at_its_holes() {
        assert_eq!(cut(&read(100), &[(100, Placement::Hole)]), [(100, true)]);
        assert_eq!(cut(&read(100), &[(100, DATA)]), [(100, false)]);
        let tiers = [(10, DATA), (20, Placement::Home(SLOW)), (30, Placement::Hole), (40, Placement::Landed)];
        assert_eq!(cut(&read(100), &tiers), [(30, false), (30, true), (40, false)]);
    }

    #[test]
    fn what_is_not_told_is_data() {
        assert_eq!(cut(&read(100), &[]), [(100, false)]);
        assert_eq!(cut(&read(100), &[(60, Placement::Hole)]), [(60, true), (40, false)]);
        assert_eq!(cut(&read(100), &[(60, DATA)]), [(100, false)]);
    }

    #[test]
    fn a_read_that_must_not_be_fragmented_is_one_piece() {
        let request = Request { df: true, ..read(100) };
        assert_eq!(cut(&request, &[(100, Placement::Hole)]), [(100, true)]);
        assert_eq!(cut(&request, &[(60, Placement::Hole), (40, DATA)]), [(100, false)]);
    }

    #[test]
    fn the_chunks_of_a_read_are_bounded_and_cover_it() {
        let checkered: Vec<_> =
            (0..40).map(|n| (10, if n % 2 == 0 { DATA } else { Placement::Hole })).collect();
        let pieces = cut(&read(400), &checkered);
        assert!(pieces.len() > MAX_READ_CHUNKS / 2 && pieces.len() <= MAX_READ_CHUNKS, "{pieces:?}");
        assert_eq!(pieces.iter().map(|piece| piece.0).sum::<u32>(), 400);
        assert_eq!(pieces.last().map(|piece| piece.1), Some(false));
    }

    #[test]
    fn only_the_last_data_chunk_frees_the_cover() {
        let (payload, cover) = (Buf { start: 1000, len: 300 }, Buf { start: 0, len: 8192 });
        let extents = [(100, DATA), (100, Placement::Hole), (50, DATA), (50, Placement::Hole)];
        let extents: Extents = extents.iter().map(|&(len, place)| Placed { len, place }).collect();
        let (replies, data) = read_chunks(&read(300), payload, Some(cover), &extents);
        assert!(data);
        let covers: Vec<bool> = replies.iter().map(|reply| reply.cover.is_some()).collect();
        assert_eq!(covers, [false, false, true, false]);
        assert!(replies.iter().all(|reply| !reply.alone));
        let last: Vec<bool> = replies.iter().map(|reply| reply.last).collect();
        assert_eq!(last, [false, false, false, true]);
        let (_, head, chunk) = parse_chunk(&replies[2].head).expect("sound").expect("whole");
        assert!(!head.done);
        assert_eq!(chunk, Chunk::Data { offset: 1200, length: 50 });
        assert_eq!(replies[2].payload, Some(payload.slice(200, 50)));
    }
}
