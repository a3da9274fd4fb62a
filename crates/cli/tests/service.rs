//! A server as a service: what it logs, what it tells a service manager, signals, memory and descriptors.

mod common;

use common::{Client, Guarded, Served, bimetal, ended, pattern, start, succeed, terminate, text};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn stopped() -> Served {
    let mut served = Served::new();
    served.stop();
    served
}

/// A server's command line, with its log in a file.
fn serve(served: &Served) -> (Command, PathBuf) {
    let log = served.dir.path().join("log");
    let mut command = bimetal(served.dir.path());
    command.arg("serve").arg(served.file()).arg("--nbd").arg(format!("unix:{}", served.socket().display()));
    command.stderr(std::fs::File::create(&log).expect("a log"));
    (command, log)
}

fn read(log: &PathBuf) -> String {
    std::fs::read_to_string(log).expect("a log")
}

/// Waits until the log has this.
fn await_line(log: &PathBuf, words: &str) {
    let start = Instant::now();
    while !read(log).contains(words) {
        assert!(start.elapsed() < Duration::from_secs(20), "{words:?} is not in the log:\n{}", read(log));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("signal");
}

#[test]
fn the_log_tells_the_life_of_a_server_in_one_line_each() {
    let mut served = stopped();
    let (command, log) = serve(&served);
    served.child = Some(start(command));
    served.connect().write(0, &pattern(1, 4096));
    served.stop();
    let lines = read(&log);
    let words = ["opened v: ", "ready: nbd+unix:///?socket=", "closing v", "closed v"];
    assert_eq!(lines.lines().count(), words.len(), "{lines}");
    for (line, words) in lines.lines().zip(words) {
        let (time, message) = line.split_once(' ').expect("a time");
        assert!(time.ends_with('Z') && time.contains('T'), "{line}");
        assert!(message.starts_with(&format!("bimetal: {words}")), "{line}");
        assert!(!line.contains('\x1b'), "no colours in a file: {line}");
    }
    assert!(lines.contains("it had been closed, 0 landed blocks"), "{lines}");

    let (mut command, log) = serve(&served);
    let stat = std::fs::metadata(&log).expect("a log");
    command.env("BIMETAL_LOG", "debug").env("JOURNAL_STREAM", format!("{}:{}", stat.dev(), stat.ino()));
    served.child = Some(start(command));
    let mut client = served.connect();
    client.write(0, &pattern(1, 4096));
    client.flush();
    drop(client);
    await_line(&log, "disconnected");
    // Events are told to the journal, with fields; where it is not there, each is a line, once.
    let is_there = Path::new(bimetal_watch::JOURNAL_SOCKET).exists();
    if !is_there {
        await_line(&log, "v: opened: ");
    }
    served.kill();
    assert_eq!(read(&log).matches("opened").count(), usize::from(!is_there), "{}", read(&log));
    assert!(read(&log).contains("bimetal: debug: client 1 of v connected\n"), "{}", read(&log));
    assert!(read(&log).starts_with("bimetal: "), "the journal adds the time: {}", read(&log));

    let (mut command, log) = serve(&served);
    command.env("JOURNAL_STREAM", "8:1");
    served.child = Some(start(command));
    served.stop();
    assert!(read(&log).starts_with("20"), "another's journal: {}", read(&log));
    assert!(read(&log).contains("recovered after a crash"), "{}", read(&log));
    let (mut command, log) = serve(&served);
    command.args(["--log", "warn"]);
    served.child = Some(start(command));
    served.stop();
    assert_eq!(read(&log), "");
}

/// All that comes to a manager's socket until one message has these words.
fn hear(manager: &UnixDatagram, words: &str) -> Vec<String> {
    let mut heard = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let count = match manager.recv(&mut bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            result => result.unwrap_or_else(|error| panic!("no {words}: {error}: {heard:?}")),
        };
        heard.push(text(&bytes[..count]));
        if heard.last().is_some_and(|last| last.contains(words)) {
            return heard;
        }
    }
}

