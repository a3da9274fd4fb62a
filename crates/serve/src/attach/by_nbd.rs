//! The kernel's NBD client as the way to a device of the machine: one connection, served like that of any client.
//!
//! It is one, and not several. With several, the driver takes a connection whose server is only slow for dead, and sends
//! what was under way there again on another, while the first may still be carried out.

use super::machine::{Device, Standing, Way};
use super::{Kind, Record, Wish};
use crate::connection::Phase;
use crate::served::Served;
use crate::server::Server;
use bimetal_driver::kernel_nbd::{self, NbdShape};
use bimetal_nbd::{Terms, Transmission};
use std::io;
use std::time::{Duration, Instant};

/// How often it is tried to connect the kernel again.
const MEND_EVERY: Duration = Duration::from_secs(1);

/// A device by the kernel's NBD client.
#[derive(Debug, Default)]
pub(crate) struct MachineNbd {
    /// When its connection is to be made again, if it broke.
    mend_at: Option<Instant>,
}

impl MachineNbd {
    pub(crate) fn due_in(&self) -> Option<Duration> {
        self.mend_at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

impl<V: Served> Server<V> {
    fn nbd_shape(&self, record: &Record) -> NbdShape {
        let mut export = self.export().clone();
        export.read_only |= record.wish.read_only;
        NbdShape {
            size_bytes: export.size_bytes,
            sector_bytes: record.sector_bytes,
            flags: export.transmission_flags(false).bits(),
            wait: Duration::from_secs(record.wish.wait_seconds.into()),
            identity: record.nbd_identity(),
        }
    }

    pub(crate) fn make_nbd(&mut self, wish: Wish) -> Result<Device, String> {
        let mut record = self.new_record(Kind::Nbd, 0, wish);
        let shape = self.nbd_shape(&record);
        // One whose record was lost may be mounted.
        let left = kernel_nbd::find(&record.nbd_identity());
        let made = match left.map(|index| Ok((index, kernel_nbd::try_reconnect(index, &shape)?))) {
            Some(Ok((index, Some(ours)))) => Ok((index, ours)),
            Some(Err(error)) => Err(error),
            _ => kernel_nbd::connect(&shape),
        };
        let (index, ours) = made.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "the kernel has no nbd driver (is the module nbd there?)".to_owned(),
            io::ErrorKind::PermissionDenied => "the right to make one is missing (CAP_SYS_ADMIN)".to_owned(),
            _ => format!("the kernel refuses: {error}"),
        })?;
        record.number = index;
        self.seat_machine(ours, Phase::Requests(Transmission::new()));
        let way = Way::Nbd(MachineNbd::default());
        Ok(Device { record, way, standing: Standing::There, notes: Vec::new(), asker: None })
    }

    pub(crate) fn take_up_nbd(&mut self, record: &Record) -> io::Result<MachineNbd> {
        let ours = kernel_nbd::reconnect(record.number, &self.nbd_shape(record))?;
        self.seat_machine(ours, Phase::Requests(Transmission::new()));
        Ok(MachineNbd::default())
    }

    fn seat_machine(&mut self, ours: std::os::fd::OwnedFd, phase: Phase) {
        self.seat(ours, phase, Terms::default(), Vec::new(), &[], true);
    }

    /// The kernel's connection has ended; `goodbye`: because the kernel wanted it to.
    pub(crate) fn machine_left(&mut self, goodbye: bool) {
        let Some(device) = self.machine.device.as_mut().filter(|device| device.standing == Standing::There)
        else {
            return;
        };
        match &mut device.way {
            _ if self.stopping => {}
            Way::Nbd(_) if goodbye => self.device_was_taken(),
            Way::Nbd(nbd) => {
                tracing::warn!(
                    "the kernel's connection of {} has broken; it gets another",
                    device.record.device().display()
                );
                nbd.mend_at = Some(Instant::now());
            }
            Way::Fuse(_) => {
                tracing::error!("nbdfuse has ended: {} fails from now on", device.record.device().display());
            }
            Way::Ublk(_) => {}
        }
    }

    /// Gives the kernel another connection, where that broke.
    pub(crate) fn mend_nbd(&mut self) {
        let Some(device) = &mut self.machine.device else { return };
        let Way::Nbd(nbd) = &mut device.way else { return };
        if self.stopping || nbd.mend_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        nbd.mend_at = Some(Instant::now() + MEND_EVERY);
        let record = device.record.clone();
        match kernel_nbd::try_reconnect(record.number, &self.nbd_shape(&record)) {
            Ok(Some(ours)) => {
                if let Some(Device { way: Way::Nbd(nbd), .. }) = &mut self.machine.device {
                    nbd.mend_at = None;
                }
                self.seat_machine(ours, Phase::Requests(Transmission::new()));
            }
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.device_was_taken(),
            Err(error) => tracing::warn!("{} is not connected yet: {error}", record.device().display()),
        }
    }
}
