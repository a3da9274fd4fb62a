//! The end of a conversation. A socket that is closed while it holds bytes that nobody read is reset, and a reset discards the
//! answer that is still on its way: who sent too much would not hear that he did. So what still comes is read, and
//! forgotten, for a while.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;

/// So long, ...
const FAREWELL_WITHIN: Duration = Duration::from_secs(2);
/// ... and so much.
const FAREWELL_BYTES: usize = 1 << 20;

/// Says that no more is said, and reads what still comes.
pub(super) async fn farewell(mut stream: TcpStream) {
    if poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await.is_ok() {
        let _ = tokio::time::timeout(FAREWELL_WITHIN, forget(&stream)).await;
    }
}

async fn forget(stream: &TcpStream) {
    let (mut buf, mut left) = ([0; 4096], FAREWELL_BYTES);
    while left > 0 && stream.readable().await.is_ok() {
        match stream.try_read(&mut buf) {
            Ok(0) => return,
            Ok(read) => left = left.saturating_sub(read),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
