//! The segments of the buffer: which sectors can be had without the medium.

/// Sectors in a row that the buffer holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) start: u64,
    /// Behind the last; equal to `start` when it holds nothing.
    pub(crate) end: u64,
    /// Behind the last sector that the host has read of it.
    pub(crate) asked_to: u64,
    /// The larger, the more recently used.
    used: u64,
    /// Filled by a write.
    pub(crate) written: bool,
}

/// The segments.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub(crate) segments: Vec<Segment>,
    sectors: u64,
    clock: u64,
}

impl Buffer {
    /// This many segments, empty.
    pub(crate) fn new(segments: u32, sectors: u32) -> Buffer {
        let empty = vec![Segment::default(); segments as usize];
        Buffer { segments: empty, sectors: u64::from(sectors), clock: 0 }
    }

    /// The segment that holds the sector `lbn`.
    pub(crate) fn holding(&self, lbn: u64) -> Option<usize> {
        self.segments.iter().position(|segment| segment.start <= lbn && lbn < segment.end)
    }

    /// Whether one segment holds all of `start..end`.
    pub(crate) fn holds(&self, start: u64, end: u64) -> Option<usize> {
        self.segments.iter().position(|segment| segment.start <= start && end <= segment.end)
    }

    /// Whether the host's last read of one of the segments ended where `start` is.
    pub(crate) fn is_continued(&self, start: u64) -> bool {
        self.segments.iter().any(|segment| segment.used > 0 && !segment.written && segment.asked_to == start)
    }

    /// Marks a segment as used just now.
    pub(crate) fn touch(&mut self, segment: usize) {
        self.clock += 1;
        self.segments[segment].used = self.clock;
    }

    /// Gives the segment that was used longest ago to `start..end`. `None` when there are no segments.
    pub(crate) fn take(&mut self, start: u64, end: u64, written: bool) -> Option<usize> {
        // One that holds nothing was never used.
        let (number, _) = self.segments.iter().enumerate().min_by_key(|(_, segment)| segment.used)?;
        self.segments[number] = Segment {
            start: start.max(end.saturating_sub(self.sectors)),
            end,
            asked_to: end,
            used: 0,
            written,
        };
        self.touch(number);
        Some(number)
    }

    /// Lets a segment go on to `end`; what no longer fits is dropped at its beginning.
    pub(crate) fn extend(&mut self, segment: usize, end: u64) {
        let segment = &mut self.segments[segment];
        segment.end = segment.end.max(end);
        segment.start = segment.start.max(segment.end.saturating_sub(self.sectors));
    }

    /// Drops what a segment holds before `lbn`.
    pub(crate) fn drop_before(&mut self, segment: usize, lbn: u64) {
        let segment = &mut self.segments[segment];
        segment.start = segment.start.max(lbn).min(segment.end);
    }

    /// Forgets the segments that hold any of `start..end`, whose contents are no longer what is stored.
    pub(crate) fn forget(&mut self, start: u64, end: u64) {
        for segment in &mut self.segments {
            if segment.start < end && start < segment.end {
                *segment = Segment::default();
            }
        }
    }

    /// Forgets the segments that were filled by reads.
    pub(crate) fn forget_read(&mut self) {
        for segment in self.segments.iter_mut().filter(|segment| !segment.written) {
            *segment = Segment::default();
        }
    }

    /// Keeps what was written, behind what was written just before it if the two touch.
    pub(crate) fn keep_written(&mut self, start: u64, end: u64) {
        let before = self.segments.iter().position(|segment| segment.written && segment.end == start);
        match before {
            Some(segment) => {
                self.extend(segment, end);
                self.touch(segment);
            }
            None => {
                self.take(start, end, true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Buffer;

    #[test]
    fn the_segment_used_longest_ago_goes() {
        let mut buffer = Buffer::new(2, 100);
        let first = buffer.take(0, 10, false).expect("a segment");
        buffer.take(1000, 1010, false);
        buffer.touch(first);
        buffer.take(2000, 2010, false);
        assert!(buffer.holds(0, 10).is_some());
        assert!(buffer.holds(1000, 1001).is_none());
        assert!(buffer.holds(2000, 2010).is_some());
    }

    #[test]
    fn a_segment_is_a_ring() {
        let mut buffer = Buffer::new(1, 100);
        let segment = buffer.take(0, 60, false).expect("a segment");
        buffer.extend(segment, 150);
        assert!(buffer.holds(0, 60).is_none());
        assert!(buffer.holds(50, 150).is_some());
    }

    #[test]
    fn what_is_overwritten_is_not_read_from_an_old_segment() {
        let mut buffer = Buffer::new(4, 100);
        buffer.take(0, 60, false);
        buffer.forget(59, 61);
        assert!(buffer.holding(10).is_none());
        buffer.keep_written(59, 61);
        buffer.keep_written(61, 70);
        assert!(buffer.holds(59, 70).is_some());
    }

    #[test]
    fn without_segments_nothing_is_held() {
        let mut buffer = Buffer::new(0, 1);
        assert!(buffer.take(0, 1, false).is_none());
        assert!(buffer.holding(0).is_none());
    }
}
