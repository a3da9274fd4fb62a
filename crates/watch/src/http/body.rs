//! The body of an answer: whole, or as it comes.

use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// A body.
#[derive(Debug)]
pub(super) enum Answered {
    /// All of it; none when it was taken.
    Whole(Option<Bytes>),
    /// Parts, until the sender is gone.
    Parts(mpsc::Receiver<Bytes>),
}

impl Body for Answered {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Answered::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Answered::Parts(parts) => {
                parts.poll_recv(context).map(|part| part.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Answered::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answered::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Answered::Parts(_) => SizeHint::default(),
        }
    }
}