#[test]
fn a_service_manager_hears_ready_alive_and_stopping() {
    let mut served = stopped();
    let name = format!("bimetal-test-{}", std::process::id());
    let path = served.dir.path().join("notify");
    let sockets = [
        (UnixDatagram::bind(&path).expect("bind"), path.display().to_string()),
        (
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("bind"),
            format!("@{name}"),
        ),
    ];
    for (manager, address) in sockets {
        manager.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
        let (mut command, _) = serve(&served);
        command.env("NOTIFY_SOCKET", &address).env("WATCHDOG_USEC", "200000");
        served.child = Some(start(command));
        assert!(hear(&manager, "READY=1").concat().contains("STATUS=serving v"));
        let begin = Instant::now();
        for _ in 0..5 {
            hear(&manager, "WATCHDOG=1");
        }
        let taken = begin.elapsed();
        assert!(taken > Duration::from_millis(300) && taken < Duration::from_secs(10), "{taken:?}");
        // A loop that hangs is not alive: nothing is heard of a stopped process.
        signal(served.child.as_ref().expect("serving"), Signal::STOP);
        std::thread::sleep(Duration::from_millis(300));
        manager.set_nonblocking(true).expect("nonblocking");
        while manager.recv(&mut [0; 100]).is_ok() {}
        std::thread::sleep(Duration::from_millis(500));
        assert!(manager.recv(&mut [0; 100]).is_err(), "a process that is stopped gave a sign of life");
        manager.set_nonblocking(false).expect("blocking");
        signal(served.child.as_ref().expect("serving"), Signal::CONT);
        hear(&manager, "WATCHDOG=1");
        // It is still in the socket's queue when the server is gone.
        served.stop();
        hear(&manager, "STOPPING=1");
    }
    // Another process's watchdog is none of ours, and a socket that is not there is said.
    let (mut command, log) = serve(&served);
    command.env("NOTIFY_SOCKET", served.dir.path().join("nobody"));
    assert_eq!(command.status().expect("run").code(), Some(2));
    assert!(read(&log).contains("NOTIFY_SOCKET"), "{}", read(&log));
    served.check();
}

#[test]
fn a_manager_that_does_not_listen_keeps_nobody_waiting() {
    let mut served = stopped();
    let path = served.dir.path().join("notify");
    let _deaf = UnixDatagram::bind(&path).expect("bind");
    let (mut command, _) = serve(&served);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "2000");
    served.child = Some(start(command));
    std::thread::sleep(Duration::from_secs(1));
    let mut client = served.connect();
    client.write(0, &pattern(1, 4096));
    assert_eq!(client.read(0, 4096), pattern(1, 4096));
    served.stop();
}

#[test]
fn hangups_and_broken_pipes_do_not_disturb() {
    let served = Served::new();
    let mut client = served.connect();
    for name in [Signal::HUP, Signal::PIPE] {
        for round in 0..3 {
            signal(served.child.as_ref().expect("serving"), name);
            client.write(round * 4096, &pattern(round, 4096));
            assert_eq!(client.read(round * 4096, 4096), pattern(round, 4096));
        }
    }
}

#[test]
fn a_limit_of_memory_is_kept_or_refused_with_what_is_needed() {
    let mut served = stopped();
    let (mut command, log) = serve(&served);
    command.args(["--memory", "1M"]);
    assert_eq!(command.status().expect("run").code(), Some(2));
    let message = read(&log);
    assert!(message.contains("--memory 1 MiB is too little") && message.lines().count() == 1, "{message}");
    let needed = message.split("give it ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a size");
    let buffers = |served: &Served| {
        let output = succeed(bimetal(served.dir.path()).arg("status").arg(served.file()).arg("--json"));
        let doc: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (doc["buffer_bytes"].as_u64().expect("bytes"), doc["ram_bytes"].as_u64().expect("bytes"))
    };
    let least: u64 = needed.strip_suffix('M').and_then(|number| number.parse().ok()).expect("a number");
    let mut seen = Vec::new();
    for mib in [least, least + 20, 10 << 10] {
        let limit = &format!("{mib}M");
        let (mut command, log) = serve(&served);
        command.args(["--memory", limit]);
        served.child = Some(start(command));
        let (size, bytes) = (served.connect().size_bytes, pattern(7, 32 << 20));
        for offset in [0, 33 << 20, (100 << 20) + 777] {
            let mut client = served.connect();
            client.write(offset, &bytes);
            client.flush();
            assert!(client.read(offset, bytes.len()) == bytes, "at {offset} of {size} within {limit}");
        }
        let (buffer_bytes, ram_bytes) = buffers(&served);
        seen.push(buffer_bytes);
        let resident = status_kib(served.child.as_ref().expect("serving"), "VmRSS:") << 10;
        assert!(
            buffer_bytes + ram_bytes < mib << 20 && resident < mib << 20,
            "{limit}: {buffer_bytes} {ram_bytes} {resident}"
        );
        served.stop();
        assert!(!read(&log).contains("warning"), "{}", read(&log));
    }
    assert!(seen.is_sorted() && seen[0] < seen[1] && seen[2] == (130 << 20) + (64 << 10), "{seen:?}");
    served.check();
}

/// Kilobytes in a line of a process's status.
fn status_kib(child: &Child, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("status");
    let line = status.lines().find(|line| line.starts_with(name)).expect(name);
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number")
}

#[test]
fn memory_is_locked_when_that_is_asked_for_and_may_be() {
    let mut served = stopped();
    let (mut command, log) = serve(&served);
    command.arg("--lock-memory");
    served.child = Some(start(command));
    let locked = status_kib(served.child.as_ref().expect("serving"), "VmLck:");
    let warned = read(&log).contains("cannot lock memory");
    assert!(warned != (locked > 100 << 10), "{locked} KiB: {}", read(&log));
    served.connect().write(0, &pattern(1, 1 << 20));
    served.stop();
    served.start();
    assert_eq!(status_kib(served.child.as_ref().expect("serving"), "VmLck:"), 0);
}

