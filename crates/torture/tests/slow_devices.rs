//! Devices that are alive and take their time: seconds for each command, or a minute of silence. Nobody is told of
//! an error, nothing is lost, and when they are quick again so is the volume.

use crate::story::{Asked, BLOCK, CHUNK, Story};
use bimetal_engine::action::RequestKind;
use bimetal_engine::options::TierStatus;
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::{Death, Service};
use bimetal_units::rng::Rng;
use bimetal_units::{Nanos, SECTOR_BYTES, SLOW};

const SECOND: u64 = Nanos::SECOND;
const MINUTE: u64 = 60 * SECOND;
/// Requests that the client has in flight.
const DEPTH: usize = 8;
/// Its requests are this far apart at least: close enough to keep the volume from being idle.
const PACE_NS: u64 = 2 * Nanos::MS;
/// The client works on this many chunks, most of them on the slow tier.
const CHUNKS: u64 = 60;
/// Half of the time on so many of them.
const HOT_CHUNKS: u64 = 4;
const PER_CHUNK: u64 = CHUNK / BLOCK;

/// What a block holds: its writes are numbered from 1 on.
#[derive(Clone, Copy, Default)]
struct Content {
    written: u8,
    answered: u8,
    durable: u8,
    in_flight: bool,
}

enum Doing {
    Write(usize),
    Read(usize),
    /// With the answered writes that it makes durable.
    Flush(Vec<u8>),
}

/// A client that reads, writes and flushes without pause, and knows what must be there.
struct Load {
    rng: Rng,
    /// The first of the chunks that it works on half of the time.
    hot: u64,
    mostly_hot: bool,
    blocks: Vec<Content>,
    flights: Vec<(Asked, Doing, Nanos)>,
    /// When the next request may go.
    next: Nanos,
    answered: u64,
    /// The longest that a request took.
    longest_ns: u64,
}

impl Load {
    fn new() -> Load {
        let blocks = vec![Content::default(); (CHUNKS * PER_CHUNK) as usize];
        Load {
            rng: Rng::new(1, 1),
            // Written last, and so on the slow tier.
            hot: CHUNKS - HOT_CHUNKS,
            mostly_hot: false,
            blocks,
            flights: Vec::new(),
            next: Nanos(0),
            answered: 0,
            longest_ns: 0,
        }
    }

    fn submit(&mut self, s: &mut Story) {
        let hot = if self.mostly_hot { !self.rng.one_in(16) } else { self.rng.one_in(2) };
        let (first, chunks) = if hot { (self.hot, HOT_CHUNKS) } else { (0, CHUNKS) };
        let block = (first * PER_CHUNK + self.rng.below(chunks * PER_CHUNK)) as usize;
        let at = block as u64 * BLOCK;
        let (asked, doing) = match self.rng.below(8) {
            0 => {
                let answered = self.blocks.iter().map(|b| b.answered).collect();
                (s.ask(RequestKind::Flush, 0, 0, 0), Doing::Flush(answered))
            }
            _ if self.blocks[block].in_flight => return,
            1..=4 if self.blocks[block].written < u8::MAX => {
                let content = &mut self.blocks[block];
                (content.in_flight, content.written) = (true, content.written + 1);
                let number = content.written;
                (s.ask(RequestKind::Write { fua: false }, at, BLOCK, number), Doing::Write(block))
            }
            _ => {
                self.blocks[block].in_flight = true;
                (s.ask(RequestKind::Read, at, BLOCK, 0), Doing::Read(block))
            }
        };
        self.flights.push((asked, doing, s.world.now()));
    }

    fn settle(&mut self, s: &mut Story) {
        for (asked, doing, since) in std::mem::take(&mut self.flights) {
            let Some(answer) = s.take_answer(&asked) else {
                self.flights.push((asked, doing, since));
                continue;
            };
            let bytes = answer.expect("no request fails");
            self.answered += 1;
            self.longest_ns = self.longest_ns.max(s.world.now().since(since));
            match doing {
                Doing::Write(block) => {
                    let content = &mut self.blocks[block];
                    (content.in_flight, content.answered) = (false, content.written);
                }
                Doing::Read(block) => {
                    let content = &mut self.blocks[block];
                    content.in_flight = false;
                    assert!(bytes.iter().all(|&b| b == content.answered), "block {block}: {}", bytes[0]);
                }
                Doing::Flush(answered) => {
                    for (block, number) in self.blocks.iter_mut().zip(answered) {
                        block.durable = block.durable.max(number);
                    }
                }
            }
        }
    }

