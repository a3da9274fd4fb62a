//! Who may come to a server, how long he may stay, and what those are told who come to one that stands still.

mod common;

use common::{Client, Guarded, Served, bimetal, pattern, start, text};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

fn stopped() -> Served {
    let mut served = Served::new();
    served.stop();
    served
}

/// The program under this umask.
fn under(umask: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("umask {umask}; exec \"$0\" \"$@\"")).arg(command.get_program());
    shell.args(command.get_args());
    for (name, value) in command.get_envs() {
        value.map(|value| shell.env(name, value));
    }
    shell
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).expect("the socket").mode() & 0o7777
}

fn control(dir: &Path) -> PathBuf {
    let sockets = std::fs::read_dir(dir.join("bimetal")).expect("the runtime directory");
    let control = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "control");
    sockets.map(|entry| entry.expect("an entry").path()).find(control).expect("the control socket")
}

#[test]
fn sockets_have_the_mode_that_was_asked_for_whatever_the_umask_is() {
    let mut served = stopped();
    for umask in ["000", "022", "077", "777"] {
        for (options, expected) in [
            (&[][..], 0o600),
            (&["--socket-mode", "0660"][..], 0o660),
            (&["--socket-mode", "666"][..], 0o666),
        ] {
            // The directory for sockets is made under that umask, too.
            let folder = served.dir.path().join("bimetal");
            std::fs::remove_dir(&folder).expect("an empty directory");
            let mut command = common::serve(served.dir.path());
            command.args(options);
            served.child = Some(start(under(umask, &command)));
            assert_eq!(mode(&served.socket()), expected, "umask {umask}, {options:?}");
            assert_eq!(mode(&control(served.dir.path())), 0o600, "umask {umask}, {options:?}");
            assert_eq!(mode(&folder), 0o700, "umask {umask}, {options:?}");
            served.connect().write(0, &pattern(1, 4096));
            served.stop();
        }
    }
}

#[test]
fn a_group_is_let_in_where_that_is_asked_for() {
    let mut served = stopped();
    if !rustix::process::geteuid().is_root() {
        return eprintln!("only root gives files to any group: skipped");
    }
    let mut command = common::serve(served.dir.path());
    served.child = Some(start(std::mem::replace(&mut command, Command::new("true"))));
    let own = std::fs::metadata(served.socket()).expect("the socket").gid();
    served.stop();
    let mut command = common::serve(served.dir.path());
    command.args(["--socket-mode", "0660", "--socket-group", "4242"]);
    served.child = Some(start(command));
    let socket = std::fs::metadata(served.socket()).expect("the socket");
    assert_eq!((socket.gid(), mode(&served.socket())), (4242, 0o660));
    assert_eq!(std::fs::metadata(control(served.dir.path())).expect("the control socket").gid(), own);
    // A user of that group comes in, another one does not.
    std::fs::set_permissions(served.dir.path(), Permissions::from_mode(0o755)).expect("permissions");
    let connects = |group: u32| {
        let code = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
        let mut python = Command::new("python3");
        python.uid(4243).gid(group).arg("-c").arg(code).arg(served.socket());
        let done = python.stderr(std::process::Stdio::piped()).output().ok()?;
        match done.status.success() {
            true => Some(true),
            false => text(&done.stderr).contains("PermissionError").then_some(false),
        }
    };
    if let (Some(member), Some(other)) = (connects(4242), connects(4243)) {
        assert_eq!((member, other), (true, false));
    }
    served.stop();
    let mut command = common::serve(served.dir.path());
    let said = command.args(["--socket-group", "no such group"]).output().expect("run");
    assert!(text(&said.stderr).contains("/etc/group"), "{}", text(&said.stderr));
}

#[test]
fn the_control_socket_answers_its_own_user_only_even_where_others_get_at_it() {
    let mut served = stopped();
    if !rustix::process::geteuid().is_root() {
        return eprintln!("only root can come as somebody else: skipped");
    }
    let log = served.dir.path().join("log");
    let mut command = common::serve(served.dir.path());
    command.stderr(std::fs::File::create(&log).expect("a log"));
    served.child = Some(start(command));
    let control = control(served.dir.path());
    // As somebody may have left it.
    for (path, mode) in
        [(served.dir.path(), 0o777), (control.parent().expect("a folder"), 0o777), (&control, 0o666)]
    {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("permissions");
    }
    let code = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.shutdown(1); \
                print(b''.join(iter(lambda: s.recv(4096), b'')).decode())";
    let mut python = Command::new("python3");
    let Ok(done) = python.uid(4243).gid(4243).arg("-c").arg(code).arg(&control).output() else {
        return eprintln!("there is no python3 here: skipped");
    };
    if !done.status.success() {
        return eprintln!("nobody else can come here: skipped: {}", text(&done.stderr));
    }
    let heard = text(&done.stdout);
    assert!(
        heard.contains("refused") && heard.contains("user 4243") && !heard.contains("size_bytes"),
        "{heard}"
    );
    assert!(std::fs::read_to_string(&log).expect("the log").contains("user 4243"), "it is logged");
    // A directory that others may write to is not used at all.
    let status = bimetal(served.dir.path()).arg("status").arg(served.file()).output().expect("run");
    assert!(text(&status.stderr).contains("XDG_RUNTIME_DIR"), "{}", text(&status.stderr));
    std::fs::set_permissions(control.parent().expect("a folder"), Permissions::from_mode(0o700))
        .expect("permissions");
    common::succeed(bimetal(served.dir.path()).arg("status").arg(served.file()));
    served.stop();
}

