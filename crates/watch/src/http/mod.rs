//! What is seen of volumes by HTTP: a page, metrics, documents, and a stream of what happens. It runs on a thread of its
//! own and asks the control sockets as anybody would, so that no request of a client waits for it. All that comes from
//! outside is bounded: heads, bodies (there are none), connections, time.

mod answer;
mod body;
mod farewell;
mod guard;
mod source;
mod stream;

pub use guard::{Guard, TokenError};
pub use source::Shown;

use answer::Site;
use bimetal_driver::signals::block_stop_signals;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

/// Connections at a time; who comes beyond that is told so.
const MAX_CONNECTIONS: usize = 32;
/// Connections that are told so, and heard until they have read it, at a time; others beyond them are closed.
const MAX_TURNED_AWAY: usize = 32;
/// A head that is larger is refused.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Fields of a head.
const MAX_HEAD_FIELDS: usize = 64;
/// A head that has not come by then ends its connection, also between two requests.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// A connection ends after so long; who follows connects again.
const CONNECTION_WITHIN: Duration = Duration::from_secs(600);
/// Pause after an accept that failed: no descriptor is left, perhaps.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Threads that ask control sockets and read files.
const MAX_ASKING: usize = 4;

/// The thread that answers; it ends with this.
#[derive(Debug)]
pub struct Http {
    /// Where it is.
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Http {
    /// Takes the address, so that it is known before anything is served whether that can be had.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Begins to answer.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(listener: TcpListener, volumes: Vec<Shown>, guard: Guard) -> io::Result<Http> {
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let site = Arc::new(Site::new(volumes, guard));
        let thread = std::thread::Builder::new().name("http".to_owned());
        let thread = thread.spawn(move || {
            if let Err(error) = run(listener, &site, stopped) {
                tracing::warn!("nothing is served by HTTP any more: {error}");
            }
        })?;
        Ok(Http { address, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(listener: TcpListener, site: &Arc<Site>, stopped: oneshot::Receiver<()>) -> io::Result<()> {
    // Signals are for whoever serves.
    block_stop_signals()?;
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_io().enable_time().max_blocking_threads(MAX_ASKING).build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::spawn(accept(listener, site.clone()));
        // It ends when the other side goes.
        let _ = stopped.await;
        Ok::<_, io::Error>(())
    })?;
    runtime.shutdown_background();
    Ok(())
}

async fn accept(listener: tokio::net::TcpListener, site: Arc<Site>) {
    let [places, leaves] = [MAX_CONNECTIONS, MAX_TURNED_AWAY].map(|most| Arc::new(Semaphore::new(most)));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            // A fresh socket has room for a line.
            let _ = stream.try_write(
                b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
            if let Ok(leave) = leaves.clone().try_acquire_owned() {
                tokio::spawn(async move {
                    farewell::farewell(stream).await;
                    drop(leave);
                });
            }
            continue;
        };
        let site = site.clone();
        tokio::spawn(async move {
            converse(stream, site).await;
            drop(place);
        });
    }
}

async fn converse(stream: TcpStream, site: Arc<Site>) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    // Who has said all and closes his side waits for the answer, as `nc -N` does.
    builder.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEAD_FIELDS).half_close(true);
    let service = service_fn(move |request| {
        let site = site.clone();
        Box::pin(async move { Ok::<_, Infallible>(answer::answer(site, request).await) })
    });
    let mut conversation = builder.serve_connection(TokioIo::new(stream), service);
    let ended = poll_fn(|context| conversation.poll_without_shutdown(context));
    // Whoever ends one early, or says what is no HTTP, has had his answer.
    let _ = tokio::time::timeout(CONNECTION_WITHIN, ended).await;
    farewell::farewell(conversation.into_parts().io.into_inner()).await;
}
