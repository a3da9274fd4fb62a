//! A device of the machine by the kernel's `ublk` driver: its requests come as completions of a ring.
//!
//! Commands, flags and structures are those of Linux's `include/uapi/linux/ublk_cmd.h`. Payload is copied between the
//! kernel's request and our buffers by `pread` and `pwrite` on the device's control file (`UBLK_F_USER_COPY`), so no
//! buffer is kept for a request that may come. All queues are served by the thread that has the ring.

use crate::ring::Ring;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

const CONTROL: &str = "/dev/ublk-control";
/// `struct ublksrv_ctrl_cmd`, `struct ublksrv_io_desc` and `struct ublksrv_ctrl_dev_info`, bytes.
const CONTROL_BYTES: usize = 32;
const DESCRIPTION_BYTES: usize = 24;
const INFO_BYTES: usize = 64;
/// `struct ublk_params` up to the end of `discard`.
const PARAMS_BYTES: usize = 60;
/// `UBLK_MAX_QUEUE_DEPTH`: descriptions of the next queue begin behind so many.
const MOST_DEEP: usize = 4096;
/// `UBLKSRV_IO_BUF_OFFSET`, `UBLK_TAG_OFF` and `UBLK_QID_OFF`: where in the file a request's payload is.
const PAYLOAD_AT: u64 = 0x8000_0000;
const TAG_SHIFT: u32 = 25;
const QUEUE_SHIFT: u32 = 41;
/// `UBLK_IO_RES_ABORT`: no request comes in this place any more.
const ABORT: i32 = -libc::ENODEV;
/// `UBLK_S_DEV_DEAD`.
const DEAD: u16 = 0;

/// `UBLK_F_*`, in a word of flags.
mod feature {
    pub(super) const USER_RECOVERY: u64 = 1 << 3;
    pub(super) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    pub(super) const CMD_IOCTL_ENCODE: u64 = 1 << 6;
    pub(super) const USER_COPY: u64 = 1 << 7;
    /// What a device here is made with.
    pub(super) const NEEDED: u64 = USER_RECOVERY | USER_RECOVERY_REISSUE | CMD_IOCTL_ENCODE | USER_COPY;
}

/// `_IOR('u', number, struct ublksrv_ctrl_cmd)`; `_IOWR` where it also `changes` something.
const fn control(number: u32, changes: bool) -> u32 {
    let direction = if changes { 3 } else { 2 };
    direction << 30 | (CONTROL_BYTES as u32) << 16 | (b'u' as u32) << 8 | number
}

/// `_IOWR('u', number, struct ublksrv_io_cmd)`.
const fn transfer(number: u32) -> u32 {
    3 << 30 | 16 << 16 | (b'u' as u32) << 8 | number
}

const GET_INFO: u32 = control(0x02, false);
const ADD: u32 = control(0x04, true);
const DELETE: u32 = control(0x05, true);
const START: u32 = control(0x06, true);
const STOP: u32 = control(0x07, true);
const SET_PARAMS: u32 = control(0x08, true);
const START_RECOVERY: u32 = control(0x10, true);
const END_RECOVERY: u32 = control(0x11, true);
const GET_FEATURES: u32 = control(0x13, false);
const FETCH: u32 = transfer(0x20);
const COMMIT_AND_FETCH: u32 = transfer(0x21);

/// What a device is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UblkShape {
    /// Size, bytes.
    pub size_bytes: u64,
    /// The unit that it is read and written in.
    pub sector_bytes: u32,
    /// The unit that it writes without reading first, and gives back.
    pub block_bytes: u32,
    /// The unit that it likes best.
    pub chunk_bytes: u32,
    /// The longest request.
    pub most_bytes: u32,
    /// Nobody may write.
    pub read_only: bool,
    /// Its queues, and how many requests each holds.
    pub queues: u16,
    /// See `queues`.
    pub depth: u16,
    /// By this it is known again.
    pub identity: u64,
}

