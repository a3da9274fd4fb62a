//! Devices that answer as slowly as a model says: the bytes are a file's, the time is a modelled device's.
//!
//! An operation on such a device goes to the ring as always, and to the model at the same moment. The machine hears of
//! its end when both have ended: never before the model's time, and later only by what the file or the wake-up took.

use bimetal_models::constant::{Constant, ConstantParams};
use bimetal_models::spec::{self, Spec, SpecError};
use bimetal_models::{Command, Done, Model};
use bimetal_units::Nanos;

/// Where the draws of models begin that draw.
const SEED: u64 = 1;
/// A file is spread over a hard disk in pieces of this size at most: short enough that 8 GiB reach all over it, long
/// enough that a stream, which must seek behind each, loses one part in fifty at most.
const LARGEST_PIECE: u64 = 64 << 20;
/// ... and of this size at least; also the unit in which pieces are placed, a multiple of every sector.
const SMALLEST_PIECE: u64 = 1 << 20;
/// A file smaller than this many of the largest pieces has that many smaller ones, so that it, too, has far corners.
const PIECES: u64 = 64;

/// How a device is timed.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    name: &'static str,
    source: Source,
    stretch: Stretch,
}

#[derive(Clone, Debug, PartialEq)]
enum Source {
    Spec(Box<Spec>),
    Constant(ConstantParams),
}

impl Timing {
    /// As the modelled device of that name, for a file of `size_bytes` bytes.
    ///
    /// # Errors
    /// There is no such model; or as in [`Timing::fitted`].
    pub fn named(name: &str, size_bytes: u64) -> Result<Timing, SpecError> {
        let spec = spec::named(name)?;
        let name = spec::names().find(|known| *known == name).unwrap_or("model");
        Timing::fitted(name, spec, size_bytes)
    }

    /// As a modelled device, for a file of `size_bytes` bytes.
    ///
    /// A hard disk keeps its size, and the file is spread over all of it: where the arm must go is what makes a disk
    /// slow. Other devices are taken as large as the file, since they age with the share of them that is written.
    ///
    /// # Errors
    /// The file is larger, and the device cannot be made as large.
    pub fn fitted(name: &'static str, spec: Spec, size_bytes: u64) -> Result<Timing, SpecError> {
        let is_large_enough = spec.size_bytes() >= size_bytes;
        if matches!(spec, Spec::HardDisk(_)) && is_large_enough {
            let stretch = Stretch::over(size_bytes, spec.size_bytes());
            return Timing::of(name, spec, stretch);
        }
        match Timing::of(name, spec.resized(size_bytes), Stretch::NONE) {
            // Too small a drive to be made of its parts: then the file is the beginning of a larger one.
            Err(_) if is_large_enough => Timing::of(name, spec, Stretch::NONE),
            fitted => fitted,
        }
    }

    fn of(name: &'static str, spec: Spec, stretch: Stretch) -> Result<Timing, SpecError> {
        // What can be built once can be built whenever the device is opened.
        spec.build(SEED)?;
        Ok(Timing { name, source: Source::Spec(Box::new(spec)), stretch })
    }

    /// With times that are known in advance, for tests and measurements.
    pub fn constant(params: ConstantParams) -> Timing {
        Timing { name: "constant", source: Source::Constant(params), stretch: Stretch::NONE }
    }

    /// The model's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A model at the beginning of its life.
    pub(crate) fn start(&self, now: Nanos) -> Modelled {
        let model: Box<dyn Model> = match &self.source {
            Source::Spec(spec) => spec.build(SEED).expect("parameters that a model was made of before"),
            Source::Constant(params) => Box::new(Constant::new(*params)),
        };
        Modelled { size_bytes: model.size_bytes(), model, stretch: self.stretch, epoch: now }
    }
}

/// Spreads the addresses of a file over a larger device: pieces that are whole, with gaps between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    piece: u64,
    /// From one piece to the next on the device; at least a piece.
    stride: u64,
}

impl Stretch {
    const NONE: Stretch = Stretch { piece: u64::MAX, stride: 0 };

    /// From the first to the last byte of the device, as far as the pieces' unit allows.
    fn over(file_bytes: u64, device_bytes: u64) -> Stretch {
        let piece =
            (file_bytes / PIECES / SMALLEST_PIECE * SMALLEST_PIECE).clamp(SMALLEST_PIECE, LARGEST_PIECE);
        let gaps = file_bytes.div_ceil(piece).saturating_sub(1);
        let stride = device_bytes.saturating_sub(piece).checked_div(gaps).unwrap_or(0);
        let stride = stride / SMALLEST_PIECE * SMALLEST_PIECE;
        if stride > piece { Stretch { piece, stride } } else { Stretch::NONE }
    }

