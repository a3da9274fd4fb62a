//! Straight-line work that wants I/O: creating, opening, checking a volume.
//!
//! These run before or beside the engine, alone, and read best as plain sequences. So they are
//! `async` functions run by the smallest of executors: one future, polled when completions came. They
//! hand out the same actions as the engine and know no clock and no threads.

use crate::api::action::{Action, BufList, Class, DeviceError, Machine, Token};
use crate::api::coverage::Stage;
use crate::base::arena::{Arena, Buf, Pool};
use crate::base::hash::IndexMap;
use bimetal_units::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// ENOMEM: a buffer pool without room for one block.
const NO_MEMORY: i32 = 12;

struct Shared<A> {
    arena: Option<A>,
    out: VecDeque<Action>,
    next: u64,
    done: IndexMap<u64, Result<(), DeviceError>>,
    stage: Option<Stage>,
    now: Nanos,
}

/// A task's way to the devices and to its buffers.
pub struct TaskIo<A>(Rc<RefCell<Shared<A>>>);

impl<A> Clone for TaskIo<A> {
    fn clone(&self) -> Self {
        TaskIo(self.0.clone())
    }
}

struct Completion<A> {
    io: TaskIo<A>,
    token: u64,
}

impl<A> Future for Completion<A> {
    type Output = Result<(), DeviceError>;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.io.0.borrow_mut().done.remove(&self.token) {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

impl<A: Arena> TaskIo<A> {
    fn submit(&self, make: impl FnOnce(Token) -> Action) -> Completion<A> {
        let mut shared = self.0.borrow_mut();
        shared.next += 1;
        let token = shared.next;
        shared.out.push_back(make(Token(token)));
        Completion { io: self.clone(), token }
    }

    /// Reads into a buffer.
    pub fn read(
        &self,
        device: Tier,
        offset: u64,
        buf: Buf,
    ) -> impl Future<Output = Result<(), DeviceError>> + use<A> {
        self.submit(|token| Action::Read { device, offset, buf, token, class: Class::Foreground })
    }

    /// Writes a buffer.
    pub fn write(
        &self,
        device: Tier,
        offset: u64,
        buf: Buf,
    ) -> impl Future<Output = Result<(), DeviceError>> + use<A> {
        let bufs = BufList::from_elem(buf, 1);
        self.submit(|token| Action::Write {
            device,
            offset,
            bufs,
            fua: false,
            token,
            class: Class::Foreground,
        })
    }

    /// Writes a block of metadata: zeros, and what `fill` puts into them.
    pub async fn write_block(
        &self,
        device: Tier,
        offset: u64,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), DeviceError> {
        let buf = self.alloc(Pool::Meta, BLOCK_BYTES).ok_or(DeviceError { errno: NO_MEMORY })?;
        self.with(|a| {
            let bytes = a.bytes_mut(buf);
            bytes.fill(0);
            fill(bytes);
        });
        let result = self.write(device, offset, buf).await;
        self.free(buf);
        result
    }

    /// Flushes a device.
    pub fn flush(&self, device: Tier) -> impl Future<Output = Result<(), DeviceError>> + use<A> {
        self.submit(|token| Action::Flush { device, token })
    }

    /// Says where the task stands, for coverage.
    pub fn stage(&self, stage: Stage) {
        self.0.borrow_mut().stage = Some(stage);
    }

    /// The driver's clock.
    pub fn now(&self) -> Nanos {
        self.0.borrow().now
    }

    /// Works on the arena.
    pub fn with<R>(&self, f: impl FnOnce(&mut A) -> R) -> R {
        f(self.0.borrow_mut().arena.as_mut().expect("the arena is here until the task ends"))
    }

    /// A buffer.
    pub fn alloc(&self, pool: Pool, len: u32) -> Option<Buf> {
        self.with(|a| a.alloc(pool, len))
    }

    /// Gives a buffer back.
    pub fn free(&self, buf: Buf) {
        self.with(|a| a.free(buf));
    }

    /// Takes the arena, at the end.
    pub fn take_arena(&self) -> A {
        self.0.borrow_mut().arena.take().expect("the arena is taken once")
    }
}

/// Work around the engine (create, open, check) that wants I/O and ends with a `T`.
pub struct Task<A, T> {
    shared: Rc<RefCell<Shared<A>>>,
    future: Option<Pin<Box<dyn Future<Output = T>>>>,
    result: Option<T>,
    ready: bool,
}

impl<A: Arena + 'static, T> Task<A, T> {
    pub(crate) fn new<F: Future<Output = T> + 'static>(
        arena: A,
        work: impl FnOnce(TaskIo<A>) -> F,
    ) -> Task<A, T> {
        let shared = Rc::new(RefCell::new(Shared {
            arena: Some(arena),
            out: VecDeque::new(),
            next: 0,
            done: IndexMap::default(),
            stage: None,
            now: Nanos(0),
        }));
        let future = Some(Box::pin(work(TaskIo(shared.clone()))) as Pin<Box<dyn Future<Output = T>>>);
        Task { shared, future, result: None, ready: true }
    }
}

impl<A: Arena, T> Task<A, T> {
    /// The result, once: `Some` when the task has ended. Call after each [`Machine::next_action`] that gave `None`.
    pub fn take_result(&mut self) -> Option<T> {
        self.result.take()
    }

    /// The stage it is in.
    pub fn stage(&self) -> Option<Stage> {
        self.shared.borrow().stage
    }
}

impl<A: Arena, T> Machine for Task<A, T> {
    type Arena = A;

    fn next_action(&mut self, now: Nanos) -> Option<Action> {
        let waiting = {
            let mut shared = self.shared.borrow_mut();
            shared.now = shared.now.max(now);
            shared.out.is_empty()
        };
        if waiting
            && std::mem::take(&mut self.ready)
            && let Some(future) = &mut self.future
            && let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            self.result = Some(result);
            self.future = None;
        }
        self.shared.borrow_mut().out.pop_front()
    }

    fn on_completion(&mut self, now: Nanos, token: Token, result: Result<(), DeviceError>) {
        let mut shared = self.shared.borrow_mut();
        shared.now = shared.now.max(now);
        shared.done.insert(token.0, result);
        self.ready = true;
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }

    fn on_timer(&mut self, _now: Nanos) {}

    fn has_arena(&self) -> bool {
        self.shared.borrow().arena.is_some()
    }

    fn with_arena<R>(&mut self, f: impl FnOnce(&mut A) -> R) -> R {
        f(self.shared.borrow_mut().arena.as_mut().expect("payload is asked for while the task runs"))
    }
}
