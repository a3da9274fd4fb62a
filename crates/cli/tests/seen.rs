//! What a server shows by HTTP: figures, documents, the page; and who and what is not answered.

mod common;

use common::{Guarded, Served, bimetal, pattern, succeed, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A served volume that is shown.
struct Seen {
    served: Served,
    address: SocketAddr,
}

fn seen(options: &[&str]) -> Seen {
    let mut served = Served::new();
    served.stop();
    let address = show(&mut served, options);
    Seen { served, address }
}

fn show(served: &mut Served, options: &[&str]) -> SocketAddr {
    let mut command = common::serve(served.dir.path());
    command.args(["--http", "127.0.0.1:0"]).args(options);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    served.child = Some(child);
    let page = lines.find_map(|line| Some(line.expect("read").strip_prefix("page: http://")?.to_owned()));
    page.expect("a page").trim_end_matches('/').parse().expect("an address")
}

/// Says something, and takes all that is answered.
fn say(address: SocketAddr, said: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("timeout");
    // Who has heard enough may end it before all was said.
    let _ = stream.write_all(said);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    text(&answer)
}

fn get_with(address: SocketAddr, path: &str, fields: &str) -> (u16, String, String) {
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{fields}\r\n");
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
    stream.write_all(head.as_bytes()).expect("send");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answer");
    let answer = text(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {answer:?}"));
    (code(head), head.to_owned(), body.to_owned())
}

fn code(answer: &str) -> u16 {
    let code = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    code.and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no answer: {answer:?}"))
}

fn get(address: SocketAddr, path: &str) -> String {
    let (code, _, body) = get_with(address, path, "");
    assert_eq!(code, 200, "{path}: {body}");
    body
}

fn json(address: SocketAddr, path: &str) -> Value {
    serde_json::from_str(&get(address, path)).expect("a document")
}

/// One line of OpenMetrics: name, labels in order, value.
fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
    let (name, labels) = match series.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}').unwrap_or_else(|| panic!("{line}"))),
        None => (series, ""),
    };
    let plain = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    assert!(plain(name), "{line}");
    let mut found = BTreeMap::new();
    for label in labels.split(',').filter(|label| !label.is_empty()) {
        let (key, value) = label.split_once('=').unwrap_or_else(|| panic!("{line}"));
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        let value = value.unwrap_or_else(|| panic!("{line}"));
        assert!(plain(key) && !value.contains(['"', '\\']), "{line}");
        assert!(found.insert(key.to_owned(), value.to_owned()).is_none(), "{line}: twice the same label");
    }
    let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
    (name.to_owned(), found, value)
}

type Values = BTreeMap<(String, BTreeMap<String, String>), f64>;

/// Reads OpenMetrics as strictly as its specification asks for: the values, and the families with their types.
fn parse(metrics: &str) -> (Values, BTreeMap<String, String>) {
    let body = metrics.strip_suffix("# EOF\n").expect("it ends with # EOF");
    let (mut values, mut families) = (Values::new(), BTreeMap::new());
    let (mut family, mut kind, mut helped) = (String::new(), String::new(), false);
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split_once(' ').expect("a name and a text").0.to_owned();
            (kind, helped) = (String::new(), true);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of) = rest.split_once(' ').expect("a name and a type");
            assert!(helped && name == family, "{line}");
            assert!(families.insert(family.clone(), of.to_owned()).is_none(), "{family} is told twice");
            of.clone_into(&mut kind);
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (name, unit) = rest.split_once(' ').expect("a name and a unit");
            assert!(name == family && family.ends_with(&format!("_{unit}")), "{line}");
        } else {
            let (name, labels, value) = sample(line);
            let ending = name.strip_prefix(&family).unwrap_or_else(|| panic!("{line} is not of {family}"));
            let fits = match kind.as_str() {
                "counter" => ending == "_total" && value >= 0.0,
                "gauge" => ending.is_empty(),
                "histogram" => ["_bucket", "_sum", "_count"].contains(&ending),
                _ => false,
            };
            assert!(fits, "{line} does not fit a {kind}");
            assert!(values.insert((name, labels), value).is_none(), "{line} is told twice");
        }
    }
    (values, families)
}

