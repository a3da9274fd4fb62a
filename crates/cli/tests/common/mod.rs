//! A served volume for tests: its own directory, a unix socket, one child process.
#![allow(dead_code)]

pub mod ext4;

use bimetal_nbd::{Chunk, Contexts, MetaContext, encode_request, parse_chunk, parse_simple_reply};
use bimetal_nbd::{
    ClientHandshake, ClientStep, Command as Nbd, NbdErrno, RemoteExport, Request, SIMPLE_REPLY_BYTES,
    SimpleReply, Terms,
};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// The program with this directory as all of its world.
pub fn bimetal(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bimetal"));
    command
        .env("XDG_RUNTIME_DIR", dir)
        .env("XDG_CONFIG_HOME", dir)
        .env("XDG_DATA_HOME", dir)
        .env("HOME", dir);
    command.stdin(Stdio::null());
    command
}

/// Whether this machine can have a loop device on what `nbdfuse` shows, and has these programs, too.
pub fn can_fuse(programs: &[&str]) -> bool {
    let has = |program: &str| {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .chain(["/usr/sbin".into(), "/sbin".into()])
            .any(|folder| folder.join(program).is_file())
    };
    rustix::process::geteuid().is_root()
        && ["/dev/fuse", "/dev/loop-control"].iter().all(|path| Path::new(path).exists())
        && ["nbdfuse", "losetup", "umount"].iter().chain(programs).all(|program| has(program))
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed.
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().expect("run");
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output.stderr));
    output
}

/// Makes the volume of this directory, on sparse files of these sizes, fast and slow.
pub fn create(dir: &Path, devices: [(PathBuf, &str); 2], options: &[&str]) {
    let [fast, slow] = devices.map(|(path, size)| format!("{}?size={size}", path.display()));
    let mut command = bimetal(dir);
    command.arg("create").arg(dir.join("v.toml")).args(["--fast", &fast, "--slow", &slow]);
    succeed(command.args(options));
}

/// The command that serves the volume of this directory on its socket.
pub fn serve(dir: &Path) -> Command {
    let mut command = bimetal(dir);
    command.arg("serve").arg(dir.join("v.toml"));
    command.arg("--nbd").arg(format!("unix:{}", dir.join("nbd.sock").display()));
    command
}

/// A process that ends with its owner, however that ends.
pub struct Guarded(pub Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct Served {
    pub dir: tempfile::TempDir,
    pub child: Option<Child>,
}

impl Served {
    /// Makes a small volume and serves it.
    pub fn new() -> Served {
        Served::sized("64M", "256M")
    }

    pub fn sized(fast: &str, slow: &str) -> Served {
        let dir = tempfile::tempdir().expect("temporary directory");
        let devices = [(dir.path().join("fast.img"), fast), (dir.path().join("slow.img"), slow)];
        create(dir.path(), devices, &["--landing", "8M", "--chunk", "64K"]);
        let mut served = Served { dir, child: None };
        served.start();
        served
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("v.toml")
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("nbd.sock")
    }

    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    pub fn start_with(&mut self, options: &[&str]) {
        let mut command = serve(self.dir.path());
        command.args(options);
        self.child = Some(start(command));
    }

    /// SIGTERM; must end with 0 within seconds.
    pub fn stop(&mut self) {
        let status = terminate(self.child.as_mut().expect("serving"));
        self.child = None;
        assert!(status.success(), "{status}");
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("serving");
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    pub fn connect(&self) -> Client {
        Client::connect(&self.socket())
    }

    pub fn check(&self) {
        let output = succeed(bimetal(self.dir.path()).arg("check").arg(self.file()).arg("--json"));
        assert!(text(&output.stdout).contains("\"clean\": true"), "{}", text(&output.stdout));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A small file system, unmounted with its owner.
pub struct Mounted {
    pub place: PathBuf,
    frozen: bool,
}

impl Mounted {
    /// `None` where this may not be done.
    pub fn new(dir: &Path, kind: &str, mib: u64) -> Option<Mounted> {
        let place = dir.join("small");
        std::fs::create_dir(&place).expect("a directory");
        let made = match kind {
            "tmpfs" => quiet(
                Command::new("mount")
                    .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "none"])
                    .arg(&place),
            ),
            _ => {
                let image = dir.join("small.ext4");
                std::fs::File::create(&image).and_then(|file| file.set_len(mib << 20)).expect("an image");
                quiet(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image))
                    && quiet(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&place))
            }
        };
        made.then_some(Mounted { place, frozen: false })
    }

    /// Whoever writes waits, or goes on. False where this may not be done.
    pub fn freeze(&mut self, frozen: bool) -> bool {
        let option = if frozen { "--freeze" } else { "--unfreeze" };
        let done = quiet(Command::new("fsfreeze").arg(option).arg(&self.place));
        self.frozen = frozen && done;
        done
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.frozen {
            self.freeze(false);
        }
        let _ = Command::new("umount").arg(&self.place).status();
    }
}

/// Whether a command of the system's succeeds; what it says is of no interest.
fn quiet(command: &mut Command) -> bool {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    command.env("PATH", path).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Starts a server and waits until it is ready.
pub fn start(command: Command) -> Child {
    let (child, uris) = start_many(command, 1);
    assert!(uris[0].starts_with("nbd+unix:///?socket="), "{uris:?}");
    child
}

/// Starts a server and waits until it is ready on this many sockets; gives their URIs.
pub fn start_many(mut command: Command, sockets: usize) -> (Child, Vec<String>) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("start");
    let mut output = BufReader::new(child.stdout.take().expect("output"));
    let mut uri = || {
        let mut line = String::new();
        output.read_line(&mut line).expect("read");
        line.strip_prefix("ready: ").unwrap_or_else(|| panic!("{line:?}")).trim_end().to_owned()
    };
    let uris = (0..sockets).map(|_| uri()).collect();
    (child, uris)
}

