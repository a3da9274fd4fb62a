//! Exports that are reached by nbds: servers of others that speak nothing else, certificates that are made here, and each way in
//! which one is not to be trusted.

use crate::common::{bimetal, text};
use crate::{Backend, folder, has, killed_while_written_to, wait_for};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder of an authority, and of what it has signed.
struct Authority(PathBuf);

fn openssl(folder: &Path, arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).current_dir(folder).output().expect("run");
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
}

const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

impl Authority {
    fn new(folder: &Path) -> Authority {
        std::fs::create_dir(folder).expect("a folder");
        let make = ["req", "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca-key.pem"];
        openssl(folder, &[&make[..], &["-out", "ca-cert.pem"], &KEY[..]].concat());
        Authority(folder.to_owned())
    }

    /// Signs a certificate of this kind that is made out to these.
    fn sign(&self, kind: &str, names: &str) {
        let (key, wish, made) =
            (format!("{kind}-key.pem"), format!("{kind}.csr"), format!("{kind}-cert.pem"));
        let ask = ["req", "-subj", "/CN=somebody", "-keyout", &key, "-out", &wish];
        openssl(&self.0, &[&ask[..], &KEY[..]].concat());
        let extension = format!("{kind}.ext");
        std::fs::write(self.0.join(&extension), format!("subjectAltName={names}\n")).expect("a file");
        let sign = ["x509", "-req", "-in", &wish, "-CA", "ca-cert.pem", "-CAkey", "ca-key.pem"];
        let into = ["-CAcreateserial", "-days", "2", "-extfile", &extension, "-out", &made];
        openssl(&self.0, &[&sign[..], &into[..]].concat());
    }

    /// A folder for clients: the authority's certificate, and their own if they are to have one.
    fn for_clients(&self, folder: &Path, with_own: bool) -> PathBuf {
        std::fs::create_dir(folder).expect("a folder");
        let own: &[&str] = if with_own { &["client-cert.pem", "client-key.pem"] } else { &[] };
        for file in [&["ca-cert.pem"], own].concat() {
            std::fs::copy(self.0.join(file), folder.join(file)).expect("a copy");
        }
        folder.to_owned()
    }
}

fn image(dir: &Path) -> PathBuf {
    let image = dir.join("slow.raw");
    std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
    image
}

/// nbdkit that says nothing to anybody without encryption, and nothing to clients whom nobody has signed if it verifies them.
fn nbdkit(dir: &Path, certificates: &Path, verifies: bool) -> Backend {
    let (image, certificates) = (image(dir), certificates.to_owned());
    Backend::start(dir.join("k.sock"), move |socket| {
        let mut command = Command::new("nbdkit");
        command.args(["-f", "--tls=require", "-U"]).arg(socket);
        command.arg(format!("--tls-certificates={}", certificates.display()));
        command.args(verifies.then_some("--tls-verify-peer")).arg("file").arg(&image);
        command
    })
}

fn uri(socket: &Path, certificates: &Path, name: &str) -> String {
    let (socket, certificates) = (socket.display(), certificates.display());
    format!("nbds+unix:///?socket={socket}&tls-certificates={certificates}&tls-hostname={name}")
}

#[test]
fn an_encrypted_export_keeps_what_was_flushed_as_any_other() {
    if !has("nbdkit") || !has("openssl") {
        return;
    }
    let dir = folder();
    let authority = Authority::new(&dir.path().join("authority"));
    authority.sign("server", "DNS:storage.example");
    authority.sign("client", "DNS:anybody");
    let backend = nbdkit(dir.path(), &authority.0, true);
    let certificates = authority.for_clients(&dir.path().join("ours"), true);
    let slow = uri(&backend.socket, &certificates, "storage.example");
    killed_while_written_to(dir, backend, &slow);
}