/// Counts of a histogram never fall, and the last is all.
fn check_histogram(values: &Values, kind: &str) {
    let of = |name: &str| {
        values
            .iter()
            .filter(|((n, l), _)| n == name && l["kind"] == kind)
            .map(|((_, l), v)| (l.clone(), *v))
            .collect::<Vec<_>>()
    };
    let bound = |labels: &BTreeMap<String, String>| match labels["le"].as_str() {
        "+Inf" => f64::INFINITY,
        number => number.parse().expect("a bound"),
    };
    let mut buckets: Vec<(f64, f64)> =
        of("bimetal_response_seconds_bucket").iter().map(|(labels, value)| (bound(labels), *value)).collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(buckets.len() == 46 && buckets.windows(2).all(|two| two[0].1 <= two[1].1), "{buckets:?}");
    assert_eq!(buckets[45], (f64::INFINITY, of("bimetal_response_seconds_count")[0].1));
}

fn work(served: &Served) {
    let mut client = served.connect();
    for at in 0..300u64 {
        client.write(at * 4096, &pattern(at, 4096));
    }
    client.flush();
    (0..200u64).for_each(|at| drop(client.read(at * 4096, 4096)));
}

#[test]
fn metrics_are_what_status_says_and_what_is_documented() {
    let seen = seen(&[]);
    work(&seen.served);
    // The landing zone is emptied meanwhile; what counts is a moment at which both say the same.
    let status = || {
        let output =
            succeed(bimetal(seen.served.dir.path()).arg("status").arg(seen.served.file()).arg("--json"));
        serde_json::from_slice::<Value>(&output.stdout).expect("a document")
    };
    let settled = |document: &Value| {
        let mut document = document.clone();
        document["unix_ms"] = 0.into();
        document
    };
    let (metrics, document) = (0..100)
        .find_map(|_| {
            let before = status();
            std::thread::sleep(Duration::from_millis(300));
            let metrics = get(seen.address, "/metrics");
            (settled(&before) == settled(&status())).then_some((metrics, before))
        })
        .expect("it comes to rest");
    let (values, families) = parse(&metrics);
    let value = |name: &str, labels: &[(&str, &str)]| {
        let mut all: BTreeMap<String, String> =
            labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        all.insert("volume".to_owned(), "v".to_owned());
        *values.get(&(name.to_owned(), all)).unwrap_or_else(|| panic!("{name} {labels:?}"))
    };
    let told = |pointer: &str| {
        document.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}"))
    };
    for (name, pointer) in [
        ("bimetal_generation", "/generation"),
        ("bimetal_size_bytes", "/size_bytes"),
        ("bimetal_chunk_bytes", "/chunk_bytes"),
        ("bimetal_clients", "/clients"),
        ("bimetal_tables_bytes", "/ram_bytes"),
        ("bimetal_buffers_bytes", "/buffer_bytes"),
        ("bimetal_landing_size_bytes", "/landing/size_bytes"),
        ("bimetal_landing_used_bytes", "/landing/used_bytes"),
        ("bimetal_landing_landed_bytes", "/landing/landed_bytes"),
        ("bimetal_log_written_bytes_total", "/landing/log_written_bytes"),
        ("bimetal_log_payload_bytes_total", "/landing/log_payload_bytes"),
        ("bimetal_checkpoints_total", "/checkpoints"),
        ("bimetal_destaged_blocks_total", "/destaged_blocks"),
        ("bimetal_promoted_chunks_total", "/promoted_chunks"),
        ("bimetal_demoted_chunks_total", "/demoted_chunks"),
        ("bimetal_shadow_demoted_chunks_total", "/shadow_demoted_chunks"),
        ("bimetal_judged_chunks_total", "/moves/judged_chunks"),
        ("bimetal_repaid_chunks_total", "/moves/repaid_chunks"),
        ("bimetal_copies_bytes", "/copied_bytes"),
        ("bimetal_copy_read_bytes_total", "/copy_read_bytes"),
        ("bimetal_shadows_bytes", "/shadowed_bytes"),
        ("bimetal_wear_moved_bytes_total", "/wear/moved_bytes"),
        ("bimetal_wear_copied_bytes_total", "/wear/copied_bytes"),
        ("bimetal_reads_again_total", "/reads_again"),
        ("bimetal_reads_from_shadows_total", "/reads_from_shadows"),
        ("bimetal_repaired_blocks_total", "/repaired_blocks"),
        ("bimetal_scrub_wrong_blocks", "/scrub/wrong_blocks"),
        ("bimetal_scrub_done_bytes", "/scrub/done_bytes"),
        ("bimetal_scrub_lost_bytes", "/scrub/unlisted_bytes"),
    ] {
        assert_eq!(value(name, &[]), told(pointer), "{name}");
    }
    for (kind, place) in
        [("read", "reads"), ("write", "writes"), ("flush", "flushes"), ("discard", "discards")]
    {
        let of = |what: &str| told(&format!("/requests/{place}/{what}"));
        assert_eq!(value("bimetal_requests_total", &[("kind", kind)]), of("count"));
        assert_eq!(value("bimetal_request_bytes_total", &[("kind", kind)]), of("bytes"));
        assert_eq!(value("bimetal_request_errors_total", &[("kind", kind)]), of("errors"));
        assert_eq!(value("bimetal_response_seconds_count", &[("kind", kind)]), of("count"));
        assert!(
            (value("bimetal_response_seconds_sum", &[("kind", kind)]) - of("response_us") / 1e6).abs() < 1e-6
        );
        check_histogram(&values, kind);
    }
    for (at, tier) in ["fast", "slow"].into_iter().enumerate() {
        let of = |what: &str| told(&format!("/tiers/{at}/{what}"));
        for (name, what) in [
            ("bimetal_served_read_bytes_total", "read_bytes"),
            ("bimetal_served_written_bytes_total", "written_bytes"),
            ("bimetal_tier_size_bytes", "size_bytes"),
            ("bimetal_tier_used_bytes", "used_bytes"),
            ("bimetal_tier_pinned_bytes", "pinned_bytes"),
            ("bimetal_device_flushes_total", "flushes"),
            ("bimetal_device_errors_total", "load/errors"),
            ("bimetal_device_in_flight", "load/in_flight"),
        ] {
            assert_eq!(value(name, &[("tier", tier)]), of(what), "{name} of {tier}");
        }
        for (name, what) in [("busy", "load/busy_us"), ("wait", "load/wait_us")] {
            let name = format!("bimetal_device_{name}_seconds_total");
            assert!((value(&name, &[("tier", tier)]) - of(what) / 1e6).abs() < 1e-6, "{name} of {tier}");
        }
        for (kind, operations, moved) in
            [("read", "reads", "read_bytes"), ("write", "writes", "written_bytes")]
        {
            let labels = [("tier", tier), ("kind", kind)];
            assert_eq!(value("bimetal_device_operations_total", &labels), of(&format!("load/{operations}")));
            assert_eq!(
                value("bimetal_device_transferred_bytes_total", &labels),
                of(&format!("load/{moved}"))
            );
        }
        for by in ["clients", "background"] {
            assert_eq!(
                value("bimetal_device_wakeups_total", &[("tier", tier), ("by", by)]),
                of(&format!("wakeups/{by}"))
            );
        }
    }
    assert_eq!(value("bimetal_up", &[]), 1.0);
    assert_eq!(value("bimetal_state", &[("state", "open")]), 1.0);
    are_documented(&families);
}