/// What the kernel says of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UblkInfo {
    /// Its number.
    pub number: u32,
    /// Its queues, and how many requests each holds.
    pub queues: u16,
    /// See `queues`.
    pub depth: u16,
    /// It was stopped, or never started: nobody sees it.
    pub is_stopped: bool,
    /// What [`UblkShape::identity`] was.
    pub identity: u64,
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|piece| piece.try_into().ok()).unwrap_or([0; N])
}

/// `struct ublksrv_ctrl_dev_info` of a device that is to be made, under a number of the kernel's choice.
fn info_bytes(shape: &UblkShape) -> Vec<u8> {
    let mut bytes = vec![0; INFO_BYTES];
    put(&mut bytes, 0, shape.queues.to_ne_bytes());
    put(&mut bytes, 2, shape.depth.to_ne_bytes());
    put(&mut bytes, 8, shape.most_bytes.to_ne_bytes());
    put(&mut bytes, 12, u32::MAX.to_ne_bytes());
    put(&mut bytes, 24, feature::NEEDED.to_ne_bytes());
    put(&mut bytes, 32, shape.identity.to_ne_bytes());
    bytes
}

fn info(bytes: &[u8]) -> UblkInfo {
    UblkInfo {
        number: u32::from_ne_bytes(get(bytes, 12)),
        queues: u16::from_ne_bytes(get(bytes, 0)),
        depth: u16::from_ne_bytes(get(bytes, 2)),
        is_stopped: u16::from_ne_bytes(get(bytes, 4)) == DEAD,
        identity: u64::from_ne_bytes(get(bytes, 32)),
    }
}

/// `struct ublk_params` with `basic` and `discard`.
fn params_bytes(shape: &UblkShape) -> Vec<u8> {
    const READ_ONLY: u32 = 1 << 0;
    const VOLATILE_CACHE: u32 = 1 << 2;
    const FUA: u32 = 1 << 3;
    const BASIC_AND_DISCARD: u32 = 1 | 2;
    // The longest that a word of sectors names, in whole blocks.
    let most = u32::MAX / 512 / (shape.block_bytes / 512) * (shape.block_bytes / 512);
    let shift = |bytes: u32| [bytes.trailing_zeros() as u8];
    let attributes = VOLATILE_CACHE | FUA | if shape.read_only { READ_ONLY } else { 0 };
    let mut bytes = vec![0; PARAMS_BYTES];
    put(&mut bytes, 0, (PARAMS_BYTES as u32).to_ne_bytes());
    put(&mut bytes, 4, BASIC_AND_DISCARD.to_ne_bytes());
    put(&mut bytes, 8, attributes.to_ne_bytes());
    put(&mut bytes, 12, shift(shape.sector_bytes));
    put(&mut bytes, 13, shift(shape.block_bytes));
    put(&mut bytes, 14, shift(shape.chunk_bytes));
    put(&mut bytes, 15, shift(shape.block_bytes));
    put(&mut bytes, 16, (shape.most_bytes / 512).to_ne_bytes());
    put(&mut bytes, 24, (shape.size_bytes / 512).to_ne_bytes());
    put(&mut bytes, 44, shape.block_bytes.to_ne_bytes());
    put(&mut bytes, 48, most.to_ne_bytes());
    put(&mut bytes, 52, most.to_ne_bytes());
    put(&mut bytes, 56, 1u16.to_ne_bytes());
    bytes
}

/// The file by which devices are made and taken away. A command may take as long as requests of its device do, so it is
/// begun, and its end is seen when [`UblkControl::raw_fd`] is readable.
pub struct UblkControl {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: OwnedFd,
    /// What the command under way reads or writes.
    lent: Option<Vec<u8>>,
}

impl UblkControl {
    /// Opens it; `NotFound` where the driver is not there.
    pub fn open() -> io::Result<UblkControl> {
        let file = rustix::fs::open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(UblkControl { ring: IoUring::builder().build(4)?, file, lent: None })
    }

