//! Tokens in flight, and what they tell of each device: when it answered last, and how often it was woken.

use crate::api::action::Token;
use crate::api::options::WakeUps;
use crate::base::place::Place;
use crate::base::slab::Slab;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Device I/Os in flight at most: far beyond what any queue gains from.
const MAX_TOKENS: usize = 1 << 16;
/// Unit of a queue's average depth.
const DEPTH_UNIT: u32 = 256;
/// One command in this many is the weight of the newest one in that average.
const DEPTH_MEMORY: u32 = 16;

/// Who waits for a device's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Owner {
    /// A piece of a request.
    Piece(u32),
    /// A log group, by its number.
    Group(Seq),
    /// The index of a segment.
    Index(Place),
    /// A flush.
    Flush {
        /// Of which device.
        tier: Tier,
        /// Whether a commit waits for it.
        for_commit: bool,
    },
    /// An I/O of a batch of moves.
    Batch {
        /// The batch.
        batch: u32,
        /// Which of its I/Os.
        io: u32,
    },
    /// A write of the checkpoint.
    Checkpoint(u32),
    /// A page of checksums.
    SumPage(u32),
    /// A copy being made.
    Copy(u32),
    /// A slot whose space is given back.
    Trim(Home),
    /// A free segment that is discarded.
    Segment,
    /// The list of pins.
    Pins,
    /// A page of marks, or their header.
    Marks(u32),
    /// A read for no other reason than to hear whether this device reads at all.
    Probe(Tier),
    /// What a scrub reads.
    Scrub,
    /// How far it has come.
    ScrubPage,
    /// A superblock.
    Shutdown,
}

impl Owner {
    /// Whether a client's request is behind it. Pages of checksums count as read for clients: moves and checkpoints
    /// read few, and other things with them.
    fn is_clients(self) -> bool {
        match self {
            Owner::Piece(_) | Owner::Group(_) | Owner::SumPage(_) | Owner::Copy(_) | Owner::Trim(_) => true,
            Owner::Flush { for_commit, .. } => for_commit,
            Owner::Index(_)
            | Owner::Segment
            | Owner::Batch { .. }
            | Owner::Checkpoint(_)
            | Owner::Pins
            | Owner::Marks(_)
            | Owner::Probe(_)
            | Owner::Scrub
            | Owner::ScrubPage
            | Owner::Shutdown => false,
        }
    }
}

/// What one device is used for.
#[derive(Serialize, Deserialize)]
struct Use {
    in_flight: u32,
    /// When it last answered something, or had nothing to answer.
    heard: Nanos,
    /// When a client's request last used it.
    clients_at: Nanos,
    /// Of `in_flight`, those with a client's request behind them.
    clients: u32,
    /// How many of these there were lately when one more came, itself included, in [`DEPTH_UNIT`].
    depth: u32,
    /// How long it has worked for the background, ns: each answer ends the time since the one before.
    background_ns: u64,
    wakeups: WakeUps,
    /// What it answered last was that it does not answer in time.
    late: bool,
}

#[derive(Serialize, Deserialize)]
struct InFlight {
    generation: u32,
    device: Tier,
    owner: Owner,
    since: Nanos,
}

/// Tokens in flight and whose they are.
#[derive(Serialize, Deserialize)]
pub struct Tokens {
    slab: Slab<InFlight>,
    generation: u32,
    rest_after_ns: u64,
    /// By tier.
    uses: ByTier<Use>,
}

impl Tokens {
    /// None in flight. Opening has just used both devices; one that nobody uses for `rest_after_ns` rests.
    pub(crate) fn new(now: Nanos, rest_after_ns: u64) -> Tokens {
        let unused = || Use {
            in_flight: 0,
            heard: now,
            clients_at: now,
            clients: 0,
            depth: 0,
            background_ns: 0,
            wakeups: WakeUps::default(),
            late: false,
        };
        Tokens {
            slab: Slab::new(MAX_TOKENS),
            generation: 0,
            rest_after_ns,
            uses: ByTier([unused(), unused()]),
        }
    }

    pub(crate) fn issue(&mut self, device: Tier, owner: Owner, now: Nanos) -> Token {
        let on = &mut self.uses[device];
        if on.in_flight == 0 {
            if now.since(on.heard) >= self.rest_after_ns {
                let who =
                    if owner.is_clients() { &mut on.wakeups.clients } else { &mut on.wakeups.background };
                *who += 1;
            }
            on.heard = now;
        }
        if owner.is_clients() {
            on.clients_at = now;
            on.clients += 1;
            on.depth -= on.depth / DEPTH_MEMORY;
            on.depth += on.clients * DEPTH_UNIT / DEPTH_MEMORY;
        }
        on.in_flight += 1;
        self.generation = self.generation.wrapping_add(1);
        let index = self.slab.insert(InFlight { generation: self.generation, device, owner, since: now });
        Token(u64::from(self.generation) << 32 | u64::from(index))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.slab.is_empty()
    }

    pub(crate) fn owner(&self, token: Token) -> Option<Owner> {
        let InFlight { generation, owner, .. } = *self.slab.get(token.0 as u32)?;
        (u64::from(generation) == token.0 >> 32).then_some(owner)
    }

