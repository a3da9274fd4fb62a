//! A slow device on an export of an NBD server: of ours, of qemu-nbd and of nbdkit where they are there.

#[path = "../common/mod.rs"]
mod common;

mod away;
mod encrypted;
mod fenced;

use bimetal_nbd::Command as Nbd;
use bimetal_units::rng::Rng;
use common::{Client, Guarded, bimetal, serve, start, succeed, terminate, text};
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;

fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !is_there {
        eprintln!("{program} is not there: this is not tried");
    }
    is_there
}

/// A server of somebody's, started on a socket.
struct Backend {
    socket: PathBuf,
    make: Box<dyn Fn(&Path) -> Command>,
    child: Option<Guarded>,
}

impl Backend {
    fn start(socket: PathBuf, make: impl Fn(&Path) -> Command + 'static) -> Backend {
        let mut backend = Backend { socket, make: Box::new(make), child: None };
        backend.again();
        backend
    }

    /// SIGKILL, if it runs.
    fn kill(&mut self) {
        self.child = None;
        let _ = std::fs::remove_file(&self.socket);
    }

    fn again(&mut self) {
        self.kill();
        let mut command = (self.make)(&self.socket);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.child = Some(Guarded(child.expect("a server")));
        wait_for(|| UnixStream::connect(&self.socket).is_ok());
    }
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not come about");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Our own server, of a volume of its own in a folder below.
fn own_backend(dir: &Path) -> Backend {
    let below = dir.join("below");
    std::fs::create_dir(&below).expect("a folder");
    let devices = [(below.join("fast.img"), "64M"), (below.join("slow.img"), "256M")];
    common::create(&below, devices, &["--landing", "8M"]);
    let at = below.clone();
    Backend::start(below.join("own.sock"), move |socket| {
        let mut command = bimetal(&at);
        command.arg("serve").arg(at.join("v.toml")).arg("--nbd").arg(format!("unix:{}", socket.display()));
        command
    })
}

/// Stands between a client and a server: delays, cuts, and lets nothing through.
struct Proxy {
    socket: PathBuf,
    lines: Arc<Mutex<Vec<UnixStream>>>,
    is_shut: Arc<AtomicBool>,
    delay_ms: Arc<AtomicU64>,
    /// With the next flush it is shut, before the flush is passed on.
    ends_at_flush: Arc<AtomicBool>,
}

impl Proxy {
    fn new(dir: &Path, server: &Path) -> Proxy {
        let socket = dir.join("proxy.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let proxy = Proxy {
            socket,
            lines: Arc::default(),
            is_shut: Arc::default(),
            delay_ms: Arc::default(),
            ends_at_flush: Arc::default(),
        };
        let (lines, is_shut, delay_ms) = (proxy.lines.clone(), proxy.is_shut.clone(), proxy.delay_ms.clone());
        let ends_at_flush = proxy.ends_at_flush.clone();
        let server = server.to_owned();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = UnixStream::connect(&server) else { continue };
                if is_shut.load(Ordering::SeqCst) {
                    continue;
                }
                let copy = |stream: &UnixStream| stream.try_clone().expect("a descriptor");
                lines.lock().expect("lines").extend([copy(&client), copy(&server)]);
                for (from, to) in [(copy(&client), copy(&server)), (server, client)] {
                    let (delay_ms, is_shut, ends) =
                        (delay_ms.clone(), is_shut.clone(), ends_at_flush.clone());
                    std::thread::spawn(move || {
                        pass_on(from, to, &delay_ms, |bytes| {
                            // A flush is sent alone, as whoever asks for it waits.
                            let is_end = bytes.starts_with(&FLUSH) && ends.swap(false, Ordering::SeqCst);
                            is_shut.fetch_or(is_end, Ordering::SeqCst);
                            is_end
                        });
                    });
                }
            }
        });
        proxy
    }

    /// Ends all connections.
    fn cut(&self) {
        for line in self.lines.lock().expect("lines").drain(..) {
            let _ = line.shutdown(Shutdown::Both);
        }
    }

    fn shut(&self, is_shut: bool) {
        self.is_shut.store(is_shut, Ordering::SeqCst);
        if is_shut {
            self.cut();
        }
    }

    fn delay(&self, ms: u64) {
        self.delay_ms.store(ms, Ordering::SeqCst);
    }
}