    /// Readable when a command that was begun has ended.
    pub fn raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    fn begin(&mut self, command: u32, device: u32, buffer: Vec<u8>, data: u64) -> io::Result<()> {
        assert!(self.lent.is_none(), "a command is under way");
        let buffer = self.lent.insert(buffer);
        let mut bytes = [0; 80];
        put(&mut bytes, 0, device.to_ne_bytes());
        put(&mut bytes, 4, u16::MAX.to_ne_bytes());
        put(&mut bytes, 6, (buffer.len() as u16).to_ne_bytes());
        if !buffer.is_empty() {
            put(&mut bytes, 8, (buffer.as_mut_ptr() as u64).to_ne_bytes());
        }
        put(&mut bytes, 16, data.to_ne_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), command).cmd(bytes).build();
        // SAFETY: the only address in it is that of the buffer, whose bytes stay where they are in `lent` until the
        // command has ended, and for good where this value goes before that (`drop`).
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::other("its queue is full"))?;
        self.ring.submit().map(drop)
    }

    /// What became of the command that was begun, if it has ended: the buffer it was lent.
    pub fn take(&mut self) -> Option<io::Result<Vec<u8>>> {
        let result = self.ring.completion().next()?.result();
        let buffer = self.lent.take().unwrap_or_default();
        Some(if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(buffer) })
    }

    fn run(&mut self, command: u32, device: u32, buffer: Vec<u8>, data: u64) -> io::Result<Vec<u8>> {
        self.begin(command, device, buffer, data)?;
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            if let Some(result) = self.take() {
                return result;
            }
        }
    }

    /// Whether this kernel's driver can do what a device here needs; else one sentence that says what it lacks.
    pub fn suits(&mut self) -> Result<(), String> {
        let features = match self.run(GET_FEATURES, 0, vec![0; 8], 0) {
            Ok(bytes) => u64::from_ne_bytes(get(&bytes, 0)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err("the right to use it is missing (CAP_SYS_ADMIN)".to_owned());
            }
            Err(_) => return Err("its driver does not say what it can do (Linux 6.5 does)".to_owned()),
        };
        let lacks = feature::NEEDED & !features;
        match lacks {
            0 => Ok(()),
            lacks if lacks & feature::USER_COPY != 0 => {
                Err("its driver cannot copy on demand (Linux 6.5 can)".to_owned())
            }
            _ => Err("its driver cannot hand a device to the next server".to_owned()),
        }
    }

    /// Makes a device that nobody sees yet.
    pub fn add(&mut self, shape: &UblkShape) -> io::Result<UblkInfo> {
        let made = info(&self.run(ADD, u32::MAX, info_bytes(shape), 0)?);
        self.run(SET_PARAMS, made.number, params_bytes(shape), 0).inspect_err(|_| {
            let _ = self.run(DELETE, made.number, Vec::new(), 0);
        })?;
        Ok(made)
    }

    /// What is to be known of a device; `NotFound` where there is none of that number.
    pub fn info(&mut self, number: u32) -> io::Result<UblkInfo> {
        let bytes = self.run(GET_INFO, number, vec![0; INFO_BYTES], 0).map_err(|error| {
            // The driver's word for a number that nobody has.
            if error.raw_os_error() == Some(libc::ENODEV) { io::ErrorKind::NotFound.into() } else { error }
        })?;
        Ok(info(&bytes))
    }

    /// A device that was made under this identity, and is still there.
    pub fn find(&mut self, identity: u64) -> Option<UblkInfo> {
        let entries = std::fs::read_dir("/sys/class/ublk-char").ok()?.flatten();
        let number = |name: &str| name.strip_prefix("ublkc")?.parse().ok();
        let numbers = entries.filter_map(|entry| number(entry.file_name().to_str()?));
        let infos: Vec<UblkInfo> = numbers.filter_map(|number| self.info(number).ok()).collect();
        infos.into_iter().find(|info| info.identity == identity && !info.is_stopped)
    }

    /// Begins to show a device whose queues are all served. Its partitions are read before that ends.
    pub fn begin_start(&mut self, number: u32) -> io::Result<()> {
        self.begin(START, number, Vec::new(), std::process::id().into())
    }

    /// Begins to take a device away: what waits for it fails, what is under way is to be answered.
    pub fn begin_stop(&mut self, number: u32) -> io::Result<()> {
        self.begin(STOP, number, Vec::new(), 0)
    }

    /// Begins to forget a device that was stopped, and whose queues are closed. It ends when the last who had it open
    /// has closed it.
    pub fn begin_delete(&mut self, number: u32) -> io::Result<()> {
        self.begin(DELETE, number, Vec::new(), 0)
    }

    /// Stops and forgets a device that nobody serves.
    pub fn remove(&mut self, number: u32) -> io::Result<()> {
        self.run(STOP, number, Vec::new(), 0)?;
        self.run(DELETE, number, Vec::new(), 0).map(drop)
    }

    /// Begins to take a device over from a server that is gone; `ResourceBusy` while it is not quite gone.
    pub fn start_recovery(&mut self, number: u32) -> io::Result<()> {
        self.run(START_RECOVERY, number, Vec::new(), 0).map(drop)
    }

    /// Lets a device's requests come, all of whose queues are served again.
    pub fn end_recovery(&mut self, number: u32) -> io::Result<()> {
        self.run(END_RECOVERY, number, Vec::new(), std::process::id().into()).map(drop)
    }
}