pub fn terminate(child: &mut Child) -> ExitStatus {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signal");
    ended(child)
}

/// Waits until a server ends by itself, which takes seconds at most.
pub fn ended(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("wait") {
            return status;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "the server does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A blocking client.
pub struct Client {
    pub stream: UnixStream,
    pub size_bytes: u64,
    cookie: u64,
}

impl Client {
    pub fn connect(socket: &Path) -> Client {
        Client::to(socket, "")
    }

    /// A client of the export of this name.
    pub fn to(socket: &Path, export: &str) -> Client {
        let stream = UnixStream::connect(socket).expect("connect");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
        Client::over(stream, export)
    }

    /// A client on a connection that was made already.
    pub fn over(mut stream: UnixStream, export: &str) -> Client {
        let export = negotiate(&mut stream, export, Terms::default());
        Client { stream, size_bytes: export.size_bytes, cookie: 0 }
    }

    pub fn send(&mut self, request: &Request, payload: &[u8]) {
        self.stream.write_all(&encode_request(request)).expect("send");
        self.stream.write_all(payload).expect("send");
    }

    pub fn reply(&mut self) -> SimpleReply {
        let mut header = [0; SIMPLE_REPLY_BYTES];
        self.stream.read_exact(&mut header).expect("reply");
        parse_simple_reply(&header).expect("valid").expect("whole")
    }

    pub fn call(&mut self, command: Nbd, offset: u64, length: u32, payload: &[u8]) -> SimpleReply {
        self.cookie += 1;
        self.send(&Request::new(self.cookie, command, offset, length), payload);
        let reply = self.reply();
        assert_eq!(reply.cookie, self.cookie);
        reply
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.call(Nbd::Write, offset, bytes.len() as u32, bytes).result.expect("write");
    }

    pub fn flush(&mut self) {
        self.call(Nbd::Flush, 0, 0, &[]).result.expect("flush");
    }

    pub fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        self.call(Nbd::Read, offset, length as u32, &[]).result.expect("read");
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).expect("data");
        bytes
    }
}

/// Negotiates an export on these terms.
pub fn negotiate(stream: &mut (impl Read + Write), name: &str, terms: Terms) -> RemoteExport {
    let mut handshake = ClientHandshake::wishing(name, terms).expect("name");
    let (mut input, mut out) = (Vec::new(), Vec::new());
    loop {
        let (used, step) = handshake.on_bytes(&input, &mut out).expect("handshake");
        input.drain(..used);
        stream.write_all(&out).expect("send");
        out.clear();
        if let ClientStep::Transmission(export) = step {
            return export;
        }
        let mut piece = [0; 4096];
        let count = match stream.read(&mut piece) {
            // Under a timeout the kernel does not take a read up again by itself, as after a stop of the process.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            result => result.expect("receive"),
        };
        assert!(count > 0, "the server closed the connection");
        input.extend_from_slice(&piece[..count]);
    }
}

/// Sends a request that is answered with a structured reply, and takes it: its chunks, and the data of a read
/// put together.
pub fn ask(stream: &mut (impl Read + Write), request: &Request) -> Result<(Vec<Chunk>, Vec<u8>), NbdErrno> {
    stream.write_all(&encode_request(request)).expect("send");
    let (mut chunks, mut data, mut input) = (Vec::new(), vec![0xee; request.length as usize], Vec::new());
    loop {
        let Some((used, head, chunk)) = parse_chunk(&input).expect("valid") else {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("reply");
            input.push(byte[0]);
            continue;
        };
        assert_eq!((used, head.cookie), (input.len(), request.cookie));
        input.clear();
        let range = |offset: u64, length: u32| {
            let start = (offset - request.offset) as usize;
            start..start + length as usize
        };
        match chunk {
            Chunk::Error { error, .. } => return Err(error),
            Chunk::Data { offset, length } => {
                stream.read_exact(&mut data[range(offset, length)]).expect("data");
            }
            Chunk::Hole { offset, length } => data[range(offset, length)].fill(0),
            _ => {}
        }
        chunks.push(chunk);
        if head.done {
            return Ok((chunks, data));
        }
    }
}

/// Where the bytes of a range are, as `x-bimetal:tier` says: offset, length and kind of each extent.
pub fn tiers(socket: &Path, from: u64, to: u64) -> Vec<(u64, u64, u32)> {
    let mut stream = UnixStream::connect(socket).expect("connect");
    let contexts = Contexts::NONE.with(MetaContext::Tier);
    negotiate(&mut stream, "", Terms { structured: true, contexts });
    let (mut at, mut found, mut cookie) = (from, Vec::new(), 0);
    while at < to {
        cookie += 1;
        let request = Request::new(cookie, Nbd::BlockStatus, at, (to - at).min(64 << 20) as u32);
        let (chunks, _) = ask(&mut stream, &request).expect("extents");
        for chunk in chunks {
            let Chunk::Status { extents, .. } = chunk else { panic!("{chunk:?}") };
            for extent in extents {
                let bytes = u64::from(extent.length).min(to - at);
                found.push((at, bytes, extent.word));
                at += bytes;
            }
        }
    }
    found
}

/// Bytes that differ everywhere.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}
