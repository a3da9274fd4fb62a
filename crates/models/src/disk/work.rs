//! What the drive does with a command: from the buffer, into the cache, or by the arm.

use super::mechanism::{Cursor, Way};
use super::params::ReadAhead;
use super::queue::{Candidate, Search};
use super::{Blocked, Disk, Doing, Operation, Pending, ReadingAhead};
use crate::device::Command;

/// What the arm does next.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// The command with this number among those pending.
    Command(usize),
    /// The cache entry with this number.
    Entry(usize),
}

impl Disk {
    pub(super) fn accept_read(&mut self, now: u64, tag: u64, command: Command) {
        let (start, end, _) = self.sectors(command.offset, command.len);
        self.read_on(now);
        if self.is_held(start, end) {
            self.read_from_buffer(now, tag, start, end);
            self.last_was_write = false;
            return;
        }
        let ready = now + self.cost(self.params.overheads.read_miss_ns);
        self.last_was_write = false;
        let target = self.mechanism.target(start);
        let (way, least) = (Way::Read, ready + u64::from(self.params.arm.least_read_seek_ns));
        self.pending.push(Pending { tag, start, end, way, ready, least, partial: false, target });
        self.dispatch(now);
    }

    pub(super) fn accept_write(&mut self, now: u64, tag: u64, command: Command, fua: bool) {
        let (start, end, partial) = self.sectors(command.offset, command.len);
        let costs = self.params.overheads;
        self.stop_reading_ahead(now);
        self.buffer.forget(start, end);
        if self.params.buffer.drop_read_at_write {
            self.buffer.forget_read();
        }
        let scattered = self.last_was_write && self.last_end != start;
        let extra = if scattered { u64::from(costs.scattered_write_ns) } else { 0 };
        let cached = !fua && self.cache.takes(end - start);
        let cost = self.cost(if cached { costs.cached_write_ns } else { costs.write_ns });
        self.last_was_write = true;
        self.last_end = end;
        if cached {
            let blocked = Blocked { tag, start, end, partial, cost: cost + extra };
            if !self.blocked.is_empty() || !self.write_to_cache(now, &blocked) {
                self.blocked.push_back(blocked);
            }
        } else {
            let sectors = end - start;
            let bus = u64::from(costs.bus_ns_per_sector);
            let begin = self.bus_free.max(now + cost + extra + u64::from(costs.transfer_preparation_ns));
            self.bus_free = begin + sectors * bus;
            // The medium must not run out of data.
            let medium = self.mechanism.sector_time(start);
            let data = (begin + bus).max(self.bus_free.saturating_sub((sectors - 1) * medium));
            let ready = now + cost;
            let least = data.max(ready + u64::from(self.params.arm.least_write_seek_ns));
            let target = self.mechanism.target(start);
            self.pending.push(Pending { tag, start, end, way: Way::Write, ready, least, partial, target });
            if self.params.buffer.keep_written {
                self.buffer.keep_written(start, end);
            }
        }
        self.dispatch(now);
    }

    /// Whether the range can be had without the medium.
    fn is_held(&self, start: u64, end: u64) -> bool {
        self.buffer.holds(start, end).is_some()
            || (self.params.buffer.keep_written && self.cache.holds(start, end))
    }

    fn read_from_buffer(&mut self, now: u64, tag: u64, start: u64, end: u64) {
        let costs = self.params.overheads;
        let begin =
            self.bus_free.max(now) + self.cost(costs.read_hit_ns) + u64::from(costs.transfer_preparation_ns);
        self.bus_free = begin + (end - start) * u64::from(costs.bus_ns_per_sector);
        self.end_at(tag, self.bus_free + u64::from(costs.read_completion_ns));
        let Some(segment) = self.buffer.holds(start, end) else { return };
        self.buffer.touch(segment);
        let in_order = self.buffer.segments[segment].asked_to == start;
        self.buffer.segments[segment].asked_to = end;
        let limit = if self.reads_ahead(in_order) { self.read_ahead_limit(segment, start, end) } else { end };
        if self.params.buffer.drop_transferred && !self.buffer.segments[segment].written {
            self.buffer.drop_before(segment, end);
        }
        match &mut self.reading_ahead {
            Some(ahead) if ahead.segment == segment => ahead.cursor.limit = ahead.cursor.limit.max(limit),
            None if self.params.buffer.read_ahead_after_hit
                && self.operation.is_none()
                && !self.buffer.segments[segment].written =>
            {
                let at = now + self.cost(costs.read_miss_ns);
                self.read_ahead_from(segment, at, limit);
            }
            _ => {}
        }
    }