/// What the request of a flush begins with.
const FLUSH: [u8; 8] = [0x25, 0x60, 0x95, 0x13, 0, 0, 0, 3];

fn pass_on(mut from: UnixStream, mut to: UnixStream, delay_ms: &AtomicU64, ends_at: impl Fn(&[u8]) -> bool) {
    let mut room = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut room) {
        std::thread::sleep(Duration::from_millis(delay_ms.load(Ordering::SeqCst)));
        if ends_at(&room[..count]) || to.write_all(&room[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn uri(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", socket.display())
}

/// A volume whose slow device is an export.
struct Volume {
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl Volume {
    fn create(dir: tempfile::TempDir, slow: &str, options: &[&str]) -> Volume {
        let mut command = bimetal(dir.path());
        command.arg("create").arg(dir.path().join("v.toml"));
        command.arg("--fast").arg(format!("{}?size=64M", dir.path().join("fast.img").display()));
        command.args(["--slow", slow, "--landing", "8M", "--chunk", "64K"]).args(options);
        let said = text(&succeed(&mut command).stdout);
        assert!(
            said.contains("an NBD export of") && said.contains("nothing keeps another machine"),
            "{said}"
        );
        Volume { dir, child: None }
    }

    fn start(&mut self) {
        self.child = Some(start(serve(self.dir.path())));
    }

    fn client(&self) -> Client {
        Client::connect(&self.dir.path().join("nbd.sock"))
    }

    fn stop(&mut self) {
        let mut child = self.child.take().expect("serving");
        assert!(terminate(&mut child).success());
    }

    fn kill(&mut self) {
        let mut child = self.child.take().expect("serving");
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    fn command(&self, name: &str) -> Command {
        let mut command = bimetal(self.dir.path());
        command.arg(name).arg(self.dir.path().join("v.toml"));
        command
    }

    fn check(&self) {
        let output = succeed(self.command("check").arg("--json"));
        assert!(text(&output.stdout).contains("\"clean\": true"), "{}", text(&output.stdout));
    }

    /// What the status says of the slow device as an export.
    fn remote(&self) -> serde_json::Value {
        let output = succeed(self.command("status").arg("--json"));
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a document");
        status["tiers"][1]["remote"].clone()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Bytes of which it is known what they must be: of each stretch, by its number and how often it was written.
struct Stretches {
    rng: Rng,
    bytes: usize,
    /// How often each was written.
    versions: Vec<u64>,
    /// Those that a flush has covered.
    flushed: Vec<u64>,
}

impl Stretches {
    fn new(seed: u64, count: usize, bytes: usize) -> Stretches {
        println!("seed {seed}");
        let rng = Rng::new(seed, 0);
        Stretches { rng, bytes, versions: vec![0; count], flushed: vec![0; count] }
    }

    fn content(&self, place: usize, version: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        if version > 0 {
            Rng::new(version, place as u64).fill(&mut bytes);
        }
        bytes
    }

    fn write(&mut self, client: &mut Client) {
        let place = self.rng.below(self.versions.len() as u64) as usize;
        self.versions[place] += 1;
        let bytes = self.content(place, self.versions[place]);
        client.write((place * self.bytes) as u64, &bytes);
    }

    fn flush(&mut self, client: &mut Client) {
        client.flush();
        self.flushed.clone_from(&self.versions);
    }

    /// Each stretch, block by block, holds a version from the flushed one on.
    fn verify(&self, client: &mut Client, what: &str) {
        for place in 0..self.versions.len() {
            let read = client.read((place * self.bytes) as u64, self.bytes);
            let allowed: Vec<Vec<u8>> = (self.flushed[place]..=self.versions[place])
                .map(|version| self.content(place, version))
                .collect();
            for at in (0..self.bytes).step_by(BLOCK) {
                let is_one = allowed.iter().any(|bytes| bytes[at..at + BLOCK] == read[at..at + BLOCK]);
                assert!(
                    is_one,
                    "{what}: byte {at} of stretch {place} is of no version from {} to {}",
                    self.flushed[place], self.versions[place]
                );
            }
        }
    }

    /// The same where nothing may have been lost.
    fn verify_all(&mut self, client: &mut Client, what: &str) {
        self.flushed.clone_from(&self.versions);
        self.verify(client, what);
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary directory")
}

fn seed() -> u64 {
    std::env::var("REMOTE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(43)
}

/// Chunks of 64 KiB beyond what the fast device holds, so that much of them lies on the export.
fn many(seed: u64) -> Stretches {
    Stretches::new(seed, 700, 128 << 10)
}

#[test]
fn a_volume_on_an_export_is_made_served_killed_and_recovered() {
    let dir = folder();
    let backend = own_backend(dir.path());
    let mut volume = Volume::create(dir, &uri(&backend.socket), &["--remote-patience", "90s"]);
    let file = std::fs::read_to_string(volume.dir.path().join("v.toml")).expect("the volume file");
    assert!(file.contains(&uri(&backend.socket)) && file.contains("remote_patience = \"90s\""), "{file}");
    // What holds a volume is not overwritten.
    let mut again = bimetal(volume.dir.path());
    again.arg("create").arg(volume.dir.path().join("w.toml"));
    again.arg("--fast").arg(format!("{}?size=64M", volume.dir.path().join("other.img").display()));
    let refused = again.args(["--slow", &uri(&backend.socket)]).output().expect("run");
    assert!(text(&refused.stderr).contains("a Bimetal volume"), "{}", text(&refused.stderr));

    let mut stretches = many(seed());
    for round in 0..3 {
        volume.start();
        let mut client = volume.client();
        stretches.verify(&mut client, &format!("round {round}"));
        stretches.flushed.clone_from(&stretches.versions);
        for step in 0..400 {
            stretches.write(&mut client);
            if step % 50 == 49 {
                stretches.flush(&mut client);
            }
        }
        volume.kill();
    }
    volume.start();
    stretches.verify(&mut volume.client(), "at last");
    let remote = volume.remote();
    assert!(remote["connections"].as_u64() > Some(0) && remote["breaks"] == 0, "{remote}");
    volume.stop();
    volume.check();
    let listed = text(&succeed(bimetal(volume.dir.path()).arg("list")).stdout);
    println!("{listed}");
    let output = succeed(volume.command("destroy").arg("--yes"));
    assert!(text(&output.stdout).contains("superblocks erased"), "{}", text(&output.stdout));
}

#[test]
fn cuts_and_delays_are_invisible_but_for_time() {
    let dir = folder();
    let backend = own_backend(dir.path());
    let proxy = Proxy::new(dir.path(), &backend.socket);
    let mut volume = Volume::create(dir, &uri(&proxy.socket), &[]);
    volume.start();
    let (mut client, mut stretches) = (volume.client(), many(seed()));
    for step in 0..1500 {
        stretches.write(&mut client);
        match step % 150 {
            50 => proxy.cut(),
            75 => proxy.delay(2),
            100 => proxy.delay(0),
            149 => stretches.flush(&mut client),
            _ => {}
        }
    }
    proxy.cut();
    stretches.verify_all(&mut client, "as it was written");
    let remote = volume.remote();
    assert!(remote["breaks"].as_u64() >= Some(5), "{remote}");
    println!("{remote}");
    volume.stop();
    volume.check();
}

/// A server of this kind is killed while it is written to, and started again.
fn killed_while_written_to(dir: tempfile::TempDir, mut backend: Backend, slow: &str) {
    let mut volume = Volume::create(dir, slow, &[]);
    volume.start();
    let (mut client, mut stretches) = (volume.client(), many(seed()));
    for round in 0..4 {
        for step in 0..300 {
            stretches.write(&mut client);
            if step == 150 {
                stretches.flush(&mut client);
            }
        }
        backend.kill();
        std::thread::sleep(Duration::from_millis(200));
        backend.again();
        if round == 2 {
            stretches.flush(&mut client);
        }
    }
    stretches.verify_all(&mut client, "as it was written");
    assert!(volume.remote()["breaks"].as_u64() > Some(0), "{}", volume.remote());
    stretches.flush(&mut client);
    // The last word: both end without a word, and what was flushed is there.
    volume.kill();
    backend.again();
    volume.start();
    stretches.verify(&mut volume.client(), "after all was killed");
    volume.stop();
    volume.check();
}

#[test]
fn our_own_server_is_killed_and_started_again() {
    let dir = folder();
    let backend = own_backend(dir.path());
    let slow = uri(&backend.socket);
    killed_while_written_to(dir, backend, &slow);
}

#[test]
fn qemus_server_is_killed_and_started_again() {
    if !has("qemu-nbd") {
        return;
    }
    let dir = folder();
    let image = dir.path().join("slow.raw");
    std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
    let backend = Backend::start(dir.path().join("q.sock"), move |socket| {
        let mut command = Command::new("qemu-nbd");
        command.args(["-t", "-f", "raw", "-k"]).arg(socket).arg(&image);
        command
    });
    let slow = uri(&backend.socket);
    killed_while_written_to(dir, backend, &slow);
}

#[test]
fn a_server_that_forgets_what_it_promised_to_keep_is_noticed() {
    if !has("nbdkit") {
        return;
    }
    let dir = folder();
    let mut backend = Backend::start(dir.path().join("k.sock"), |socket| {
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-U"]).arg(socket).args(["memory", "256M"]);
        command
    });
    let mut volume = Volume::create(dir, &uri(&backend.socket), &[]);
    volume.start();
    let (mut client, mut stretches) = (volume.client(), many(seed()));
    for _ in 0..1500 {
        stretches.write(&mut client);
    }
    stretches.flush(&mut client);
    drop(client);
    backend.kill();
    backend.again();
    let mut child = volume.child.take().expect("serving");
    // Somebody asks until the server has noticed.
    let mut asks = Client::connect(&volume.dir.path().join("nbd.sock"));
    let start = Instant::now();
    loop {
        if child.try_wait().expect("wait").is_some() {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it goes on");
        let place = stretches.rng.below(700) as usize;
        let offset = (place * stretches.bytes) as u64;
        let request = bimetal_nbd::Request::new(7, Nbd::Read, offset, stretches.bytes as u32);
        if asks.stream.write_all(&bimetal_nbd::encode_request(&request)).is_err() {
            continue;
        }
        let mut header = [0; 16];
        if asks.stream.read_exact(&mut header).is_err() {
            continue;
        }
        if bimetal_nbd::parse_simple_reply(&header).ok().flatten().is_some_and(|reply| reply.result.is_ok()) {
            let mut bytes = vec![0; stretches.bytes];
            asks.stream.read_exact(&mut bytes).expect("data");
            assert!(
                bytes == stretches.content(place, stretches.versions[place]),
                "stretch {place} is read wrong"
            );
        }
    }
    assert_eq!(child.wait().expect("wait").code(), Some(1), "a problem was found");
    let said = volume.command("serve").output().expect("run");
    assert!(!said.status.success(), "nothing is there any more");
    println!("{}", text(&said.stderr));
}

#[test]
fn errors_of_a_server_are_answered_as_from_a_disk() {
    if !has("nbdkit") {
        return;
    }
    let dir = folder();
    let (image, broken) = (dir.path().join("slow.raw"), dir.path().join("broken"));
    std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
    let switch = broken.clone();
    let backend = Backend::start(dir.path().join("k.sock"), move |socket| {
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-U"]).arg(socket).args(["--filter=error", "--filter=delay", "file"]).arg(&image);
        command.arg("error-pread-rate=50%").arg(format!("error-pread-file={}", switch.display()));
        command.arg("delay-read=1ms").arg("delay-write=1ms");
        command
    });
    let mut volume = Volume::create(dir, &uri(&backend.socket), &[]);
    volume.start();
    let (mut client, mut stretches) = (volume.client(), many(seed()));
    for _ in 0..900 {
        stretches.write(&mut client);
    }
    stretches.flush(&mut client);
    std::fs::write(&broken, "").expect("a switch");
    let (mut failed, mut read) = (0, 0);
    for place in 0..700usize {
        let offset = (place * stretches.bytes) as u64;
        match client.call(Nbd::Read, offset, stretches.bytes as u32, &[]).result {
            Ok(()) => {
                let mut bytes = vec![0; stretches.bytes];
                client.stream.read_exact(&mut bytes).expect("data");
                assert!(bytes == stretches.content(place, stretches.versions[place]), "stretch {place}");
                read += 1;
            }
            Err(_) => failed += 1,
        }
    }
    println!("{read} reads succeeded, {failed} failed");
    assert!(read > 0);
    std::fs::remove_file(&broken).expect("a switch");
    stretches.verify_all(&mut client, "when it is well again");
    assert_eq!(volume.remote()["breaks"], 0, "an error is no break");
    volume.stop();
    volume.check();
}

#[test]
fn what_is_hot_goes_on_while_the_export_is_away_and_all_of_it_when_it_is_back() {
    let dir = folder();
    let backend = own_backend(dir.path());
    let proxy = Proxy::new(dir.path(), &backend.socket);
    let mut volume = Volume::create(dir, &uri(&proxy.socket), &["--remote-patience", "3s"]);
    volume.start();
    let (mut client, mut stretches) = (volume.client(), many(seed()));
    for _ in 0..900 {
        stretches.write(&mut client);
    }
    stretches.flush(&mut client);
    proxy.shut(true);
    // Small writes land, and are read back.
    let hot = Stretches::new(seed() + 1, 64, BLOCK);
    let base = 90 << 20;
    for place in 0..64 {
        client.write(base + (place * BLOCK) as u64, &hot.content(place, 1));
    }
    for place in 0..64 {
        assert_eq!(client.read(base + (place * BLOCK) as u64, BLOCK), hot.content(place, 1));
    }
    // Reads of what is away fail after the patience, and no sooner than they must.
    let mut failed = 0;
    for place in 0..700usize {
        let offset = (place * stretches.bytes) as u64;
        let start = Instant::now();
        match client.call(Nbd::Read, offset, stretches.bytes as u32, &[]).result {
            Ok(()) => {
                let mut bytes = vec![0; stretches.bytes];
                client.stream.read_exact(&mut bytes).expect("data");
                assert!(bytes == stretches.content(place, stretches.versions[place]), "stretch {place}");
            }
            Err(_) => {
                println!("stretch {place} failed after {:.1} s", start.elapsed().as_secs_f64());
                failed += 1;
            }
        }
        if failed == 2 {
            break;
        }
    }
    assert_eq!(failed, 2, "much lies on the export");
    assert!(volume.remote()["away_since_unix_s"].is_u64(), "{}", volume.remote());
    proxy.shut(false);
    wait_for(|| volume.remote()["away_since_unix_s"].is_null());
    stretches.verify_all(&mut client, "when it is back");
    for _ in 0..100 {
        stretches.write(&mut client);
    }
    stretches.flush(&mut client);
    volume.stop();
    // Nobody is there: what is left can be read.
    proxy.shut(true);
    let refused = volume.command("serve").output().expect("run");
    assert!(text(&refused.stderr).contains("--degraded"), "{}", text(&refused.stderr));
    proxy.shut(false);
    volume.check();
}

#[test]
fn what_is_no_slow_device_is_refused_in_a_sentence() {
    let dir = folder();
    let refused = |fast: &str, slow: &str| {
        let mut command = bimetal(dir.path());
        command.arg("create").arg(dir.path().join("v.toml")).args(["--fast", fast, "--slow", slow]);
        let output = command.output().expect("run");
        assert!(!output.status.success(), "{fast} {slow}");
        text(&output.stderr)
    };
    let fast = format!("{}?size=64M", dir.path().join("fast.img").display());
    for (fast, slow, word) in [
        ("nbd://localhost/x", fast.as_str(), "only the slow one"),
        (fast.as_str(), "nbds://localhost/x", "tls-certificates"),
        (fast.as_str(), "nbd+unix:///x", "names the socket"),
        (fast.as_str(), "nbd+unix:///?socket=/nowhere/x.sock", "cannot reach the server"),
    ] {
        let said = refused(fast, slow);
        assert!(said.contains(word), "{fast} {slow}: {said}");
    }
    if has("nbdkit") {
        let socket = dir.path().join("k.sock");
        let _backend = Backend::start(socket.clone(), |socket| {
            let mut command = Command::new("nbdkit");
            command.args(["-f", "-r", "-U"]).arg(socket).args(["memory", "256M"]);
            command
        });
        let said = refused(&fast, &uri(&socket));
        assert!(said.contains("read-only"), "{said}");
    }
}