impl Drop for UblkControl {
    fn drop(&mut self) {
        // The kernel may still write there.
        if let Some(buffer) = self.lent.take() {
            std::mem::forget(buffer);
        }
    }
}

/// What a device is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UblkOp {
    /// Read into the request.
    Read,
    /// Write what is in the request.
    Write,
    /// Make durable what was answered.
    Flush,
    /// It is not needed any more.
    Discard,
    /// It reads zeros from now on.
    WriteZeroes,
    /// Something else.
    Unknown(u8),
}

/// One request (`struct ublksrv_io_desc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UblkRequest {
    /// What it asks for.
    pub op: UblkOp,
    /// Durable when answered.
    pub fua: bool,
    /// Where, bytes.
    pub offset: u64,
    /// How much, bytes.
    pub len: u64,
}

fn request(bytes: &[u8; DESCRIPTION_BYTES]) -> UblkRequest {
    const FUA: u32 = 1 << 13;
    let word = u32::from_ne_bytes(get(bytes, 0));
    let op = match word as u8 {
        0 => UblkOp::Read,
        1 => UblkOp::Write,
        2 => UblkOp::Flush,
        3 => UblkOp::Discard,
        5 => UblkOp::WriteZeroes,
        other => UblkOp::Unknown(other),
    };
    UblkRequest {
        op,
        fua: word & FUA != 0,
        offset: u64::from_ne_bytes(get(bytes, 8)).saturating_mul(512),
        len: u64::from(u32::from_ne_bytes(get(bytes, 4))) * 512,
    }
}

/// A place for a request: a queue, and a tag in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UblkPlace {
    /// The queue.
    pub queue: u16,
    /// The tag.
    pub tag: u16,
}

impl UblkPlace {
    /// `struct ublksrv_io_cmd`; its address is for other ways of copying.
    fn command(self, result: i32) -> [u8; 16] {
        let mut bytes = [0; 16];
        put(&mut bytes, 0, self.queue.to_ne_bytes());
        put(&mut bytes, 2, self.tag.to_ne_bytes());
        put(&mut bytes, 4, result.to_ne_bytes());
        bytes
    }

    /// Where its payload is in the device's file.
    fn payload_at(self) -> u64 {
        PAYLOAD_AT + (u64::from(self.queue) << QUEUE_SHIFT) + (u64::from(self.tag) << TAG_SHIFT)
    }
}

/// Descriptions of the requests of one queue, which the kernel writes.
struct Descriptions {
    base: *const u8,
    len: usize,
}

impl Drop for Descriptions {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made in `UblkQueues::open`, of which nothing is borrowed.
        let _ = unsafe { munmap(self.base.cast_mut().cast(), self.len) };
    }
}

