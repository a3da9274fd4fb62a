//! Several volumes behind the same sockets.
//!
//! Each volume is served by a thread of its own, with its own ring and buffers: requests meet nothing that is shared.
//! The thread of the first volume also keeps the [`Door`](crate::door::Door): it negotiates with every client, and
//! hands one that chose another volume over to that volume's thread. What follows is all that the threads share; it
//! is touched when clients come and go, never by a request.

use bimetal_nbd::{Export, Terms};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Volumes that one server serves at most: each takes a thread, a ring, and its buffers.
pub const MAX_VOLUMES: usize = 16;

/// A client that has chosen the volume of another thread.
pub(crate) struct Guest {
    pub(crate) fd: OwnedFd,
    pub(crate) terms: Terms,
    /// What it has sent behind the choice.
    pub(crate) input: Vec<u8>,
}

/// What the threads of a server share.
struct House {
    rooms: Vec<Room>,
    /// Clients of all volumes, those that negotiate included.
    clients: AtomicUsize,
    /// Somebody waits at the door because there are too many.
    crowded: AtomicBool,
    /// How long a client may ask for nothing while others wait for its place.
    idle_after_ms: AtomicU64,
    /// Everybody is to close.
    stopping: AtomicBool,
    /// How often each thread has to say that it goes round, for the watchdog's sake; 0 where there is none.
    beat_every_ms: AtomicU64,
    since: Instant,
    announced: Mutex<Vec<Option<Export>>>,
    /// Something was announced, or never will be.
    news: Condvar,
}

/// What others may tell the thread of a volume.
struct Room {
    /// Readable when there is something to look at.
    bell: OwnedFd,
    guests: Mutex<VecDeque<Guest>>,
    over: AtomicBool,
    beat_ms: AtomicU64,
}

/// The thread of one volume, as the others see it. When it goes, for whatever reason, everybody closes.
pub struct Tenant {
    house: Arc<House>,
    place: usize,
}

