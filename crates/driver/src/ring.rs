//! The ring: submissions whose memory it keeps alive, completions matched to the tags they were given.
//!
//! Every address that a submission names lies in a [`Region`] that the ring holds a reference to, or in a
//! slot that the ring owns. So the methods here are safe to call: a caller can make the kernel write into
//! the wrong buffer, as it can itself, but never into memory that is gone.

use crate::blockdev::URING_DISCARD;
use crate::memory::Region;
use bimetal_engine::arena::Buf;
use io_uring::{IoUring, opcode, squeue, types};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Submission entries: a whole batch of replies and device I/O in one call.
const SQ_ENTRIES: u32 = 1024;
/// Completion entries: more than can be in flight, so that the kernel never has to keep any back.
const CQ_ENTRIES: u32 = 8192;
/// Operations in flight at most.
pub const MAX_IN_FLIGHT: usize = 6144;
/// Parts of one vectored send or write at most: half of the kernel's limit.
pub const MAX_PARTS: usize = 512;
/// How long a batch of completions is waited for: far less than the devices take that make batches, and
/// several times what a wake-up costs.
const GATHER_MICROS: u32 = 30;
/// `IORING_ENTER_GETEVENTS`: run deferred work and collect completions.
const GETEVENTS: u32 = 1;

/// A byte range of one of the ring's regions.
#[derive(Clone, Copy, Debug)]
pub struct Mem {
    /// The region's place, as [`Ring::add_region`] returned it; the arena is [`ARENA`].
    pub region: usize,
    /// The range in it.
    pub buf: Buf,
}

/// The region of the arena, which is registered.
pub const ARENA: usize = 0;

/// An operation has ended.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// As given with the submission.
    pub tag: u64,
    /// Bytes, a new file descriptor, or a negated error number.
    pub result: i32,
}

/// Scatter lists and message headers: they must stay where they are until the operation ends.
struct Slot {
    iovecs: Vec<libc::iovec>,
    message: libc::msghdr,
}

struct Op {
    tag: u64,
    /// Its result is a new descriptor.
    accept: bool,
    slot: Option<Box<Slot>>,
}

/// One io_uring and the memory that its submissions name.
pub struct Ring {
    uring: IoUring,
    regions: Vec<Rc<Region>>,
    /// Whether the arena is registered, so that fixed operations work.
    fixed: bool,
    /// Whether the kernel can wait for several completions for a limited time.
    can_gather: bool,
    ops: Vec<Option<Op>>,
    free_ops: Vec<u32>,
    /// Boxed, because the kernel knows a message header by its address.
    #[allow(clippy::vec_box)]
    free_slots: Vec<Box<Slot>>,
    /// Completions of what was done at once.
    ready: Vec<Completion>,
    /// Connections not yet asked for.
    accepted: Vec<OwnedFd>,
    /// Whether looking pays when clients are waited for, and when devices are: they differ.
    spin: [SpinGovernor; 2],
}

impl Ring {
    /// Sets up the ring with the best flags that this kernel has, and registers the arena where the limits allow.
    pub fn new(arena: &Rc<Region>) -> io::Result<Ring> {
        Ring::with_room(arena, MAX_IN_FLIGHT)
    }