/// The queues of a device.
pub struct UblkQueues {
    descriptions: Vec<Descriptions>,
    file: OwnedFd,
    depth: u16,
}

impl UblkQueues {
    /// Opens the queues of a device that nobody else serves.
    pub fn open(device: &UblkInfo) -> io::Result<UblkQueues> {
        let path = format!("/dev/ublkc{}", device.number);
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let page = rustix::param::page_size();
        let len = (usize::from(device.depth) * DESCRIPTION_BYTES).next_multiple_of(page);
        let apart = (MOST_DEEP * DESCRIPTION_BYTES).next_multiple_of(page) as u64;
        let map = |queue: u16| {
            // SAFETY: a new mapping at an address of the kernel's choice, which touches no memory that exists; it is
            // read only through `base`, and unmapped in `drop`.
            let base = unsafe {
                let at = u64::from(queue) * apart;
                mmap(
                    std::ptr::null_mut(),
                    len,
                    ProtFlags::READ,
                    MapFlags::SHARED | MapFlags::POPULATE,
                    &file,
                    at,
                )?
            };
            Ok(Descriptions { base: base.cast_const().cast(), len })
        };
        let descriptions = (0..device.queues).map(map).collect::<io::Result<_>>()?;
        Ok(UblkQueues { descriptions, file, depth: device.depth })
    }

    /// All places, in the order of their numbers.
    pub fn places(&self) -> impl Iterator<Item = UblkPlace> + use<> {
        let depth = self.depth;
        (0..self.descriptions.len() as u16)
            .flat_map(move |queue| (0..depth).map(move |tag| UblkPlace { queue, tag }))
    }

    /// The number of a place.
    pub fn number(&self, place: UblkPlace) -> usize {
        usize::from(place.queue) * usize::from(self.depth) + usize::from(place.tag)
    }

    /// The place with this number.
    pub fn place(&self, number: usize) -> UblkPlace {
        let depth = usize::from(self.depth);
        UblkPlace { queue: (number / depth) as u16, tag: (number % depth) as u16 }
    }

    /// Asks for the first request in this place; it is there when the operation ends with zero.
    pub fn fetch(&self, ring: &mut Ring, place: UblkPlace, tag: u64) {
        ring.ublk(self.file.as_raw_fd(), FETCH, place.command(0), tag);
    }

    /// Answers the request in this place, with bytes or a negated error number, and asks for the next.
    pub fn answer(&self, ring: &mut Ring, place: UblkPlace, result: i32, tag: u64) {
        ring.ublk(self.file.as_raw_fd(), COMMIT_AND_FETCH, place.command(result), tag);
    }

    /// The request in this place, whose fetch has ended.
    ///
    /// # Panics
    /// For a place that is none.
    pub fn request(&self, place: UblkPlace) -> UblkRequest {
        let descriptions = &self.descriptions[usize::from(place.queue)];
        assert!(place.tag < self.depth, "no such place");
        let at = usize::from(place.tag) * DESCRIPTION_BYTES;
        let mut bytes = [0; DESCRIPTION_BYTES];
        for (n, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: inside the mapping, which holds `depth` descriptions. The kernel writes one before its fetch ends
            // and not again before it is answered; volatile, as it is another's memory all the same.
            *byte = unsafe { descriptions.base.add(at + n).read_volatile() };
        }
        request(&bytes)
    }

    /// Copies what the request in this place is to write.
    pub fn copy_from(&self, place: UblkPlace, to: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < to.len() {
            match rustix::io::pread(&self.file, &mut to[done..], place.payload_at() + done as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => done += bytes,
            }
        }
        Ok(())
    }

    /// Copies what the request in this place has read.
    pub fn copy_to(&self, place: UblkPlace, from: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < from.len() {
            match rustix::io::pwrite(&self.file, &from[done..], place.payload_at() + done as u64)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                bytes => done += bytes,
            }
        }
        Ok(())
    }

    /// Whether a fetch that ended so says that the device is being taken away.
    pub fn is_abort(result: i32) -> bool {
        result == ABORT
    }
}