/// Nobody leaves these tables half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tenant {
    /// A house for this many volumes: their tenants, the first of whom keeps the door.
    ///
    /// # Panics
    /// For none, or more than [`MAX_VOLUMES`].
    pub fn house(volumes: usize) -> io::Result<Vec<Tenant>> {
        assert!((1..=MAX_VOLUMES).contains(&volumes), "{volumes} volumes");
        let room = || {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Room {
                bell,
                guests: Mutex::default(),
                over: AtomicBool::new(false),
                beat_ms: AtomicU64::new(0),
            })
        };
        let house = Arc::new(House {
            rooms: std::iter::repeat_with(room).take(volumes).collect::<io::Result<_>>()?,
            clients: AtomicUsize::new(0),
            crowded: AtomicBool::new(false),
            idle_after_ms: AtomicU64::new(u64::MAX),
            stopping: AtomicBool::new(false),
            beat_every_ms: AtomicU64::new(0),
            since: Instant::now(),
            announced: Mutex::new(vec![None; volumes]),
            news: Condvar::new(),
        });
        Ok((0..volumes).map(|place| Tenant { house: house.clone(), place }).collect())
    }

    /// The volume is open, and this is what clients will see of it.
    pub fn announce(&self, export: Export) {
        lock(&self.house.announced)[self.place] = Some(export);
        self.house.news.notify_all();
    }

    /// Waits until all volumes are open; `None` when one of them will not be.
    pub fn exports(&self) -> Option<Vec<Export>> {
        let mut announced = lock(&self.house.announced);
        loop {
            if self.is_stopping() {
                return None;
            }
            if announced.iter().all(Option::is_some) {
                return Some(announced.iter().flatten().cloned().collect());
            }
            announced = self.house.news.wait(announced).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets every volume be closed.
    pub fn stop_all(&self) {
        // Under the lock, so that nobody who has just looked misses the news.
        let announced = lock(&self.house.announced);
        self.house.stopping.store(true, Ordering::SeqCst);
        drop(announced);
        self.house.news.notify_all();
        self.house.rooms.iter().for_each(Room::ring);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.house.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn place(&self) -> usize {
        self.place
    }

    /// Whether all others have closed.
    pub(crate) fn is_last(&self) -> bool {
        self.others().all(|room| room.over.load(Ordering::SeqCst))
    }

    /// Takes a place for a client, if there is one; else those who can make room are told.
    pub(crate) fn admit(&self, most: usize) -> bool {
        let take = || {
            let more = |clients| (clients < most).then_some(clients + 1);
            self.house.clients.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
        };
        if take() {
            return true;
        }
        if !self.house.crowded.swap(true, Ordering::SeqCst) {
            self.others().for_each(Room::ring);
        }
        // Who gave a place back before it could be seen that somebody waits did not ring.
        take()
    }

    /// Gives a client's place back.
    pub(crate) fn dismiss(&self) {
        self.house.clients.fetch_sub(1, Ordering::SeqCst);
        if self.place != 0 && self.is_crowded() {
            self.house.rooms[0].ring();
        }
    }

    /// While somebody waits for a place, a client that asks for nothing for so long gives way.
    pub(crate) fn let_idle_go_after(&self, time: Duration) {
        self.house.idle_after_ms.store(time.as_millis() as u64, Ordering::SeqCst);
    }

    /// How long that is.
    pub(crate) fn idle_after(&self) -> Duration {
        Duration::from_millis(self.house.idle_after_ms.load(Ordering::SeqCst))
    }

    /// Whether somebody waits at the door for a place.
    pub(crate) fn is_crowded(&self) -> bool {
        self.house.crowded.load(Ordering::SeqCst)
    }

    /// Nobody waits at the door any more.
    pub(crate) fn not_crowded(&self) {
        self.house.crowded.store(false, Ordering::SeqCst);
    }

    /// Hands a client, with its place, to the volume it chose.
    pub(crate) fn hand_over(&self, to: usize, guest: Guest) {
        let room = &self.house.rooms[to];
        lock(&room.guests).push_back(guest);
        room.ring();
    }

    /// The next client that was handed over to this volume.
    pub(crate) fn next_guest(&self) -> Option<Guest> {
        lock(&self.house.rooms[self.place].guests).pop_front()
    }

    /// Becomes readable when there is something to look at.
    pub(crate) fn bell(&self) -> RawFd {
        self.house.rooms[self.place].bell.as_raw_fd()
    }

    /// Stops the bell.
    pub(crate) fn answer_bell(&self) {
        let mut count = [0; 8];
        // Nothing to read is as good.
        let _ = rustix::io::read(&self.house.rooms[self.place].bell, &mut count);
    }

    /// From now on each thread has to go round this often.
    pub(crate) fn watch(&self, every: Duration) {
        self.house.beat_every_ms.store((every.as_millis() as u64).max(1), Ordering::SeqCst);
        self.others().for_each(Room::ring);
    }

    /// This thread goes round: when it has to come again at the latest.
    pub(crate) fn beat(&self) -> Option<Duration> {
        let every = self.house.beat_every_ms.load(Ordering::Relaxed);
        if every == 0 || self.place == 0 {
            return None;
        }
        self.house.rooms[self.place].beat_ms.store(self.house.now_ms(), Ordering::Relaxed);
        Some(Duration::from_millis(every / 2))
    }

    /// Whether all other threads have come round within the time that was asked for.
    pub(crate) fn all_beat(&self) -> bool {
        let every = self.house.beat_every_ms.load(Ordering::Relaxed);
        let oldest = self.house.now_ms().saturating_sub(every);
        self.others()
            .all(|room| room.over.load(Ordering::SeqCst) || room.beat_ms.load(Ordering::Relaxed) >= oldest)
    }

    fn others(&self) -> impl Iterator<Item = &Room> {
        self.house.rooms.iter().enumerate().filter(|&(place, _)| place != self.place).map(|(_, room)| room)
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        self.house.rooms[self.place].over.store(true, Ordering::SeqCst);
        self.stop_all();
    }
}

impl House {
    fn now_ms(&self) -> u64 {
        self.since.elapsed().as_millis() as u64
    }
}

impl Room {
    fn ring(&self) {
        // It fails only when the bell has been rung 2^64 times and not been answered.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(name: &str) -> Export {
        Export { name: name.into(), description: String::new(), size_bytes: 1, read_only: false }
    }

    #[test]
    fn the_door_opens_when_all_volumes_are_open() {
        let mut tenants = Tenant::house(3).expect("house");
        let others = tenants.split_off(1);
        let all = std::thread::scope(|scope| {
            for (tenant, name) in others.iter().zip(["b", "c"]) {
                scope.spawn(move || tenant.announce(export(name)));
            }
            tenants[0].announce(export("a"));
            tenants[0].exports().expect("all are open")
        });
        assert_eq!(all.iter().map(|export| export.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn one_that_goes_stops_all() {
        let mut tenants = Tenant::house(2).expect("house");
        let other = tenants.pop().expect("two");
        std::thread::scope(|scope| {
            scope.spawn(|| drop(other));
            assert_eq!(tenants[0].exports(), None);
        });
        assert!(tenants[0].is_stopping() && tenants[0].is_last());
    }

    #[test]
    fn places_are_counted_over_all_volumes() {
        let tenants = Tenant::house(2).expect("house");
        assert!(tenants[0].admit(1) && !tenants[0].is_crowded());
        assert!(!tenants[0].admit(1) && tenants[1].is_crowded());
        tenants[1].dismiss();
        tenants[0].answer_bell();
        assert!(tenants[0].admit(1));
        tenants[0].not_crowded();
        assert!(!tenants[1].is_crowded());
    }
}