    /// Works until `end`, or until `enough`. Before each event `weather` may change the devices.
    fn work(
        &mut self,
        s: &mut Story,
        end: Nanos,
        mut weather: impl FnMut(&mut Story),
        enough: impl Fn(&mut Story) -> bool,
    ) {
        while s.world.now() < end && !enough(s) {
            weather(s);
            if self.flights.len() < DEPTH && s.world.now() >= self.next {
                self.next = s.world.now().after(PACE_NS);
                self.submit(s);
            }
            s.wait(PACE_NS);
            self.settle(s);
        }
    }

    /// Waits for all answers.
    fn finish(&mut self, s: &mut Story) {
        while !self.flights.is_empty() {
            s.step();
            self.settle(s);
        }
    }

    /// After a crash each sector, which is what devices write as a whole, holds a write that is not older than the last one
    /// flushed: what was written in place and not flushed may be there in part.
    fn verify_after_crash(&mut self, s: &mut Story) {
        for (block, content) in self.blocks.iter().enumerate() {
            let bytes = s.read(block as u64 * BLOCK, BLOCK).expect("every block can be read");
            let legal = content.durable..=content.written;
            for sector in bytes.chunks(SECTOR_BYTES as usize) {
                assert!(sector.iter().all(|&b| b == sector[0]), "a sector of block {block} is torn");
                assert!(legal.contains(&sector[0]), "block {block} holds {}, not {legal:?}", sector[0]);
            }
        }
    }
}

/// A volume whose chunks rise by heat, on which the client has written everything once.
fn begin() -> (Story, Load) {
    // A zone that does not run short for a trickle of writes: while it does, single chunks do not rise.
    let mut s = Story::begin_with_zone(64, 200, 48);
    s.stop();
    s.tuning.promote_touches = 3;
    s.open().expect("the volume opens");
    let mut load = Load::new();
    for block in 0..load.blocks.len() {
        s.write(block as u64 * BLOCK, BLOCK, 1);
        load.blocks[block] = Content { written: 1, answered: 1, durable: 0, in_flight: false };
    }
    s.flush();
    load.blocks.iter_mut().for_each(|b| b.durable = 1);
    s.wait(5 * SECOND);
    assert!(s.is_slow((CHUNKS - 1) * CHUNK), "the hot chunks begin on the slow tier");
    s.engine().take_events();
    (s, load)
}