    /// Takes a write into the cache; false when that is full.
    fn write_to_cache(&mut self, now: u64, write: &Blocked) -> bool {
        let costs = self.params.overheads;
        let (start, end) = (write.start, write.end);
        let begin = self.bus_free.max(now) + write.cost + u64::from(costs.transfer_preparation_ns);
        let ready = begin + (end - start) * u64::from(costs.bus_ns_per_sector);
        let mechanism = &self.mechanism;
        if !self.cache.take((start, end), ready, write.partial, || mechanism.target(start)) {
            return false;
        }
        self.bus_free = ready;
        self.end_at(write.tag, ready + u64::from(costs.write_completion_ns));
        if self.params.buffer.keep_written {
            self.buffer.forget(start, end);
            self.buffer.keep_written(start, end);
        }
        true
    }

    /// Lets the arm begin what it should do next, if it is free.
    pub(super) fn dispatch(&mut self, now: u64) {
        if self.operation.is_some() {
            return;
        }
        self.wake = None;
        self.read_on(now);
        while let Some(choice) = self.choose(now) {
            match choice {
                Choice::Command(number) => {
                    let pending = self.pending.remove(number);
                    match pending.way {
                        Way::Read => self.begin_read(now, &pending),
                        Way::Write => self.begin_write(now, &pending),
                    }
                }
                Choice::Entry(number) => self.begin_destage(now, number),
            }
            if self.operation.is_some() {
                return;
            }
        }
    }

    fn choose(&mut self, now: u64) -> Option<Choice> {
        let queue = &self.params.queue;
        let window = queue.window as usize;
        let old = |ready: u64| {
            queue.oldest_first_after_ns > 0 && now.saturating_sub(ready) > queue.oldest_first_after_ns
        };
        if self.pending.first().is_some_and(|pending| old(pending.ready)) {
            return Some(Choice::Command(0));
        }
        let urgent = !self.blocked.is_empty() || !self.flushes.is_empty();
        let entries = self.cache.entries();
        let entries =
            if urgent || self.pending.is_empty() { &entries[..entries.len().min(window)] } else { &[] };
        if urgent && entries.first().is_some_and(|entry| old(entry.ready)) {
            return Some(Choice::Entry(0));
        }
        let cursor = self.reading_ahead.map(|ahead| ahead.cursor.lbn);
        let joins = self.params.buffer.join_read_ahead;
        let mut search = Search::new(queue, &self.mechanism, now, self.position);
        for (number, pending) in self.pending.iter().take(window).enumerate() {
            let under_head = joins && pending.way == Way::Read && cursor == Some(pending.start);
            let Pending { start, ready, target, way, .. } = *pending;
            search.show(number, &Candidate { start, ready, target, way, under_head });
        }
        let commands = self.pending.len();
        let delay = if urgent { 0 } else { self.params.write_cache.delay_ns };
        for (number, entry) in entries.iter().enumerate() {
            if !urgent && entry.ready + delay > now {
                let due = entry.ready + delay;
                self.wake = Some(self.wake.map_or(due, |wake| wake.min(due)));
                continue;
            }
            let (start, ready, target) = (entry.start, entry.ready, entry.target);
            let way = if entry.partial { Way::Read } else { Way::Write };
            search.show(commands + number, &Candidate { start, ready, target, way, under_head: false });
        }
        let best = search.best()?;
        Some(if best < commands { Choice::Command(best) } else { Choice::Entry(best - commands) })
    }