/// The families that are told and those of docs/METRICS.md are the same, but for those that say of themselves that they may not be there.
fn are_documented(families: &BTreeMap<String, String>) {
    let page = include_str!("../../../docs/METRICS.md");
    let mut documented = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("| `bimetal_")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (name, kind) = (cells[1].trim_matches('`'), cells[2]);
        let family = name.strip_suffix("_total").unwrap_or(name);
        documented.insert(family.to_owned());
        match families.get(family) {
            Some(told) => assert_eq!(told, kind, "{name}"),
            None => assert!(line.contains("not there"), "{name} is documented, and not told"),
        }
    }
    let told: BTreeSet<String> = families.keys().cloned().collect();
    let missing: Vec<&String> = told.difference(&documented).collect();
    assert!(missing.is_empty(), "not in docs/METRICS.md: {missing:?}");
}

#[test]
fn documents_tell_what_the_commands_do() {
    let seen = seen(&[]);
    work(&seen.served);
    assert_eq!(json(seen.address, "/api/volumes"), serde_json::json!(["v"]));
    let status = json(seen.address, "/api/status");
    let size = status["size_bytes"].as_u64().expect("a size");
    assert_eq!((&status["version"], &status["requests"]["writes"]["count"]), (&1.into(), &300.into()));
    let map = json(seen.address, "/api/map?cells=100");
    let cells = map["cells"].as_array().expect("cells");
    let parts = ["fast_bytes", "slow_bytes", "landed_bytes", "hole_bytes", "lost_bytes"];
    let all: u64 = cells.iter().flat_map(|cell| parts.map(|part| cell[part].as_u64().expect("bytes"))).sum();
    assert!(all == size && cells.len() <= 100 && cells.len() > 50, "{all} of {size}, {} cells", cells.len());
    let part = json(seen.address, "/api/map?from=1048576&to=2097152&cells=4");
    assert_eq!(
        (&part["from"], &part["to"], part["cells"].as_array().map(Vec::len)),
        (&1_048_576.into(), &2_097_152.into(), Some(4))
    );
    assert!(json(seen.address, "/api/why?offset=0")["sentences"][0].is_string());
    for (path, expected) in [
        ("/api/map?from=5&to=5", 503),
        ("/api/map?from=x", 400),
        ("/api/map?cells=-1", 400),
        ("/api/why", 400),
        ("/api/why?offset=99999999999999999", 503),
        ("/api/history?span=week", 400),
        ("/api/status?volume=w", 404),
        ("/nowhere", 404),
    ] {
        let (code, _, body) = get_with(seen.address, path, "");
        assert_eq!(code, expected, "{path}: {body}");
        assert!(serde_json::from_str::<Value>(&body).expect("a document")["error"].is_string());
    }
    let page = get(seen.address, "/");
    assert!(page.starts_with("<!doctype html>") && page.contains("new uPlot("));
    let (_, head, _) = get_with(seen.address, "/", "");
    assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
}

