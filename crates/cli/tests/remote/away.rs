//! An export that is away when its volume is opened, or goes away meanwhile: what is on the fast device is served if asked for.

use crate::common::{Client, serve, start, succeed, terminate, text};
use crate::{Backend, Proxy, Stretches, Volume, folder, many, own_backend, seed, uri};
use bimetal_nbd::Command as Nbd;
use std::io::Read as _;
use std::process::Stdio;

/// A volume with much on its export, closed; with what was written.
fn filled(slow: &str, dir: tempfile::TempDir) -> (Volume, Stretches) {
    let mut volume = Volume::create(dir, slow, &["--remote-patience", "2s"]);
    volume.start();
    let (mut client, mut stretches) = (volume.client(), many(seed()));
    for _ in 0..900 {
        stretches.write(&mut client);
    }
    stretches.flush(&mut client);
    drop(client);
    volume.stop();
    (volume, stretches)
}

/// Reads all; what is read is right, and what is not there is an error. With how many of either.
fn read_what_is_left(client: &mut Client, stretches: &Stretches) -> (usize, usize) {
    let (mut read, mut failed) = (0, 0);
    for place in 0..stretches.versions.len() {
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
    (read, failed)
}

#[test]
fn a_volume_whose_export_is_away_is_opened_with_what_is_local() {
    let dir = folder();
    let mut backend: Backend = own_backend(dir.path());
    let (mut volume, stretches) = filled(&uri(&backend.socket), dir);
    // Both are there: nothing is missing.
    let refused = serve(volume.dir.path()).arg("--degraded").output().expect("run");
    assert!(text(&refused.stderr).contains("without --degraded"), "{}", text(&refused.stderr));
    backend.kill();
    let refused = volume.command("serve").output().expect("run");
    let said = text(&refused.stderr);
    assert!(said.contains("cannot reach the server") && said.contains("--degraded"), "{said}");
    let mut command = serve(volume.dir.path());
    command.arg("--degraded");
    let mut child = start(command);
    let mut client = volume.client();
    let (read, failed) = read_what_is_left(&mut client, &stretches);
    println!("{read} stretches are there, {failed} are not");
    assert!(read > 0 && failed > 0, "{read} are there, {failed} are not");
    assert!(client.call(Nbd::Write, 0, 4096, &[1; 4096]).result.is_err(), "it takes no writes");
    let status = succeed(volume.command("status").arg("--json"));
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("a document");
    assert_eq!(status["state"], "degraded", "{status}");
    drop(client);
    assert!(terminate(&mut child).success());
    // Nothing was changed by that: with the export all of it is there.
    backend.again();
    volume.start();
    stretches.verify(&mut volume.client(), "when it is back");
    volume.stop();
    volume.check();
}

/// A flush of an opening waited for ever, as one of a volume does that is served: nobody could tell it from a slow opening.
#[test]
fn an_export_that_goes_away_while_its_volume_is_opened_fails_the_opening() {
    let dir = folder();
    let backend = own_backend(dir.path());
    let proxy = Proxy::new(dir.path(), &backend.socket);
    let (mut volume, stretches) = filled(&uri(&proxy.socket), dir);
    proxy.ends_at_flush.store(true, std::sync::atomic::Ordering::SeqCst);
    let failed = volume.command("serve").stdin(Stdio::null()).output().expect("run");
    let said = text(&failed.stderr);
    println!("{said}");
    assert_eq!(failed.status.code(), Some(2), "{said}");
    assert!(said.contains("is away") && said.contains("--degraded"), "{said}");
    let mut command = serve(volume.dir.path());
    command.arg("--degraded");
    let mut child = start(command);
    let (read, failed) = read_what_is_left(&mut volume.client(), &stretches);
    assert!(read > 0 && failed > 0, "{read} are there, {failed} are not");
    assert!(terminate(&mut child).success());
    proxy.shut(false);
    volume.start();
    stretches.verify(&mut volume.client(), "when it is back");
    volume.stop();
    volume.check();
    drop(backend);
}
