//! What is answered to a request.

use super::body::Answered;
use super::guard::{COOKIE, Guard, Verdict};
use super::source::{Shown, Source};
use super::stream;
use crate::metrics;
use crate::page;
use crate::sample::Step;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE as COOKIES, HOST,
    HeaderValue, LOCATION, REFERRER_POLICY, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Who follows at a time.
const MAX_FOLLOWERS: usize = 16;
/// A page may ask nobody but this server, and nobody may put it into a frame.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All that is shown, and to whom.
#[derive(Debug)]
pub(super) struct Site {
    volumes: Vec<Arc<Source>>,
    guard: Guard,
    followers: Arc<Semaphore>,
}

impl Site {
    pub(super) fn new(volumes: Vec<Shown>, guard: Guard) -> Site {
        let volumes = volumes.into_iter().map(|shown| Arc::new(Source::new(shown))).collect();
        Site { volumes, guard, followers: Arc::new(Semaphore::new(MAX_FOLLOWERS)) }
    }
}

type Answer = Response<Answered>;

/// Answers a request.
pub(super) async fn answer(site: Arc<Site>, request: Request<Incoming>) -> Answer {
    let mut answer = match judged(&site, &request) {
        None => routed(&site, &request).await,
        Some(answer) => answer,
    };
    if request.method() == Method::HEAD {
        *answer.body_mut() = Answered::Whole(None);
    }
    let head = answer.headers_mut();
    head.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    head.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    head.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    head.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    answer
}

/// What is said instead of an answer, where that is so.
fn judged(site: &Site, request: &Request<Incoming>) -> Option<Answer> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer = refused(StatusCode::METHOD_NOT_ALLOWED, "here is nothing but to read; use GET");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Some(answer);
    }
    if !request.body().is_end_stream() {
        return Some(refused(StatusCode::PAYLOAD_TOO_LARGE, "a request has no body here"));
    }
    let all = |name| request.headers().get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>();
    let (hosts, cookies) = (all(HOST), all(COOKIES));
    let authorization = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let asked = asked(request, "token");
    let asked = asked.as_deref().map(str::as_bytes);
    match site.guard.judge(&hosts, authorization, &cookies, asked) {
        Verdict::Welcome => None,
        Verdict::Nameless => {
            Some(refused(StatusCode::BAD_REQUEST, "a request names one host, in a field Host"))
        }
        Verdict::Stranger => Some(refused(
            StatusCode::FORBIDDEN,
            "the name that you came by is not known here; use localhost or the address in numbers",
        )),
        Verdict::NoToken => {
            let what = "a token is asked for: send it as Authorization: Bearer TOKEN, or open /?token=TOKEN";
            let mut answer = refused(StatusCode::UNAUTHORIZED, what);
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            Some(answer)
        }
    }
}

async fn routed(site: &Arc<Site>, request: &Request<Incoming>) -> Answer {
    let path = request.uri().path();
    let number = |name| match asked(request, name) {
        None => Ok(None),
        Some(text) => {
            text.parse::<u64>().map(Some).map_err(|_| format!("{name}={text}: give a number of bytes"))
        }
    };
    match path {
        "/" => return page(site, request),
        "/metrics" => return metrics(site).await,
        "/api/volumes" => {
            let names: Vec<&str> = site.volumes.iter().map(|source| source.shown.name.as_str()).collect();
            return json(&names);
        }
        _ => {}
    }
    let source = match asked(request, "volume") {
        None => site.volumes.first(),
        Some(name) => site.volumes.iter().find(|source| source.shown.name == name),
    };
    let Some(source) = source.cloned() else {
        return refused(StatusCode::NOT_FOUND, "there is no such volume; /api/volumes lists those there are");
    };
    match path {
        "/api/status" => asking(move || Ok(json(&source.status()?))).await,
        "/api/events" => match site.followers.clone().try_acquire_owned() {
            Ok(place) => {
                let mut answer = Response::new(Answered::Parts(stream::follow(source, place)));
                answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
                answer
            }
            Err(_) => refused(StatusCode::SERVICE_UNAVAILABLE, "too many follow already; try again later"),
        },
        "/api/history" => {
            let step = match asked(request, "span").as_deref() {
                None | Some("hour") => Step::Second,
                Some("day") => Step::Minute,
                Some("year") => Step::Hour,
                Some(_) => return refused(StatusCode::BAD_REQUEST, "span is hour, day or year"),
            };
            asking(move || Ok(json(&source.history(step)?))).await
        }
        "/api/map" => match (number("from"), number("to"), number("cells")) {
            (Ok(from), Ok(to), Ok(cells)) => asking(move || Ok(json(&source.map(from, to, cells)?))).await,
            (Err(what), ..) | (_, Err(what), _) | (.., Err(what)) => refused(StatusCode::BAD_REQUEST, &what),
        },
        "/api/why" => match number("offset") {
            Ok(Some(offset)) => asking(move || Ok(json(&source.why(offset)?))).await,
            Ok(None) => refused(StatusCode::BAD_REQUEST, "offset=BYTE is missing"),
            Err(what) => refused(StatusCode::BAD_REQUEST, &what),
        },
        _ => refused(
            StatusCode::NOT_FOUND,
            "there is /, /metrics, and /api/status, volumes, history, map, why, events",
        ),
    }
}