    /// A ring that takes no more memory than so many operations in flight need: for who has many rings.
    pub fn with_room(arena: &Rc<Region>, most: usize) -> io::Result<Ring> {
        let most = most.clamp(1, MAX_IN_FLIGHT);
        let entries = (most + 1).next_power_of_two() as u32;
        let uring = build(entries.min(SQ_ENTRIES), entries.min(CQ_ENTRIES))?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring is too old (5.11 is needed)",
            ));
        }
        let iovec =
            libc::iovec { iov_base: arena.address(Buf { start: 0, len: 0 }).cast(), iov_len: arena.len() };
        // SAFETY: the range is the arena's mapping, which `regions` keeps alive as long as the ring.
        // A failure (a low limit of locked memory) costs speed only.
        let fixed = unsafe { uring.submitter().register_buffers(&[iovec]) }.is_ok();
        Ok(Ring {
            can_gather: uring.params().is_feature_min_timeout(),
            uring,
            regions: vec![arena.clone()],
            fixed,
            ops: Vec::with_capacity(most),
            free_ops: Vec::with_capacity(most),
            free_slots: Vec::new(),
            ready: Vec::new(),
            accepted: Vec::new(),
            spin: Default::default(),
        })
    }

    /// Lets submissions name another region, too.
    pub fn add_region(&mut self, region: Rc<Region>) -> usize {
        self.regions.push(region);
        self.regions.len() - 1
    }

    /// The arena.
    pub(crate) fn arena(&self) -> &Rc<Region> {
        &self.regions[ARENA]
    }

    /// Whether the arena is registered with the kernel.
    pub fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// Operations in flight, those not yet submitted included.
    pub fn in_flight(&self) -> usize {
        self.ops.len() - self.free_ops.len()
    }

    /// Reads `buf.len` bytes of the arena from a file.
    pub fn read(&mut self, fd: RawFd, offset: u64, buf: Buf, tag: u64) {
        let address = self.regions[ARENA].address(buf);
        let fd = types::Fd(fd);
        let entry = if self.fixed {
            opcode::ReadFixed::new(fd, address, buf.len, 0).offset(offset).build()
        } else {
            opcode::Read::new(fd, address, buf.len).offset(offset).build()
        };
        self.push(entry, tag, None);
    }

    /// Reads `mem.buf.len` bytes of any region from a file.
    pub fn read_mem(&mut self, fd: RawFd, offset: u64, mem: Mem, tag: u64) {
        let address = self.regions[mem.region].address(mem.buf);
        self.push(opcode::Read::new(types::Fd(fd), address, mem.buf.len).offset(offset).build(), tag, None);
    }

    /// Writes buffers of the arena, one after the other, to a file; durable when complete if `dsync`.
    pub fn write(&mut self, fd: RawFd, offset: u64, bufs: &[Buf], dsync: bool, tag: u64) {
        let flags = if dsync { libc::RWF_DSYNC } else { 0 };
        let fd = types::Fd(fd);
        if let &[buf] = bufs {
            let address = self.regions[ARENA].address(buf).cast_const();
            let entry = if self.fixed {
                opcode::WriteFixed::new(fd, address, buf.len, 0).offset(offset).rw_flags(flags).build()
            } else {
                opcode::Write::new(fd, address, buf.len).offset(offset).rw_flags(flags).build()
            };
            return self.push(entry, tag, None);
        }
        let parts = bufs.iter().map(|&buf| Mem { region: ARENA, buf });
        let slot = self.slot(parts);
        let (list, count) = (slot.iovecs.as_ptr(), slot.iovecs.len() as u32);
        let entry = opcode::Writev::new(fd, list, count).offset(offset).rw_flags(flags).build();
        self.push(entry, tag, Some(slot));
    }

    /// As [`Ring::read`], done before this returns; the completion still comes with the others.
    ///
    /// For files in memory: io_uring hands their I/O to a worker thread, which costs more than the copy.
    pub fn read_now(&mut self, fd: RawFd, offset: u64, buf: Buf, tag: u64) {
        let address = self.regions[ARENA].address(buf);
        // SAFETY: `address` checks that the range is inside the arena, which `regions` keeps mapped.
        let done = unsafe { libc::pread(fd, address.cast(), buf.len as usize, offset as i64) };
        self.done_now(done as i64, tag);
    }

    /// As [`Ring::write`], done before this returns.
    pub fn write_now(&mut self, fd: RawFd, offset: u64, bufs: &[Buf], dsync: bool, tag: u64) {
        let flags = if dsync { libc::RWF_DSYNC } else { 0 };
        let slot = self.slot(bufs.iter().map(|&buf| Mem { region: ARENA, buf }));
        let (list, count) = (slot.iovecs.as_ptr(), slot.iovecs.len() as i32);
        // SAFETY: the list is in `slot`, which lives until the call is over, and names ranges of the arena.
        let done = unsafe { libc::pwritev2(fd, list, count, offset as i64, flags) };
        self.done_now(done as i64, tag);
        self.free_slots.push(slot);
    }

    /// As [`Ring::flush`], done before this returns.
    pub fn flush_now(&mut self, fd: RawFd, tag: u64) {
        // SAFETY: no memory is involved.
        let done = unsafe { libc::fdatasync(fd) };
        self.done_now(i64::from(done), tag);
    }

    /// Keeps the result of a system call until completions are asked for. At once after the call.
    fn done_now(&mut self, done: i64, tag: u64) {
        let result = match done {
            done if done < 0 => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
            done => i32::try_from(done).unwrap_or(i32::MAX),
        };
        self.ready.push(Completion { tag, result });
    }

    /// Something that is not the kernel's has ended: it is heard with the other completions.
    pub(crate) fn done(&mut self, tag: u64, result: i32) {
        self.ready.push(Completion { tag, result });
    }

    /// Whether completions can be had without asking the kernel.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Makes completed writes to a file durable.
    pub fn flush(&mut self, fd: RawFd, tag: u64) {
        self.push(opcode::Fsync::new(types::Fd(fd)).flags(types::FsyncFlags::DATASYNC).build(), tag, None);
    }

    /// The same, and what the file system knows of the file (`fsync`).
    pub fn sync(&mut self, fd: RawFd, tag: u64) {
        self.push(opcode::Fsync::new(types::Fd(fd)).build(), tag, None);
    }

    /// Gives a range of a file back to its file system or device.
    pub fn punch(&mut self, fd: RawFd, offset: u64, len: u64, tag: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        self.push(opcode::Fallocate::new(types::Fd(fd), len).offset(offset).mode(mode).build(), tag, None);
    }

    /// Tells a block device that a range of it is no longer needed; what it reads from there afterwards is
    /// its own affair. Linux 6.12; older kernels and devices without it complete with `EOPNOTSUPP`.
    pub fn discard(&mut self, fd: RawFd, offset: u64, len: u64, tag: u64) {
        // The command takes its start in `addr` and its length in `addr3`, where the command's bytes begin
        // (`blkdev_uring_cmd` in the kernel's `block/ioctl.c`). No memory is named.
        let mut command = [0; 16];
        command[..8].copy_from_slice(&len.to_ne_bytes());
        let entry = opcode::UringCmd16::new(types::Fd(fd), URING_DISCARD).addr(Some(offset)).cmd(command);
        self.push(entry.build(), tag, None);
    }

    /// A command to a ublk device's file, in which no memory is named.
    pub(crate) fn ublk(&mut self, fd: RawFd, command: u32, bytes: [u8; 16], tag: u64) {
        self.push(opcode::UringCmd16::new(types::Fd(fd), command).cmd(bytes).build(), tag, None);
    }

    /// Hands over what is queued, without waiting for anything.
    pub fn submit(&mut self) -> io::Result<()> {
        self.enter(0, None)
    }

    /// Completes by itself, at once.
    pub fn nop(&mut self, tag: u64) {
        self.push(opcode::Nop::new().build(), tag, None);
    }

    /// Accepts one connection.
    pub fn accept(&mut self, fd: RawFd, tag: u64) {
        let entry = opcode::Accept::new(types::Fd(fd), std::ptr::null_mut(), std::ptr::null_mut())
            .flags(libc::SOCK_CLOEXEC)
            .build();
        self.push(entry, tag, None);
    }

    /// The connection that a completed accept brought; `None` when it failed.
    pub fn take_accepted(&mut self, result: i32) -> Option<OwnedFd> {
        let place = self.accepted.iter().position(|fd| fd.as_raw_fd() == result)?;
        Some(self.accepted.swap_remove(place))
    }

    /// Waits until a descriptor is readable.
    pub fn poll_in(&mut self, fd: RawFd, tag: u64) {
        self.push(opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build(), tag, None);
    }

    /// Receives what there is, at most `mem.buf.len` bytes. `later`: nothing is expected at this moment,
    /// so wait for data before trying.
    pub fn recv(&mut self, fd: RawFd, mem: Mem, later: bool, tag: u64) {
        /// `IORING_RECVSEND_POLL_FIRST`.
        const POLL_FIRST: u16 = 1;
        let address = self.regions[mem.region].address(mem.buf);
        let entry = opcode::Recv::new(types::Fd(fd), address, mem.buf.len)
            .ioprio(if later { POLL_FIRST } else { 0 })
            .build();
        self.push(entry, tag, None);
    }

    /// Sends all parts; the kernel goes on after short sends by itself. At most [`MAX_PARTS`].
    pub fn send(&mut self, fd: RawFd, parts: &[Mem], tag: u64) {
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        if let &[mem] = parts {
            let address = self.regions[mem.region].address(mem.buf).cast_const();
            let entry = opcode::Send::new(types::Fd(fd), address, mem.buf.len).flags(flags).build();
            return self.push(entry, tag, None);
        }
        assert!(parts.len() <= MAX_PARTS, "too many parts in one send");
        let slot = self.slot(parts.iter().copied());
        let entry = opcode::SendMsg::new(types::Fd(fd), &raw const slot.message).flags(flags as u32).build();
        self.push(entry, tag, Some(slot));
    }

    /// Cancels the operation with this tag, if it is in flight; its completion still comes.
    pub fn cancel(&mut self, target: u64, tag: u64) {
        let place = self.ops.iter().position(|op| op.as_ref().is_some_and(|op| op.tag == target));
        if let Some(place) = place {
            self.push(opcode::AsyncCancel::new(place as u64).build(), tag, None);
        }
    }

    /// A slot with the scatter list and a message header that names it.
    fn slot(&mut self, parts: impl Iterator<Item = Mem>) -> Box<Slot> {
        let mut slot = self.free_slots.pop().unwrap_or_else(|| {
            // SAFETY: `msghdr` is a plain C structure for which all zeros is a valid value.
            let message = unsafe { std::mem::zeroed() };
            Box::new(Slot { iovecs: Vec::with_capacity(64), message })
        });
        slot.iovecs.clear();
        for part in parts {
            let iov_base = self.regions[part.region].address(part.buf).cast();
            slot.iovecs.push(libc::iovec { iov_base, iov_len: part.buf.len as usize });
        }
        slot.message.msg_iov = slot.iovecs.as_mut_ptr();
        slot.message.msg_iovlen = slot.iovecs.len() as _;
        slot
    }

    fn push(&mut self, entry: squeue::Entry, tag: u64, slot: Option<Box<Slot>>) {
        let accept = entry.get_opcode() == u32::from(opcode::Accept::CODE);
        let op = Some(Op { tag, accept, slot });
        let place = match self.free_ops.pop() {
            Some(place) => {
                self.ops[place as usize] = op;
                place
            }
            None => {
                assert!(
                    self.ops.len() < MAX_IN_FLIGHT,
                    "more operations in flight than the ring was made for"
                );
                self.ops.push(op);
                self.ops.len() as u32 - 1
            }
        };
        let entry = entry.user_data(u64::from(place));
        loop {
            // SAFETY: every address in the entry lies in a region that `self.regions` keeps alive or in the
            // boxed slot that `self.ops` keeps until the completion; `drop` leaks both when operations are
            // still in flight.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            // The queue is full: hand over what is in it. An error here comes back at the next wait.
            if self.enter(0, None).is_err() {
                std::thread::yield_now();
            }
        }
    }

    /// One `io_uring_enter`: submits everything, runs deferred work, waits for `want` completions.
    fn enter(&self, want: u32, timeout: Option<Duration>) -> io::Result<()> {
        let submitter = self.uring.submitter();
        let result = match timeout {
            Some(timeout) if want > 0 => {
                let time = types::Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
                submitter.submit_with_args(want as usize, &types::SubmitArgs::new().timespec(&time))
            }
            _ => {
                // SAFETY: no queue is shared with another thread.
                let queued = unsafe { self.uring.submission_shared() }.len() as u32;
                // SAFETY: no argument is passed; the queued entries are valid by the argument in `push`.
                unsafe { submitter.enter::<libc::sigset_t>(queued, want, GETEVENTS, None) }
            }
        };
        harmless(result)
    }

    /// Waits for `batch` completions, or after [`GATHER_MICROS`] for one.
    fn gather(&self, timeout: Option<Duration>, batch: u32) -> io::Result<()> {
        let timeout = timeout.unwrap_or(Duration::from_secs(3600));
        let time = types::Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
        let args = types::SubmitArgs::new().timespec(&time).min_wait_usec(GATHER_MICROS);
        harmless(self.uring.submitter().submit_with_args(batch as usize, &args))
    }

    fn has_completions(&mut self) -> bool {
        !self.uring.completion().is_empty()
    }

    /// Submits what is queued and waits for at least one completion, at most until `timeout`;
    /// `None` waits as long as it takes, zero does not wait.
    ///
    /// With `batch` above 1 it is worth a moment to get that many at once: each wake-up costs more than a
    /// completion. `devices` says whether devices are to answer, or only clients.
    pub fn submit_and_wait(
        &mut self,
        timeout: Option<Duration>,
        batch: u32,
        devices: bool,
    ) -> io::Result<()> {
        let devices = usize::from(devices);
        if timeout == Some(Duration::ZERO) || self.has_ready() {
            return self.enter(0, None);
        }
        if batch > 1 && self.can_gather {
            return self.gather(timeout, batch);
        }
        let Some(budget) = self.spin[devices].budget() else {
            let start = Instant::now();
            let result = self.enter(1, timeout);
            self.spin[devices].slept(start.elapsed());
            return result;
        };
        let start = Instant::now();
        if self.look(timeout.map_or(budget, |timeout| timeout.min(budget)))? {
            self.spin[devices].succeeded();
            return Ok(());
        }
        self.spin[devices].failed();
        match timeout.map(|timeout| timeout.saturating_sub(start.elapsed())) {
            Some(Duration::ZERO) => self.enter(0, None),
            rest => self.enter(1, rest),
        }
    }

    /// As [`Ring::submit_and_wait`] for one completion, without looking for it before sleeping: for who measures a device
    /// and is not to take the processor from those that serve it.
    pub fn submit_and_sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) || self.has_ready() {
            return self.enter(0, None);
        }
        self.enter(1, timeout)
    }

    /// Submits what is queued and looks for a completion without sleeping; whether one came.
    pub fn look(&mut self, limit: Duration) -> io::Result<bool> {
        if !self.uring.submission().is_empty() {
            self.enter(0, None)?;
        }
        let start = Instant::now();
        loop {
            if self.has_completions() {
                return Ok(true);
            }
            // The kernel may go on saying so although nothing has come of it yet: it counts as looking, and ends as that does.
            if self.uring.submission().taskrun() {
                self.enter(0, None)?;
                if self.has_completions() {
                    return Ok(true);
                }
            }
            if start.elapsed() >= limit {
                return Ok(false);
            }
            for _ in 0..8 {
                std::hint::spin_loop();
            }
        }
    }

    /// Takes the completions that are there.
    pub fn completions(&mut self, out: &mut Vec<Completion>) {
        out.append(&mut self.ready);
        let Ring { uring, ops, free_ops, free_slots, accepted, .. } = self;
        for entry in uring.completion() {
            let place = entry.user_data();
            let op = ops.get_mut(place as usize).and_then(Option::take);
            let Some(op) = op else { continue };
            free_ops.push(place as u32);
            free_slots.extend(op.slot);
            if op.accept && entry.result() >= 0 {
                // SAFETY: what a successful accept returns is a new descriptor that nobody else owns.
                accepted.push(unsafe { OwnedFd::from_raw_fd(entry.result()) });
            }
            out.push(Completion { tag: op.tag, result: entry.result() });
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.in_flight() == 0 {
            return;
        }
        // The kernel may still write to the memory of operations in flight: leave it mapped.
        for region in self.regions.drain(..) {
            std::mem::forget(region);
        }
        std::mem::forget(std::mem::take(&mut self.ops));
    }
}