#[test]
fn a_server_without_descriptors_lives_and_serves_on() {
    let mut served = stopped();
    let log = served.dir.path().join("log");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 24; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_bimetal"), "serve"]);
    command.arg(served.file()).arg("--nbd").arg(format!("unix:{}", served.socket().display()));
    command.env("XDG_RUNTIME_DIR", served.dir.path()).env("HOME", served.dir.path());
    command.stdin(Stdio::null()).stderr(std::fs::File::create(&log).expect("a log"));
    served.child = Some(start(command));
    let mut first = served.connect();
    // More than there are descriptors for.
    let mut crowd: Vec<UnixStream> =
        (0..40).map(|_| UnixStream::connect(served.socket()).expect("connect")).collect();
    await_line(&log, "no client can be accepted for now");
    let used = cpu_ticks(served.child.as_ref().expect("serving"));
    for round in 0..30 {
        first.write(round * 4096, &pattern(round, 4096));
        assert_eq!(first.read(round * 4096, 4096), pattern(round, 4096));
        std::thread::sleep(Duration::from_millis(100));
    }
    let used = cpu_ticks(served.child.as_ref().expect("serving")) - used;
    assert!(used < 100, "{used} ticks in three seconds: the server spins");
    assert_eq!(read(&log).matches("no client can be accepted").count(), 1, "{}", read(&log));
    // Nobody has a descriptor to answer with, but whoever asks is answered when there is one again.
    let mut waiting = crowd.pop().expect("a client");
    crowd.clear();
    waiting.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    let mut greeting = [0; 8];
    waiting.read_exact(&mut greeting).expect("a greeting");
    assert_eq!(&greeting, b"NBDMAGIC");
    let mut late = Client::connect(&served.socket());
    assert_eq!(late.read(4096, 4096), pattern(1, 4096));
    succeed(bimetal(served.dir.path()).arg("status").arg(served.file()));
    assert!(terminate(served.child.as_mut().expect("serving")).success());
    served.child = None;
    served.check();
}

/// A person presses Ctrl-C on `up` while something is mounted, unmounts what is named, and goes away. FUSE's own
/// process leaves a moment after umount(8) has returned: the Ctrl-C may come before that or after it.
#[test]
fn ctrl_c_on_up_with_clients_closes_it_when_they_have_left() {
    let served = stopped();
    let log = served.dir.path().join("log");
    let mut command = bimetal(served.dir.path());
    command.arg("up").arg("--slow-model").arg("none").arg("--dir").arg(served.dir.path().join("up"));
    command.stderr(std::fs::File::create(&log).expect("a log"));
    let mut up = Guarded(start(command));
    let socket = served.dir.path().join("up/nbd.sock");
    let (first, mut second) = (Client::connect(&socket), Client::connect(&socket));
    signal(&up.0, Signal::INT);
    await_line(&log, "closes when they have left");
    drop(first);
    second.write(0, &pattern(1, 4096));
    second.flush();
    drop(second);
    let status = ended(&mut up.0);
    assert!(status.success(), "{status}: {}", read(&log));
    assert!(read(&log).contains("closed volume"), "{}", read(&log));
}

/// Processor time of a process, hundredths of a second.
fn cpu_ticks(child: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("stat");
    let rest = stat.rsplit(')').next().expect("the rest");
    rest.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum()
}

#[test]
fn completions_and_manual_pages_are_made_of_the_command_line() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for (shell, words) in [
        ("bash", ["_clap_complete_bimetal()", "BIMETAL_COMPLETE"]),
        ("zsh", ["#compdef bimetal", "BIMETAL_COMPLETE"]),
        ("fish", ["complete --keep-order", "BIMETAL_COMPLETE"]),
    ] {
        let script = text(&succeed(bimetal(dir.path()).args(["completions", shell])).stdout);
        assert!(words.iter().all(|word| script.contains(word)), "{shell}: {script}");
    }
    let asked =
        bimetal(dir.path()).env("BIMETAL_COMPLETE", "fish").args(["--", "bimetal", "serve", "--lo"]).output();
    let asked = text(&asked.expect("run").stdout);
    assert!(asked.contains("--lock-memory") && asked.contains("--log"), "{asked}");
    // A shell that is there takes its script.
    let script = succeed(bimetal(dir.path()).args(["completions", "bash"])).stdout;
    std::fs::write(dir.path().join("script"), &script).expect("write");
    succeed(Command::new("bash").arg("-n").arg(dir.path().join("script")));
    let man = dir.path().join("a/man1");
    succeed(bimetal(dir.path()).arg("man").arg(&man));
    for page in ["bimetal.1", "bimetal-serve.1", "bimetal-sim-torture.1"] {
        let text = std::fs::read_to_string(man.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".TH ") && text.contains(".SH EXAMPLES"), "{page}: {text}");
    }
    std::fs::write(dir.path().join("file"), "").expect("write");
    let output = bimetal(dir.path()).arg("man").arg(dir.path().join("file")).output().expect("run");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cannot write manual pages"), "{}", text(&output.stderr));
}