#[test]
fn what_stands_where_a_socket_is_to_be_is_left_there_unless_its_server_is_dead() {
    let mut served = stopped();
    std::fs::write(served.socket(), "mine").expect("write");
    let said = |served: &Served| {
        let output = common::serve(served.dir.path()).output().expect("run");
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    assert!(said(&served).contains("is not a socket"));
    assert_eq!(std::fs::read(served.socket()).expect("the file"), b"mine");
    std::fs::remove_file(served.socket()).expect("remove");
    let other = UnixListener::bind(served.socket()).expect("bind");
    assert!(said(&served).contains("another server is listening"));
    // One that stands still, with as many waiting as it has room for.
    let mut waiting = Vec::new();
    while waiting.len() < 1000 {
        let code = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::NONBLOCK,
            None,
        );
        let socket = code.expect("a socket");
        let to = rustix::net::SocketAddrUnix::new(served.socket()).expect("a path");
        match rustix::net::connect(&socket, &to) {
            Ok(()) => waiting.push(socket),
            Err(_) => break,
        }
    }
    assert!(said(&served).contains("another server is listening"));
    drop((other, waiting));
    served.start();
    served.stop();
    assert!(!served.socket().exists());
}

#[test]
fn idle_clients_give_way_to_those_that_wait_and_it_is_said() {
    let mut served = stopped();
    let log = served.dir.path().join("log");
    let mut command = common::serve(served.dir.path());
    command.args(["--idle-timeout", "2"]).stderr(std::fs::File::create(&log).expect("a log"));
    served.child = Some(start(command));
    let mut busy = served.connect();
    let idle: Vec<Client> = (0..63).map(|_| served.connect()).collect();
    busy.write(0, &pattern(1, 4096));
    let waiting = UnixStream::connect(served.socket()).expect("connect");
    waiting.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
    let mut client = std::thread::scope(|scope| {
        let waits = scope.spawn(|| Client::over(waiting, ""));
        while !waits.is_finished() {
            // Who asks now and then keeps his place.
            assert_eq!(busy.read(0, 4096), pattern(1, 4096));
            std::thread::sleep(Duration::from_millis(100));
        }
        waits.join().expect("it came in")
    });
    assert_eq!(client.read(0, 4096), pattern(1, 4096));
    assert_eq!(busy.read(0, 4096), pattern(1, 4096));
    let said = std::fs::read_to_string(&log).expect("the log");
    assert!(said.contains("all 64 places for clients are taken"), "{said}");
    assert_eq!(said.matches("gives way to one that waits for its place").count(), 1, "{said}");
    // The one that was idle longest is gone, the others are not.
    let mut gone = 0;
    for mut client in idle {
        client.stream.set_nonblocking(true).expect("nonblocking");
        gone += usize::from(matches!(client.stream.read(&mut [0; 1]), Ok(0)));
    }
    assert_eq!(gone, 1);
    served.stop();
}

#[test]
fn who_never_finishes_the_handshake_is_disconnected_though_nobody_waits() {
    let served = Served::new();
    let mut idle = served.connect();
    let mut silent = UnixStream::connect(served.socket()).expect("connect");
    silent.write_all(b"\0\0\0\x03IHAVEOPT\0\0").expect("send");
    silent.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
    let mut heard = Vec::new();
    silent.read_to_end(&mut heard).expect("the end of the stream");
    idle.write(0, &pattern(1, 4096));
}

#[test]
fn a_server_that_stands_still_is_told_of_and_waited_for_no_longer_than_seconds() {
    let mut served = stopped();
    served.start();
    let pid = Pid::from_child(served.child.as_ref().expect("serving"));
    let recorder = |served: &Served| {
        let mut recorder = bimetal(served.dir.path());
        recorder
            .args(["trace", "record"])
            .arg(served.file())
            .arg("-o")
            .arg(served.dir.path().join("t.trace"));
        recorder
    };
    // One that was there before.
    let mut early = Guarded(recorder(&served).stderr(std::process::Stdio::piped()).spawn().expect("run"));
    let trace = served.dir.path().join("t.trace");
    let began = Instant::now();
    while !trace.exists() {
        assert!(began.elapsed() < Duration::from_secs(20), "no recording");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(pid, Signal::STOP).expect("stop");
    let run = |command: &str, options: &[&str]| {
        let mut asking = bimetal(served.dir.path());
        asking.arg(command).arg(served.file()).args(options);
        let output = asking.output().expect("run");
        (output.status.code(), text(&output.stderr))
    };
    let late = {
        let output = recorder(&served).args(["--force"]).output().expect("run");
        (output.status.code(), text(&output.stderr))
    };
    let asked = [
        run("status", &[]),
        run("status", &["--json"]),
        run("pins", &[]),
        run("why", &["0"]),
        run("pin", &["0", "1M", "--tier", "fast"]),
        run("unpin", &["0", "1M"]),
        late,
    ];
    for (place, (code, said)) in asked.iter().enumerate() {
        assert_eq!(*code, Some(2), "{place}: {said}");
        assert!(said.contains("does not answer") && said.contains("stopped"), "{place}: {said}");
    }
    let (code, said) = run("check", &[]);
    assert!(code == Some(2) && said.contains("in use"), "{said}");
    let status = early.0.wait().expect("wait");
    let mut said = String::new();
    early.0.stderr.take().expect("a pipe").read_to_string(&mut said).expect("read");
    assert!(status.code() == Some(1) && said.contains("stands still"), "{status}: {said}");
    kill_process(pid, Signal::CONT).expect("continue");
    served.stop();
}