/// The name of the block device with this number.
pub fn name(number: u32) -> String {
    format!("ublkb{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> UblkShape {
        UblkShape {
            size_bytes: 1 << 40,
            sector_bytes: 512,
            block_bytes: 4096,
            chunk_bytes: 128 << 10,
            most_bytes: 1 << 20,
            read_only: false,
            queues: 2,
            depth: 128,
            identity: 0x1122_3344_5566_7788,
        }
    }

    /// As a C compiler has them for the kernel's header, on x86-64.
    #[test]
    fn commands_have_the_numbers_of_the_kernels_header() {
        assert_eq!(
            [GET_INFO, ADD, DELETE, START, STOP, SET_PARAMS],
            [0x8020_7502, 0xc020_7504, 0xc020_7505, 0xc020_7506, 0xc020_7507, 0xc020_7508]
        );
        assert_eq!([START_RECOVERY, END_RECOVERY, GET_FEATURES], [0xc020_7510, 0xc020_7511, 0x8020_7513]);
        assert_eq!([FETCH, COMMIT_AND_FETCH], [0xc010_7520, 0xc010_7521]);
        assert_eq!(feature::NEEDED, 0xd8);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_device_is_described_as_the_kernel_reads_it() {
        let bytes = info_bytes(&shape());
        assert_eq!(bytes[..8], [2, 0, 128, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[8..24], [0, 0, 16, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            bytes[24..40],
            [0xd8, 0, 0, 0, 0, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]
        );
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn what_the_kernel_tells_is_read_back() {
        let mut bytes = info_bytes(&shape());
        bytes[4] = 2;
        put(&mut bytes, 12, 7u32.to_le_bytes());
        let told =
            UblkInfo { number: 7, queues: 2, depth: 128, is_stopped: false, identity: shape().identity };
        assert_eq!(info(&bytes), told);
        assert_eq!(info(&[]).number, 0);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn its_shape_has_a_cache_and_discards_and_nothing_that_turns() {
        let bytes = params_bytes(&shape());
        let want = [
            60, 0, 0, 0, 3, 0, 0, 0, // length, types
            0x0c, 0, 0, 0, 9, 12, 17, 12, // volatile cache and FUA, sector, block, best and least I/O
            0, 8, 0, 0, 0, 0, 0, 0, // 1 MiB at most, no chunks of the kernel's
            0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // 2^31 sectors
            0, 0, 0, 0, 0, 16, 0, 0, // discards by 4 KiB
            0xf8, 0xff, 0x7f, 0, 0xf8, 0xff, 0x7f, 0, 1, 0, 0, 0,
        ];
        assert_eq!(bytes, want);
        assert_eq!(params_bytes(&UblkShape { read_only: true, ..shape() })[8], 0x0d);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn requests_are_read_from_the_kernels_memory() {
        let mut bytes = [0; DESCRIPTION_BYTES];
        bytes[..16].copy_from_slice(&[1, 0x20, 0, 0, 8, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(request(&bytes), UblkRequest { op: UblkOp::Write, fua: true, offset: 1024, len: 4096 });
        bytes[0] = 4;
        assert_eq!(request(&bytes).op, UblkOp::Unknown(4));
        bytes = [255; DESCRIPTION_BYTES];
        assert_eq!(request(&bytes).offset, u64::MAX);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn places_are_named_in_commands_and_in_the_file() {
        let place = UblkPlace { queue: 3, tag: 5 };
        assert_eq!(place.command(-5), [3, 0, 5, 0, 0xfb, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(place.payload_at(), 0x8000_0000 + (3 << 41) + (5 << 25));
    }

    #[test]
    fn a_machine_without_the_driver_says_so() {
        if std::path::Path::new(CONTROL).exists() {
            return;
        }
        assert_eq!(UblkControl::open().err().map(|error| error.kind()), Some(io::ErrorKind::NotFound));
    }
}