    /// The device that answered, whose I/O it was, and how long that took, ns.
    pub(crate) fn redeem(&mut self, token: Token, now: Nanos) -> (Tier, Owner, u64) {
        let owner = self.owner(token).expect("a completion answers a token in flight, once");
        let InFlight { device, since, .. } = self.slab.remove(token.0 as u32);
        let on = &mut self.uses[device];
        on.in_flight -= 1;
        if owner.is_clients() {
            on.clients_at = now;
            on.clients -= 1;
        } else {
            on.background_ns += now.since(on.heard);
        }
        on.heard = now;
        (device, owner, now.since(since))
    }

    /// The device has answered, or it was given up waiting for that.
    pub(crate) fn note_late(&mut self, device: Tier, late: bool) {
        self.uses[device].late = late;
    }

    /// Whether it was given up waiting for the device, and nothing has been heard of it since.
    pub(crate) fn is_late(&self, device: Tier) -> bool {
        self.uses[device].late
    }

    /// Since when the device has answered nothing; none while there is nothing to answer.
    pub(crate) fn silent_since(&self, tier: Tier) -> Option<Nanos> {
        let on = &self.uses[tier];
        (on.in_flight > 0).then_some(on.heard)
    }

    /// When the device was last heard of: it answered, or was asked for something after it had nothing to do.
    pub(crate) fn heard(&self, tier: Tier) -> Nanos {
        self.uses[tier].heard
    }

    /// Whether the device rests: who uses it now wakes it.
    pub(crate) fn rests(&self, tier: Tier, now: Nanos) -> bool {
        let on = &self.uses[tier];
        on.in_flight == 0 && now.since(on.heard) >= self.rest_after_ns
    }

    /// When a client's request last used the device; the opening counts as one.
    pub(crate) fn used_by_clients(&self, tier: Tier) -> Nanos {
        self.uses[tier].clients_at
    }

    /// How many commands of clients the device has to do lately, when one more comes.
    pub(crate) fn client_depth(&self, tier: Tier) -> u32 {
        self.uses[tier].depth / DEPTH_UNIT
    }

    /// How long the device has worked for the background so far, ns.
    pub(crate) fn background_ns(&self, tier: Tier) -> u64 {
        self.uses[tier].background_ns
    }

    /// How often the device was woken.
    pub(crate) fn wakeups(&self, tier: Tier) -> WakeUps {
        self.uses[tier].wakeups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_io_after_a_rest_is_a_wake_up_of_whoever_sent_it() {
        let at = |seconds: u64| Nanos(seconds * Nanos::SECOND);
        let mut tokens = Tokens::new(at(100), 20 * Nanos::SECOND);
        let client = Owner::Piece(0);
        let background = Owner::Batch { batch: 0, io: 0 };
        let done = |tokens: &mut Tokens, owner, from, to| {
            let token = tokens.issue(SLOW, owner, at(from));
            tokens.redeem(token, at(to));
        };
        done(&mut tokens, background, 119, 119);
        assert_eq!(tokens.wakeups(SLOW), WakeUps::default(), "19 s after the opening");
        // One command takes half a minute: the device is at work meanwhile.
        done(&mut tokens, client, 139, 169);
        done(&mut tokens, background, 188, 188);
        assert_eq!(tokens.wakeups(SLOW), WakeUps { clients: 1, background: 0 });
        done(&mut tokens, background, 208, 208);
        assert_eq!(tokens.wakeups(SLOW), WakeUps { clients: 1, background: 1 });
        assert_eq!(tokens.wakeups(FAST), WakeUps::default());
        assert_eq!(tokens.used_by_clients(SLOW), at(169));
    }

    #[test]
    fn work_for_the_background_and_the_depth_of_clients_are_told_apart() {
        let at = |ms: u64| Nanos(ms * Nanos::MS);
        let mut tokens = Tokens::new(at(0), 20 * Nanos::SECOND);
        let (client, background) = (Owner::Piece(0), Owner::Batch { batch: 0, io: 0 });
        // Idle until 100; the background's command is at work from 110 to 118, behind a client's.
        let first = tokens.issue(SLOW, client, at(100));
        let second = tokens.issue(SLOW, background, at(101));
        tokens.redeem(first, at(110));
        tokens.redeem(second, at(118));
        assert_eq!(tokens.background_ns(SLOW), 8 * Nanos::MS);
        let alone = tokens.issue(SLOW, background, at(200));
        tokens.redeem(alone, at(204));
        assert_eq!(tokens.background_ns(SLOW), 12 * Nanos::MS);
        assert_eq!(tokens.client_depth(SLOW), 0);
        let mut waiting: Vec<_> = (0..3).map(|_| tokens.issue(SLOW, client, at(300))).collect();
        for ms in 301..400 {
            tokens.redeem(waiting.remove(0), at(ms));
            waiting.push(tokens.issue(SLOW, client, at(ms)));
        }
        assert_eq!(tokens.client_depth(SLOW), 3);
        for ms in 400..500 {
            let token = tokens.issue(FAST, client, at(ms));
            tokens.redeem(token, at(ms));
        }
        assert_eq!([tokens.client_depth(FAST), tokens.client_depth(SLOW)], [1, 3]);
    }
}
