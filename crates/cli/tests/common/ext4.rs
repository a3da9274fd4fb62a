//! An ext4 in a volume, with files whose contents are known.

use super::{Client, Served, bimetal, pattern, succeed, text};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: usize = 1 << 20;

/// A mount that goes with its owner, before the server does.
pub struct Mount(pub PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Writes a file system with the tree into the volume; gives where the tree is.
pub fn fill(served: &Served, client: &mut Client) -> PathBuf {
    let (tree, image) = (served.dir.path().join("tree"), served.dir.path().join("ext4.img"));
    make_tree(&tree);
    File::create(&image).expect("an image").set_len(client.size_bytes).expect("its size");
    succeed(Command::new("/sbin/mkfs.ext4").args(["-q", "-E", "nodiscard", "-d"]).arg(&tree).arg(&image));
    let bytes = std::fs::read(&image).expect("the image");
    for (place, piece) in bytes.chunks(MIB).enumerate().filter(|(_, piece)| piece.iter().any(|b| *b != 0)) {
        client.write((place * MIB) as u64, piece);
    }
    client.flush();
    tree
}

/// Mounts the volume that is served, without anything being written; none where there is no loop device to be had.
pub fn mount(served: &Served) -> Option<Mount> {
    let output = bimetal(served.dir.path())
        .arg("attach")
        .arg(served.file())
        .args(["--as", "fuse"])
        .output()
        .expect("run");
    if text(&output.stderr).contains("losetup has ended") {
        return None;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mount = served.dir.path().join("mnt");
    std::fs::create_dir(&mount).expect("a folder");
    succeed(Command::new("mount").args(["-o", "ro,noload"]).arg(text(&output.stdout).trim()).arg(&mount));
    Some(Mount(mount))
}

/// Unmounts it, and lets the device of the machine go.
pub fn unmount(served: &Served, mounted: Mount) {
    drop(mounted);
    let output = bimetal(served.dir.path()).arg("detach").arg(served.file()).output().expect("run");
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// A tree of files whose contents are known by their numbers; one has two names, and a directory has many small ones.
fn make_tree(tree: &Path) {
    for i in 0..60 {
        let folder = tree.join(format!("d{}", i % 6));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(format!("f{i}")), pattern(i, 700_000 + i as usize * 1000))
            .expect("a file");
    }
    std::fs::hard_link(tree.join("d0/f0"), tree.join("d1/also-f0")).expect("a second name");
    std::fs::create_dir(tree.join("many")).expect("a folder");
    for i in 0..300 {
        std::fs::write(tree.join(format!("many/{i}")), pattern(1000 + i, 3000)).expect("a small file");
    }
}

/// All files below a folder that cannot be read, or are not what they were.
pub fn unreadable(mount: &Path, tree: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(tree).expect("the tree") {
        let path = entry.expect("the tree").path();
        let there = mount.join(path.file_name().expect("a name"));
        if path.is_dir() {
            unreadable(&there, &path, found);
        } else if std::fs::read(&there).ok() != Some(std::fs::read(&path).expect("the tree")) {
            found.push(there);
        }
    }
}

/// The files that a document names, and what it calls unknowable.
pub struct Named {
    pub files: Vec<PathBuf>,
    pub unknowable: Vec<PathBuf>,
}

impl Named {
    pub fn of(doc: &serde_json::Value) -> Named {
        let path = |value: &serde_json::Value| PathBuf::from(value.as_str().expect("a path"));
        let list = |key: &str| doc[key].as_array().expect("a list").iter();
        Named {
            files: list("files").map(|file| path(&file["path"])).collect(),
            unknowable: list("unknowable").map(path).collect(),
        }
    }

    /// Every file that is bad is named, by one of its names, or is below something unknowable; and no file that is whole is.
    pub fn must_be(&self, bad: &[PathBuf], mount: &Path) {
        let Named { files, unknowable } = self;
        let two = [mount.join("d0/f0"), mount.join("d1/also-f0")];
        for path in bad {
            let is_named = files.contains(path) || unknowable.iter().any(|above| path.starts_with(above));
            let by_another_name = two.contains(path) && two.iter().any(|name| files.contains(name));
            assert!(is_named || by_another_name, "{} is not among {files:?}, {unknowable:?}", path.display());
        }
        let whole: Vec<_> = files.iter().filter(|path| !bad.contains(path)).collect();
        assert!(whole.is_empty(), "no file that is whole is named: {whole:?}");
        assert!(two.iter().filter(|name| files.contains(name)).count() < 2, "a file is named once");
    }
}