/// The result of an enter, less what is no failure: the timeout came, a signal came, or completions must be
/// collected first.
fn harmless(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(error),
        },
    }
}

/// Sets up a ring with as many of the wanted flags as the kernel has.
fn build(entries: u32, completions: u32) -> io::Result<IoUring> {
    let best = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_cqsize(completions)
        .build(entries);
    best.or_else(|_| {
        IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().setup_cqsize(completions).build(entries)
    })
    .or_else(|_| IoUring::builder().setup_cqsize(completions).build(entries))
}

/// Decides whether looking for a completion for a moment before sleeping is worth it.
///
/// A sleep and a wake-up cost several microseconds on both sides of a socket, so a busy server that looks
/// a little longer answers sooner. One that waits for a disk, or for nobody, only burns the processor the
/// client needs: each look in vain makes the next one rarer.
#[derive(Debug, Default)]
struct SpinGovernor {
    skip: u32,
    misses: u32,
}

impl SpinGovernor {
    const LOOK: Duration = Duration::from_micros(40);
    const MAX_MISSES: u32 = 10;

    fn budget(&mut self) -> Option<Duration> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        Some(Self::LOOK)
    }

    fn succeeded(&mut self) {
        self.misses = self.misses.saturating_sub(2);
    }

    /// A sleep ended that was not preceded by a look. One so short would have been spared by looking.
    fn slept(&mut self, time: Duration) {
        if time < Self::LOOK {
            self.misses = self.misses.saturating_sub(2);
            self.skip = 0;
        }
    }

    fn failed(&mut self) {
        self.misses = (self.misses + 1).min(Self::MAX_MISSES);
        // A few misses in a row are the gaps of a living load; after that, back off by doubling.
        self.skip = if self.misses <= 3 { 0 } else { 1 << (self.misses - 3) };
    }
}