/// The whole story but its bad weather: the client works on in it for a while, then the devices are quick again.
/// `silent` looks at what the status says of the devices at the end of it.
fn comes_through(
    bad: impl Fn(&mut Story, Nanos),
    silent: impl Fn(&[TierStatus], Nanos),
    bad_ns: u64,
    patience_ns: u64,
) {
    let (mut s, mut load) = begin();
    let start = s.world.now();
    load.work(&mut s, start.after(bad_ns), |s| bad(s, start), |_| false);
    assert!(load.answered > 0, "the volume goes on");
    let slow = (load.answered, load.longest_ns / SECOND);
    let before = s.engine().status();
    assert_eq!(before.state, "open");
    silent(&before.tiers, s.world.now());
    let quick_again = s.world.now();
    // What was hot may have risen already: other chunks of the slow tier are to rise now, and all else is hardly touched.
    let is_slow = |s: &mut Story, chunk: u64| {
        let now = s.world.now();
        s.engine().why(now, chunk * CHUNK).and_then(|why| why.home).is_some_and(|home| home.tier == SLOW)
    };
    let slow_from = |s: &mut Story, first: u64| (first..first + HOT_CHUNKS).all(|chunk| is_slow(s, chunk));
    load.hot = (0..=load.hot).rev().find(|first| slow_from(&mut s, *first)).expect("most of it is slow");
    load.mostly_hot = true;
    s.world.services = vec![Service::default(); 2];
    let resumed = |s: &mut Story| {
        let now = s.engine().status();
        now.promoted_chunks > before.promoted_chunks && now.destaged_blocks > before.destaged_blocks
    };
    load.work(&mut s, quick_again.after(10 * MINUTE), |_| {}, resumed);
    let resumed_ns = s.world.now().since(quick_again);
    println!(
        "{} requests while it was bad, the longest {} s; chunks rose and blocks were merged {} s after it",
        slow.0,
        slow.1,
        resumed_ns / SECOND
    );
    assert!(resumed_ns <= patience_ns, "migration resumed after {} s", resumed_ns / SECOND);
    // What was handed over before takes as long as it was going to.
    load.finish(&mut s);
    s.wait(20 * SECOND);
    load.longest_ns = 0;
    let now = s.world.now();
    load.work(&mut s, now.after(SECOND), |_| {}, |_| false);
    load.finish(&mut s);
    assert!(load.longest_ns < SECOND, "it stays slow: {} ms", load.longest_ns / Nanos::MS);
    s.wait(10 * SECOND);
    let status = s.engine().status();
    assert_eq!((status.state, status.landed_bytes), ("open", 0), "all was merged");
    let events = s.engine().take_events();
    assert!(events.is_empty(), "nothing failed, and this was said: {events:?}");
    s.die(Death::PowerCut(CutStyle::LoseAll));
    s.open().expect("the volume opens");
    load.verify_after_crash(&mut s);
    s.stop();
    assert_eq!(s.check(), Ok(vec![]), "the volume is clean");
}

/// Every command takes so long on this device.
fn takes(min_ns: u64, max_ns: u64) -> Service {
    Service { min_ns, max_ns, per_kib_ns: 0, flush_factor: 1, ..Service::default() }
}

#[test]
fn both_devices_take_seconds_for_every_command() {
    let slow = |s: &mut Story, _: Nanos| s.world.services = vec![takes(2 * SECOND, 20 * SECOND); 2];
    // Where the bad weather ends decides what it interrupts.
    for minutes in [2, 6, 8, 31] {
        comes_through(slow, |_, _| {}, minutes * MINUTE, MINUTE);
    }
}

/// The device answers nothing until the minute is over.
fn stalls(device: usize) -> impl Fn(&mut Story, Nanos) {
    move |s: &mut Story, start: Nanos| {
        let left = start.after(MINUTE).since(s.world.now());
        s.world.services[device] = takes(left, left);
    }
}

/// A second before its end the status tells of the silence, and of no other.
fn is_silent(device: usize) -> impl Fn(&[TierStatus], Nanos) {
    move |tiers: &[TierStatus], now: Nanos| {
        let silent = |tier: &TierStatus| tier.silent_since.map_or(0, |since| now.since(since) / SECOND);
        assert!((58..=59).contains(&silent(&tiers[device])), "{tiers:?}");
        assert_eq!(silent(&tiers[1 - device]), 0, "{tiers:?}");
    }
}

#[test]
fn the_fast_device_is_silent_for_a_minute() {
    comes_through(stalls(0), is_silent(0), MINUTE - SECOND, MINUTE);
}

#[test]
fn the_slow_device_is_silent_for_a_minute() {
    comes_through(stalls(1), is_silent(1), MINUTE - SECOND, MINUTE);
}

/// The power fails while both devices are slow, amid whatever was going on.
#[test]
fn power_is_cut_while_both_devices_are_slow() {
    for style in CutStyle::ALL {
        let (mut s, mut load) = begin();
        let start = s.world.now();
        let slow = |s: &mut Story| s.world.services = vec![takes(2 * SECOND, 20 * SECOND); 2];
        load.work(&mut s, start.after(10 * MINUTE), slow, |_| false);
        s.die(Death::PowerCut(style));
        s.open().expect("the volume opens");
        load.verify_after_crash(&mut s);
    }
}