#[test]
fn who_follows_hears_of_samples_and_events_and_the_history_has_them() {
    let seen = seen(&[]);
    let mut stream = TcpStream::connect(seen.address).expect("connect");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
    let head = format!("GET /api/events HTTP/1.1\r\nHost: {}\r\n\r\n", seen.address);
    stream.write_all(head.as_bytes()).expect("send");
    let mut lines = BufReader::new(stream).lines();
    let mut until = |wanted: &str, holds: &dyn Fn(&str) -> bool| {
        let mut name = String::new();
        loop {
            let line = lines.next().expect("it goes on").expect("read");
            if let Some(rest) = line.strip_prefix("event: ") {
                rest.clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ")
                && name == wanted
                && holds(data)
            {
                return;
            }
        }
    };
    until("happened", &|data| data.contains("\"opened\""));
    until("status", &|data| data.contains("\"version\":1"));
    work(&seen.served);
    until("samples", &|_| true);
    let mut command = bimetal(seen.served.dir.path());
    succeed(command.arg("pin").arg(seen.served.file()).args(["0", "64K", "--tier", "fast"]));
    until("happened", &|data| data.contains("\"pin\""));
    let history = json(seen.address, "/api/history?span=hour");
    let fields = history["fields"].as_array().expect("fields");
    let place = fields.iter().position(|name| name == "writes").expect("writes") + 3;
    let rows = history["rows"].as_array().expect("rows");
    assert_eq!(rows.iter().map(|row| row[place].as_u64().expect("a number")).sum::<u64>(), 300);
}

#[test]
fn nonsense_gets_an_answer_and_loses_nothing() {
    let seed = std::env::var("HTTP_SEED").ok().map_or(1u64, |text| text.parse().expect("a number"));
    println!("HTTP_SEED={seed}");
    let seen = seen(&[]);
    let (address, host) = (seen.address, format!("Host: {}\r\n", seen.address));
    let mut client = seen.served.connect();
    client.write(0, &pattern(7, 4096));
    let long = "x".repeat(20_000);
    let many: String = (0..200).map(|at| format!("X-{at}: y\r\n")).collect();
    for (said, expected) in [
        ("nonsense\r\n\r\n".to_owned(), &[400][..]),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), &[400, 505]),
        (format!("GET /{long} HTTP/1.1\r\n{host}\r\n"), &[414, 431]),
        (format!("GET / HTTP/1.1\r\n{host}X: {long}\r\n\r\n"), &[431]),
        (format!("GET / HTTP/1.1\r\n{host}{many}\r\n"), &[431]),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), &[400]),
        (format!("GET / HTTP/1.1\r\n{host}{host}\r\n"), &[400]),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), &[403]),
        ("GET /api/status HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n".to_owned(), &[403]),
        (format!("POST / HTTP/1.1\r\n{host}Content-Length: 3\r\n\r\nabc"), &[405]),
        (format!("GET / HTTP/1.1\r\n{host}Content-Length: 3\r\n\r\nabc"), &[413]),
        (format!("GET / HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), &[413]),
        (format!("DELETE /api/status HTTP/1.1\r\n{host}\r\n"), &[405]),
    ] {
        let answer = say(address, said.as_bytes());
        assert!(expected.contains(&code(&answer)), "{:.80}: {answer:.200}", said);
    }
    // Who has said all and closes his side is answered, also where that takes a while.
    for path in ["/", "/metrics", "/api/status"] {
        let answer = say(address, format!("GET {path} HTTP/1.1\r\n{host}\r\n").as_bytes());
        assert_eq!(code(&answer), 200, "{path}: {answer:.200}");
    }
    // Who says far more than is read hears why that is not answered, each time.
    let endless = "y".repeat(300_000);
    for _ in 0..20 {
        let answer = say(address, format!("GET / HTTP/1.1\r\n{host}X: {endless}\r\n\r\n").as_bytes());
        assert_eq!(code(&answer), 431, "{answer:.200}");
    }
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % n
    };
    let whole = format!("GET /api/map?from=0&to=65536&cells=4 HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
    for _ in 0..150 {
        let mut bytes = whole.clone().into_bytes();
        for _ in 0..=below(4) {
            let at = below(bytes.len() as u64) as usize;
            match below(3) {
                0 => bytes[at] = below(256) as u8,
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, below(256) as u8),
            }
        }
        let answer = say(address, &bytes);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 "), "{bytes:?}: {answer}");
    }
    // Those who say nothing take all places, and the next one is told so.
    let idle: Vec<TcpStream> = (0..32).map(|_| TcpStream::connect(address).expect("connect")).collect();
    assert_eq!(code(&say(address, whole.as_bytes())), 503);
    assert_eq!(client.read(0, 4096), pattern(7, 4096));
    drop(idle);
    let again = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        say(address, whole.as_bytes()).starts_with("HTTP/1.1 200")
    });
    assert!(again, "it does not answer any more");
}