#[test]
fn qemus_server_is_known_by_its_address() {
    if !has("qemu-nbd") || !has("openssl") {
        return;
    }
    let dir = folder();
    let authority = Authority::new(&dir.path().join("authority"));
    authority.sign("server", "IP:127.0.0.1");
    let certificates = authority.for_clients(&dir.path().join("ours"), false);
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let (image, credentials) = (image(dir.path()), authority.0.clone());
    let mut command = Command::new("qemu-nbd");
    command.args([
        "-t",
        "-f",
        "raw",
        "-b",
        "127.0.0.1",
        "-p",
        &port.to_string(),
        "--tls-creds",
        "t",
        "--object",
    ]);
    command.arg(format!("tls-creds-x509,id=t,endpoint=server,verify-peer=no,dir={}", credentials.display()));
    let child = command.arg(&image).stdout(Stdio::null()).spawn().expect("a server");
    let _child = crate::common::Guarded(child);
    wait_for(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
    let slow = format!("nbds://127.0.0.1:{port}/?tls-certificates={}", certificates.display());
    let mut volume = crate::Volume::create(dir, &slow, &[]);
    volume.start();
    let mut stretches = crate::many(crate::seed());
    let mut client = volume.client();
    for _ in 0..900 {
        stretches.write(&mut client);
    }
    stretches.flush(&mut client);
    drop(client);
    volume.kill();
    volume.start();
    stretches.verify(&mut volume.client(), "after a kill");
    volume.stop();
    volume.check();
}

#[test]
fn who_is_not_to_be_trusted_is_refused_in_a_sentence() {
    if !has("nbdkit") || !has("openssl") {
        return;
    }
    let dir = folder();
    let at = |name: &str| dir.path().join(name);
    let authority = Authority::new(&at("authority"));
    authority.sign("server", "DNS:storage.example");
    let other = Authority::new(&at("other"));
    other.sign("client", "DNS:anybody");
    let known = authority.for_clients(&at("known"), false);
    let unknown = other.for_clients(&at("unknown"), false);
    // It trusts the server, and the server does not trust it.
    let foreign = authority.for_clients(&at("foreign"), false);
    for file in ["client-cert.pem", "client-key.pem"] {
        std::fs::copy(other.0.join(file), foreign.join(file)).expect("a copy");
    }
    let half = authority.for_clients(&at("half"), false);
    std::fs::copy(other.0.join("client-key.pem"), half.join("client-key.pem")).expect("a copy");
    let empty = at("empty");
    std::fs::create_dir(&empty).expect("a folder");

    let refused = |slow: &str| {
        let mut command = bimetal(dir.path());
        command.arg("create").arg(at("v.toml")).args(["--slow", slow]);
        command.arg("--fast").arg(format!("{}?size=64M", at("fast.img").display()));
        let output = command.output().expect("run");
        assert!(!output.status.success(), "{slow}");
        text(&output.stderr)
    };
    let backend = nbdkit(dir.path(), &authority.0, true);
    let socket = &backend.socket;
    for (slow, word, cure) in [
        (uri(socket, &known, "elsewhere.example"), "not made out to elsewhere.example", "tls-hostname"),
        (uri(socket, &unknown, "storage.example"), "signed by nobody in", "put its authority's"),
        (uri(socket, &known, "storage.example"), "wants to know its clients", "client-cert.pem"),
        (uri(socket, &foreign, "storage.example"), "does not take client-cert.pem", "have it signed"),
        (uri(socket, &half, "storage.example"), "only one is in", "put both there"),
        (uri(socket, &empty, "storage.example"), "ca-cert.pem cannot be read", "put it there"),
        (crate::uri(socket), "encrypts or says nothing", "nbds://"),
    ] {
        let said = refused(&slow);
        println!("{said}");
        assert!(said.contains(word) && said.contains(cure), "{slow}: {said}");
        assert_eq!(said.trim().lines().count(), 1, "{said}");
    }
    // One that does not encrypt is not talked to without it.
    let plain = Backend::start(at("p.sock"), |socket| {
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-U"]).arg(socket).args(["memory", "256M"]);
        command
    });
    let said = refused(&uri(&plain.socket, &known, "storage.example"));
    println!("{said}");
    assert!(said.contains("does not encrypt") && said.contains("--tls=require"), "{said}");
}
