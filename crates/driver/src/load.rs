//! What each device is asked for, and how busy it is with that: counters, written when an operation begins and ends.

use bimetal_units::Nanos;

/// What a device was asked for since its driver was made. Flushes and discards count for `busy`, `wait` and `errors` only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceLoad {
    /// Reads that have ended.
    pub reads: u64,
    /// Writes that have ended.
    pub writes: u64,
    /// Bytes of those reads.
    pub read_bytes: u64,
    /// Bytes of those writes.
    pub written_bytes: u64,
    /// Operations of any kind that have failed.
    pub errors: u64,
    /// Operations in flight now.
    pub in_flight: u64,
    /// Time with something in flight, nanoseconds.
    pub busy_ns: u64,
    /// Time that all operations that have ended took, added up, nanoseconds.
    pub wait_ns: u64,
}

/// What an operation was for, as far as it is counted apart.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    Read,
    Write,
    Other,
}

/// An operation that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) asked: Asked,
    pub(crate) bytes: u64,
    pub(crate) began: Nanos,
    pub(crate) ok: bool,
}

/// The counters of all devices.
#[derive(Debug, Default)]
pub(crate) struct Loads(Vec<Busy>);

#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    load: DeviceLoad,
    /// Since when something is in flight.
    since: Nanos,
}

impl Loads {
    /// An operation is handed to a device.
    pub(crate) fn begin(&mut self, device: usize, now: Nanos) {
        if self.0.len() <= device {
            self.0.resize(device + 1, Busy::default());
        }
        let busy = &mut self.0[device];
        if busy.load.in_flight == 0 {
            busy.since = now;
        }
        busy.load.in_flight += 1;
    }

    /// An operation that was handed to a device has ended.
    pub(crate) fn end(&mut self, device: usize, now: Nanos, ended: &Ended) {
        let Some(Busy { load, since }) = self.0.get_mut(device) else { return };
        load.in_flight = load.in_flight.saturating_sub(1);
        if load.in_flight == 0 {
            load.busy_ns += now.since(*since);
        }
        load.wait_ns += now.since(ended.began);
        match ended.asked {
            _ if !ended.ok => load.errors += 1,
            Asked::Read => {
                load.reads += 1;
                load.read_bytes += ended.bytes;
            }
            Asked::Write => {
                load.writes += 1;
                load.written_bytes += ended.bytes;
            }
            Asked::Other => {}
        }
    }

    /// The counters of a device as of now.
    pub(crate) fn of(&self, device: usize, now: Nanos) -> DeviceLoad {
        let Some(Busy { mut load, since }) = self.0.get(device).copied() else {
            return DeviceLoad::default();
        };
        if load.in_flight > 0 {
            load.busy_ns += now.since(since);
        }
        load
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(began: u64, ok: bool) -> Ended {
        Ended { asked: Asked::Read, bytes: 4096, began: Nanos(began), ok }
    }

    #[test]
    fn time_with_several_in_flight_is_busy_once_and_waited_for_by_each() {
        let mut loads = Loads::default();
        loads.begin(1, Nanos(100));
        loads.begin(1, Nanos(150));
        assert_eq!(loads.of(1, Nanos(160)).busy_ns, 60);
        loads.end(1, Nanos(200), &read(100, true));
        loads.end(1, Nanos(300), &read(150, false));
        let load = loads.of(1, Nanos(1000));
        assert_eq!((load.busy_ns, load.wait_ns, load.in_flight), (200, 100 + 150, 0));
        assert_eq!((load.reads, load.read_bytes, load.errors), (1, 4096, 1));
        assert_eq!(loads.of(0, Nanos(1000)), DeviceLoad::default());
    }
}