#[test]
fn who_has_not_the_token_is_not_answered() {
    let mut served = Served::new();
    served.stop();
    let file = served.dir.path().join("token");
    std::fs::write(&file, "0123456789abcdef\n").expect("write");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("permissions");
    let address = show(&mut served, &["--token-file", &file.display().to_string()]);
    for path in ["/", "/metrics", "/api/status", "/?token=0123456789abcdeX"] {
        assert_eq!(get_with(address, path, "").0, 401, "{path}");
    }
    assert_eq!(get_with(address, "/metrics", "Authorization: Bearer 0123456789abcdef\r\n").0, 200);
    let (code, head, _) = get_with(address, "/?token=0123456789abcdef", "");
    assert!(
        code == 303 && head.contains("set-cookie: bimetal_token=0123456789abcdef; HttpOnly; SameSite=Strict"),
        "{head}"
    );
    assert_eq!(get_with(address, "/", "Cookie: bimetal_token=0123456789abcdef\r\n").0, 200);
    served.stop();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("permissions");
    for (options, word) in [
        (&["--http", "127.0.0.1:0", "--token-file", &file.display().to_string()][..], "chmod 600"),
        (&["--http", "0.0.0.0:0"], "--insecure"),
        (&["--http", "example.org:80"], "127.0.0.1:PORT"),
        (&["--insecure"], "--http"),
    ] {
        let output = common::serve(served.dir.path()).args(options).output().expect("run");
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
    }
}

#[test]
fn up_is_seen_unless_that_is_left_out() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let up = |options: &[&str]| -> Command {
        let mut command = bimetal(dir.path());
        command.arg("up").arg("--dir").arg(dir.path().join("up")).args(options).stdout(Stdio::piped());
        command
    };
    let said = |command: &mut Command| {
        let mut child = Guarded(command.spawn().expect("start"));
        let mut lines = BufReader::new(child.0.stdout.take().expect("piped")).lines();
        let mut text = String::new();
        for line in lines.by_ref().map(|line| line.expect("read")) {
            text += &format!("{line}\n");
            if line.contains("opens it again") {
                break;
            }
        }
        let page = text.split_whitespace().find_map(|word| word.strip_prefix("http://")).map(str::to_owned);
        let title =
            page.as_ref().map(|page| get(page.trim_end_matches('/').parse().expect("an address"), "/"));
        assert!(common::terminate(&mut child.0).success());
        title
    };
    assert!(said(&mut up(&[])).is_some_and(|page| page.contains("Bimetal")));
    assert!(said(&mut up(&["--http", "none"])).is_none());
}