    fn begin_read(&mut self, now: u64, pending: &Pending) {
        let Pending { tag, start, end, .. } = *pending;
        // It may have been read ahead while the command waited.
        if self.is_held(start, end) {
            self.read_from_buffer(now, tag, start, end);
            return;
        }
        let joins = self.params.buffer.join_read_ahead;
        if let Some(ahead) = self.reading_ahead {
            let segment = self.buffer.segments[ahead.segment];
            let reached = if joins { segment.end } else { segment.end.saturating_sub(1) };
            if segment.start <= start && start <= reached && end > segment.end {
                let cursor = ahead.cursor;
                let (first, done) = (cursor.at, self.mechanism.read_ahead_reaches(&cursor, end));
                let mut moved = Cursor { limit: end, ..cursor };
                self.mechanism.read_ahead(&mut moved, done);
                let from = segment.end;
                let doing = Doing::Read { tag, start, end, from, first, passed_from: start, joined: true };
                self.begin(doing, done, end);
                return;
            }
        }
        let at = self.stop_reading_ahead(now).max(pending.ready);
        if self.is_held(start, end) {
            self.read_from_buffer(now, tag, start, end);
            return;
        }
        let from = match self.buffer.holding(start) {
            Some(segment) => self.buffer.segments[segment].end,
            None => start,
        };
        let any_order = self.params.buffer.zero_latency_reads;
        let access = self.mechanism.access(at, (from, end), Way::Read, any_order, pending.least);
        let keeps = self.params.buffer.keep_passing_sectors;
        let passed_from = if keeps { access.passed_from } else { from };
        let doing = Doing::Read { tag, start, end, from, first: access.first, passed_from, joined: false };
        self.begin(doing, access.end, end);
    }

    fn begin_write(&mut self, now: u64, pending: &Pending) {
        let at = self.stop_reading_ahead(now).max(pending.ready);
        let range = (pending.start, pending.end);
        let done = self.write_medium(at, range, pending.partial, pending.least);
        self.begin(Doing::Write { tag: pending.tag }, done, pending.end);
    }

    fn begin_destage(&mut self, now: u64, number: usize) {
        let entry = self.cache.begin(number);
        let at = self.stop_reading_ahead(now).max(entry.ready);
        let done = self.write_medium(at, (entry.start, entry.end), entry.partial, at);
        self.begin(Doing::Destage, done, entry.end);
    }

    /// Writes the range, after reading it if it is not in whole sectors; returns when that is done.
    fn write_medium(&mut self, at: u64, range: (u64, u64), partial: bool, least: u64) -> u64 {
        let any_order = self.params.buffer.zero_latency_writes;
        let at = if partial { self.mechanism.access(at, range, Way::Read, any_order, 0).end } else { at };
        self.mechanism.access(at, range, Way::Write, any_order, least).end
    }

    fn begin(&mut self, doing: Doing, end: u64, position: u64) {
        self.reading_ahead = None;
        self.operation = Some(Operation { end, doing });
        self.position = position;
    }

    pub(super) fn operation_ended(&mut self, operation: Operation) {
        let costs = self.params.overheads;
        match operation.doing {
            Doing::Read { tag, start, end, .. } => {
                self.read_ended(operation);
                let done = self.transfer_read(operation, start, end);
                self.end_at(tag, done + u64::from(costs.read_completion_ns));
            }
            Doing::Write { tag } => {
                let more = u64::from(costs.reconnection_ns) + u64::from(costs.write_completion_ns);
                self.end_at(tag, operation.end + more);
            }
            Doing::Destage => {
                self.cache.written();
                self.admit(operation.end);
            }
        }
    }

    /// After an entry is on the medium: what waited for room, and what waited for the entry.
    fn admit(&mut self, now: u64) {
        while let Some(&(tag, mark)) = self.flushes.front()
            && !self.cache.has_before(mark)
        {
            self.flushes.pop_front();
            self.end_at(tag, now + u64::from(self.params.overheads.write_completion_ns));
        }
        while let Some(blocked) = self.blocked.front().copied()
            && self.write_to_cache(now, &blocked)
        {
            self.blocked.pop_front();
        }
    }

    /// When a read's data have been transferred; its last sector has just been read.
    fn transfer_read(&mut self, operation: Operation, start: u64, end: u64) -> u64 {
        let Doing::Read { from, first, .. } = operation.doing else { return operation.end };
        let costs = self.params.overheads;
        let bus = u64::from(costs.bus_ns_per_sector);
        let sectors = end - start;
        let least = (sectors * u64::from(costs.read_watermark_permille)).div_ceil(1000).max(1);
        let needed = least.saturating_sub(from - start).min(end - from);
        let filled = match needed {
            _ if least >= sectors => operation.end,
            0 => first.min(operation.end),
            _ => (first + needed * self.mechanism.sector_time(from)).min(operation.end),
        };
        let begin = filled + u64::from(costs.reconnection_ns) + u64::from(costs.transfer_preparation_ns);
        let done = (begin + sectors * bus).max(operation.end + bus).max(self.bus_free + bus);
        self.bus_free = done;
        done
    }

