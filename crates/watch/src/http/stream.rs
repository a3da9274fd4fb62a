//! What happens, as it happens (`text/event-stream`): each second how the volume is and the samples that are new, and
//! events. Who comes anew is told the last events first.

use super::source::{Place, Source};
use bimetal_serve::unix_ms;
use hyper::body::Bytes;
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// How often is told what is new.
const EVERY: Duration = Duration::from_secs(1);
/// Events that are told to who comes anew.
const MAX_PAST_EVENTS: usize = 100;
/// Parts that wait for a slow reader: then it is waited for him.
const MAX_PARTS_WAITING: usize = 2;

/// Begins to tell; the place is given back when nobody listens any more.
pub(super) fn follow(source: Arc<Source>, place: OwnedSemaphorePermit) -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(MAX_PARTS_WAITING);
    tokio::spawn(async move {
        let mut seen = Place { second: unix_ms() / 1000, events: 0 };
        let mut first = true;
        loop {
            let source = source.clone();
            let told = tokio::task::spawn_blocking(move || {
                let text = tell(&source, &mut seen, first);
                (seen, text)
            });
            let Ok((now, text)) = told.await else { break };
            (seen, first) = (now, false);
            if sender.send(Bytes::from(text)).await.is_err() {
                break;
            }
            tokio::time::sleep(EVERY).await;
            if sender.is_closed() {
                break;
            }
        }
        drop(place);
    });
    receiver
}

fn tell(source: &Source, seen: &mut Place, first: bool) -> String {
    let mut text = if first { "retry: 1000\n\n".to_owned() } else { String::new() };
    let (rows, mut events) = source.news(seen);
    if first {
        events.drain(..events.len().saturating_sub(MAX_PAST_EVENTS));
    }
    events.iter().for_each(|event| message(&mut text, "happened", event));
    if !rows.is_empty() {
        message(&mut text, "samples", &rows);
    }
    match source.status() {
        Ok(status) => message(&mut text, "status", &status),
        Err(why) => message(&mut text, "gone", &why),
    }
    text
}

/// JSON has no line's end in it, so a message is a line.
fn message(text: &mut String, name: &str, document: &impl Serialize) {
    if let Ok(json) = serde_json::to_string(document) {
        let _ = write!(text, "event: {name}\ndata: {json}\n\n");
    }
}