/// The page; who came with a token gets it as a cookie, and is sent on, so that it is not in the address.
fn page(site: &Site, request: &Request<Incoming>) -> Answer {
    if let Some(token) = asked(request, "token").filter(|token| site.guard.is_token(token.as_bytes())) {
        let cookie = format!("{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/");
        let mut answer = Response::new(Answered::Whole(None));
        *answer.status_mut() = StatusCode::SEE_OTHER;
        answer.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            answer.headers_mut().insert(SET_COOKIE, cookie);
        }
        return answer;
    }
    text("text/html; charset=utf-8", page::html().to_owned())
}

async fn metrics(site: &Arc<Site>) -> Answer {
    let site = site.clone();
    asking(move || {
        let seen = site.volumes.iter().map(|source| source.seen()).collect();
        let told = metrics::text(seen).map_err(|_| "the metrics cannot be written".to_owned())?;
        Ok(text(METRICS, told))
    })
    .await
}

/// Does what may wait on a thread for that.
async fn asking(ask: impl FnOnce() -> Result<Answer, String> + Send + 'static) -> Answer {
    match tokio::task::spawn_blocking(ask).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(what)) => refused(StatusCode::SERVICE_UNAVAILABLE, &what),
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, "that failed; the log says why"),
    }
}

fn text(kind: &'static str, text: String) -> Answer {
    let mut answer = Response::new(Answered::Whole(Some(Bytes::from(text))));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn json(document: &impl Serialize) -> Answer {
    match serde_json::to_string(document) {
        Ok(json) => text("application/json", json),
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, "the document cannot be written"),
    }
}

/// Why not, in a sentence.
fn refused(status: StatusCode, what: &str) -> Answer {
    let mut answer = text("application/json", serde_json::json!({ "error": what }).to_string());
    *answer.status_mut() = status;
    answer
}

/// The value of a name in the address.
fn asked(request: &Request<Incoming>, name: &str) -> Option<String> {
    let pairs = request.uri().query()?.split('&');
    let value = pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name)?.1;
    Some(unescaped(value))
}

/// Bytes that stand as `%` and two digits, as themselves; what is no text then is left as it was.
fn unescaped(text: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, more)) = rest.split_first() {
        let digits = more.get(..2).filter(|_| byte == b'%').and_then(|two| std::str::from_utf8(two).ok());
        let escaped =
            digits.filter(|two| !two.starts_with('+')).and_then(|two| u8::from_str_radix(two, 16).ok());
        out.push(escaped.unwrap_or(if byte == b'+' { b' ' } else { byte }));
        rest = if escaped.is_some() { &more[2..] } else { more };
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read_and_nonsense_is_left() {
        for (text, read) in [
            ("a%20b", "a b"),
            ("a+b", "a b"),
            ("%", "%"),
            ("%4", "%4"),
            ("%zz", "%zz"),
            ("%+1", "% 1"),
            ("%ff", "%ff"),
            ("%c3%a4", "ä"),
        ] {
            assert_eq!(unescaped(text), read, "{text}");
        }
    }
}