    /// Keeps what was read, and begins to read ahead.
    fn read_ended(&mut self, operation: Operation) {
        let Doing::Read { start, end, from, passed_from, joined, .. } = operation.doing else { return };
        let in_order = self.buffer.is_continued(start);
        let before =
            self.buffer.segments.iter().position(|segment| {
                segment.start <= start && segment.end == from && (start < from || joined)
            });
        let segment = match before {
            Some(segment) => {
                self.buffer.extend(segment, end);
                self.buffer.touch(segment);
                Some(segment)
            }
            None => self.buffer.take(passed_from.min(start), end, false),
        };
        if let Some(segment) = segment {
            self.buffer.segments[segment].written = false;
            self.buffer.segments[segment].asked_to = end;
            let limit =
                if self.reads_ahead(in_order) { self.read_ahead_limit(segment, start, end) } else { end };
            self.read_ahead_from(segment, operation.end, limit);
            if self.params.buffer.drop_transferred {
                self.buffer.drop_before(segment, end);
            }
        }
    }

    /// Whether it reads ahead behind a read that goes on where an earlier one had ended, or behind one that does not.
    fn reads_ahead(&self, in_order: bool) -> bool {
        in_order || !self.params.buffer.read_ahead_in_order_only
    }

    /// Begins to read ahead behind a segment.
    fn read_ahead_from(&mut self, segment: usize, at: u64, limit: u64) {
        let lbn = self.buffer.segments[segment].end;
        if lbn < limit {
            self.reading_ahead = Some(ReadingAhead { cursor: Cursor { lbn, at, limit }, segment });
        }
    }

    /// Where reading ahead ends after a read of `start..end` in this segment.
    fn read_ahead_limit(&self, segment: usize, start: u64, end: u64) -> u64 {
        let buffer = &self.params.buffer;
        let by_kind = match buffer.read_ahead {
            ReadAhead::None => end,
            ReadAhead::Segment => u64::MAX,
            ReadAhead::Track => self.mechanism.end_of(end - 1, false),
            ReadAhead::Cylinder => self.mechanism.end_of(end - 1, true),
            ReadAhead::NextTrack => {
                let place = self.mechanism.layout.place(end - 1);
                let track_end = self.mechanism.end_of(end - 1, false);
                let track_start = (end - 1).saturating_sub(u64::from(place.sector));
                let sequential = self.buffer.segments[segment].start < track_start;
                if sequential && track_end < self.mechanism.layout.sectors() {
                    self.mechanism.end_of(track_end, false)
                } else {
                    track_end
                }
            }
        };
        let room = if buffer.read_ahead_over_requested { end } else { start };
        by_kind
            .min(end + u64::from(buffer.read_ahead_sectors))
            .min((room + u64::from(buffer.segment_sectors)).max(end))
            .min(self.mechanism.layout.sectors())
    }

    /// Reads ahead up to `now`.
    fn read_on(&mut self, now: u64) {
        let Some(ahead) = &mut self.reading_ahead else { return };
        self.mechanism.read_ahead(&mut ahead.cursor, now);
        let ReadingAhead { segment, cursor } = *ahead;
        self.buffer.extend(segment, cursor.lbn);
        if cursor.lbn >= cursor.limit {
            self.reading_ahead = None;
        }
    }

    /// Stops reading ahead at `now`, or at the end of the sector; returns when the arm is free.
    fn stop_reading_ahead(&mut self, now: u64) -> u64 {
        self.read_on(now);
        let Some(ahead) = self.reading_ahead.take() else { return now };
        let cursor = ahead.cursor;
        if self.params.buffer.stop_within_sector {
            return now;
        }
        let end = self.mechanism.read_ahead_reaches(&cursor, cursor.lbn + 1);
        if end.saturating_sub(self.mechanism.sector_time(cursor.lbn)) > now {
            return now;
        }
        self.buffer.extend(ahead.segment, cursor.lbn + 1);
        end
    }
}