    /// Where a byte of the file is on the device. What begins in a piece and goes on behind it, goes on there on the
    /// device, too.
    fn place(self, offset: u64) -> u64 {
        offset / self.piece * self.stride + offset % self.piece
    }
}

/// A running model. Its clock begins when the device is opened.
pub(crate) struct Modelled {
    model: Box<dyn Model>,
    size_bytes: u64,
    stretch: Stretch,
    epoch: Nanos,
}

impl Modelled {
    /// The model has been brought to `now`, and takes a command.
    pub(crate) fn submit(&mut self, now: Nanos, place: u32, command: Command) {
        // The file's range may be one that the model lacks: a long discard behind the last piece, an error to come.
        let len = command.len.min(self.size_bytes);
        let offset = self.stretch.place(command.offset).min(self.size_bytes - len);
        let command = Command { offset, len, ..command };
        self.model.submit(Nanos(now.since(self.epoch)), u64::from(place), command);
    }

    /// When to look again.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.model.deadline().map(|at| Nanos(self.epoch.0.saturating_add(at.0)))
    }

    /// Brings the model to `now` and appends what has ended by then, in the time of `now`.
    pub(crate) fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        let first = done.len();
        self.model.advance(Nanos(now.since(self.epoch)), done);
        for one in &mut done[first..] {
            one.at = Nanos(self.epoch.0.saturating_add(one.at.0));
        }
    }
}

/// How exactly a device kept its model's times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Operations that ended.
    pub operations: u64,
    /// What they were to take, nanoseconds, added up.
    pub modelled_ns: u64,
    /// What they took beyond that, added up: the file was slower than the model, or the wake-up late.
    pub late_ns: u64,
    /// The most that one was late.
    pub latest_ns: u64,
}

impl Lateness {
    pub(crate) fn count(&mut self, modelled_ns: u64, late_ns: u64) {
        self.operations += 1;
        self.modelled_ns += modelled_ns;
        self.late_ns += late_ns;
        self.latest_ns = self.latest_ns.max(late_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_file_reaches_all_over_a_disk_and_stays_in_order() {
        let disk = 1_000_204_886_016;
        for file in [8 << 30, (1 << 30) + 4096, 100 * MIB, 5 * MIB + 1, disk / 2, disk] {
            let stretch = Stretch::over(file, disk);
            let step = 1000 * 1000;
            let mut last = None;
            for offset in (0..file).step_by((file / 5000 + 1) as usize).chain([file - 1]) {
                let place = stretch.place(offset);
                assert!(place < disk && place >= offset, "{offset} of {file} is at {place}");
                assert!(last.is_none_or(|last| place > last), "{offset} of {file} is at {place}");
                last = Some(place);
            }
            let far = stretch.place(file - 1);
            assert!(far > disk / 100 * 99 || file < 64 * MIB, "the last byte of {file} is at {far}");
            // Within a piece nothing moves apart.
            assert_eq!(stretch.place(step) - stretch.place(0), step, "{file}");
        }
        assert_eq!(Stretch::over(8 << 30, disk).piece, LARGEST_PIECE);
        assert_eq!(Stretch::over(MIB, disk), Stretch::NONE);
        assert_eq!(Stretch::over(disk, disk), Stretch::NONE);
    }

    #[test]
    fn models_are_found_by_name_and_fitted_to_the_file() {
        for name in spec::names() {
            for size_bytes in [MIB, 64 * MIB, 8 << 30] {
                let timing = Timing::named(name, size_bytes).expect(name);
                assert_eq!(timing.name(), name);
                let running = timing.start(Nanos(5));
                assert!(running.size_bytes >= size_bytes, "{name}");
                assert!(running.stretch.place(size_bytes - 1) < running.size_bytes, "{name}");
            }
        }
        let larger =
            Timing::named("disk-1tb-2012", 2 << 40).expect("a disk of twice the size").start(Nanos(5));
        assert!(larger.size_bytes >= 2 << 40);
        let error = Timing::named("abacus", MIB).expect_err("no such model").to_string();
        assert!(error.contains("abacus") && error.contains("ssd-128gb-2012"), "{error}");
    }
}
