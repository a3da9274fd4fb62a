//! Sicknesses that are planted below a root of their own, and machines that are well.

use super::device::{Device, InFile};
use super::facts::{Facts, Server, State};
use super::judge::findings;
use super::system::{FileSystem, Root};
use bimetal_serve::StatusDoc;
use bimetal_serve::attach::{AttachedDoc, Kind};
use bimetal_serve::map::CellDoc;
use bimetal_serve::status::{RemoteDoc, TierDoc, WearBudgetDoc};
use rustix::fs::makedev;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const NVME: (u32, u32) = (259, 0);
const NVME_PART: (u32, u32) = (259, 1);
const SDA: (u32, u32) = (8, 0);
const SDB: (u32, u32) = (8, 16);
const MD: (u32, u32) = (9, 0);
const CRYPT: (u32, u32) = (253, 0);

/// A machine in a folder.
struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine { dir: tempfile::tempdir().expect("a folder") };
        std::fs::create_dir_all(machine.dir.path().join("sys/dev/block")).expect("a folder");
        machine.write("proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 12000000 kB\n");
        machine.write("proc/sys/kernel/osrelease", "6.18.4-amd64\n");
        machine.disk(
            NVME,
            "pci0/nvme/nvme0/nvme0n1",
            &[("queue/rotational", "0"), ("queue/write_cache", "write back")],
        );
        machine.write("sys/devices/pci0/nvme/nvme0/nvme0n1/queue/discard_max_bytes", "2199023255040");
        machine.disk(
            NVME_PART,
            "pci0/nvme/nvme0/nvme0n1/nvme0n1p1",
            &[("partition", "1"), ("start", "2048")],
        );
        for (number, name) in [(SDA, "sda"), (SDB, "sdb")] {
            machine.disk(
                number,
                &format!("pci0/ata1/host0/block/{name}"),
                &[
                    ("queue/rotational", "1"),
                    ("queue/write_cache", "write back"),
                    ("queue/zoned", "none"),
                    ("device/scsi_disk/0:0:0:0/cache_type", "write back"),
                    ("alignment_offset", "0"),
                    ("ro", "0"),
                    ("stat", "90000 0 7200000 450000 10000 0 800000 50000 0 500000 500000"),
                ],
            );
        }
        machine.disk(MD, "virtual/block/md0", &[("queue/rotational", "1")]);
        machine.disk(CRYPT, "virtual/block/dm-0", &[("queue/rotational", "0"), ("dm/uuid", "CRYPT-x")]);
        for (above, slave) in
            [("md0", "ata1/host0/block/sda"), ("md0", "ata1/host0/block/sdb"), ("dm-0", "nvme/nvme0/nvme0n1")]
        {
            let name = Path::new(slave).file_name().expect("a name").to_owned();
            let link = machine.dir.path().join(format!("sys/devices/virtual/block/{above}/slaves"));
            std::fs::create_dir_all(&link).expect("a folder");
            let target = machine.dir.path().join("sys/devices/pci0").join(slave);
            std::os::unix::fs::symlink(target, link.join(name)).expect("a link");
        }
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("written");
    }

    /// A block device with these files.
    fn disk(&self, (major, minor): (u32, u32), place: &str, files: &[(&str, &str)]) {
        let folder = format!("sys/devices/{place}");
        self.write(&format!("{folder}/dev"), &format!("{major}:{minor}\n"));
        files.iter().for_each(|(name, text)| self.write(&format!("{folder}/{name}"), text));
        let link = self.dir.path().join(format!("sys/dev/block/{major}:{minor}"));
        std::os::unix::fs::symlink(self.dir.path().join(folder), link).expect("a link");
    }

    fn sda(&self, name: &str, text: &str) {
        self.write(&format!("sys/devices/pci0/ata1/host0/block/sda/{name}"), text);
    }

    fn nvme(&self, name: &str, text: &str) {
        self.write(&format!("sys/devices/pci0/nvme/nvme0/nvme0n1/{name}"), text);
    }

    fn root(&self) -> Root {
        Root(self.dir.path().into())
    }

    fn device(&self, path: &str, (major, minor): (u32, u32)) -> Option<Device> {
        let mut device = Device { path: path.into(), ..Device::default() };
        device.stand_on(&self.root(), makedev(major, minor));
        Some(device)
    }

    /// What is known of a volume on these devices that is served.
    fn facts_of(&self, fast: (u32, u32), slow: (u32, u32)) -> Facts {
        let devices = || [self.device("/dev/fast", fast), self.device("/dev/slow", slow)];
        let root = self.root();
        Facts {
            called: "films".into(),
            file: "/etc/bimetal/films.toml".into(),
            unfinished: false,
            state: State::Served(Box::new(server())),
            missing: Vec::new(),
            is_protected: false,
            stands_in: false,
            moved: Vec::new(),
            confused: None,
            devices: devices(),
            later: devices(),
            attached: None,
            in_fstab: super::facts::is_in_fstab(&root, "films"),
            enabled: super::facts::is_enabled(&root, "films"),
            memory: root.memory("MemTotal").zip(root.memory("MemAvailable")),
            kernel: root.kernel(),
        }
    }

    fn facts(&self) -> Facts {
        self.facts_of(NVME, SDA)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn server() -> Server {
    let status =
        StatusDoc { state: "open".into(), chunk_bytes: 128 << 10, tiers: tiers(), ..StatusDoc::default() };
    let map = vec![CellDoc { hottest: 4, hot_slow_bytes: 32 << 20, ..CellDoc::default() }; 8];
    Server { status, map, rises_at_heat: 2, is_outdated: false }
}

fn tiers() -> Vec<TierDoc> {
    let text = |name: &str| {
        serde_json::json!({
            "name": name, "device": format!("/dev/{name}"), "size_bytes": 100u64 << 30, "used_bytes": 50u64 << 30,
            "read_share": 0.5, "write_share": 0.5, "read_bytes": 0, "written_bytes": 0, "device_written_bytes": 0,
            "flushes": 0, "direct": true
        })
    };
    ["fast", "slow"].map(|name| serde_json::from_value(text(name)).expect("a tier")).into()
}

/// What is planted before the machine is looked at, or into what was seen.
enum Plant {
    Machine(fn(&Machine)),
    Facts(fn(&mut Facts)),
    Status(fn(&mut StatusDoc)),
}
use Plant::{Machine as Below, Status};

fn attached() -> AttachedDoc {
    AttachedDoc {
        path: "/dev/bimetal/films".into(),
        device: "/dev/ublkb0".into(),
        kind: Kind::Ublk,
        read_only: false,
        wait_seconds: 300,
        served: false,
        notes: Vec::new(),
    }
}

const SICKNESSES: &[(&str, Plant)] = &[
    ("fast-turns", Below(|m| m.nvme("queue/rotational", "1"))),
    ("no-flush", Below(|m| m.sda("queue/write_cache", "write through"))),
    (
        "cache-off",
        Below(|m| {
            m.sda("queue/write_cache", "write through");
            m.sda("device/scsi_disk/0:0:0:0/cache_type", "write through");
        }),
    ),
    ("no-discard", Below(|m| m.nvme("queue/discard_max_bytes", "0"))),
    ("unaligned", Below(|m| m.sda("alignment_offset", "3584"))),
    ("shingled", Below(|m| m.sda("queue/zoned", "host-aware"))),
    ("worn", Below(|m| m.nvme("device/life_time", "0x02 0x09"))),
    (
        "worn",
        Below(|m| m.write("sys/devices/pci0/nvme/nvme0/health_descriptor/life_time_estimation_a", "0x0b")),
    ),
    ("read-only-device", Below(|m| m.sda("ro", "1"))),
    ("memory", Below(|m| m.write("proc/meminfo", "MemTotal: 20 kB\nMemAvailable: 10 kB\n"))),
    ("old-kernel", Below(|m| m.write("proc/sys/kernel/osrelease", "5.15.0-91-generic"))),
    ("not-at-boot", Below(|m| m.write("etc/fstab", "/dev/bimetal/films /films ext4 nofail 0 2\n"))),
    ("usb", Plant::Facts(|f| f.devices[1].as_mut().expect("a device").disks[0].by_usb = true)),
    ("stand-in", Plant::Facts(|f| f.stands_in = true)),
    ("same-disk", Plant::Facts(|f| f.devices[1] = f.devices[0].clone())),
    (
        "slower",
        Plant::Facts(|f| {
            let used = &mut f.later[1].as_mut().expect("a device").disks[0].used;
            (used.commands, used.bytes, used.busy_ms) =
                (used.commands + 12, used.bytes + 12 * 40_960, used.busy_ms + 990);
        }),
    ),
    (
        "not-served",
        Plant::Facts(|f| {
            f.state = State::Closed(Box::default());
            f.attached = Some(attached());
        }),
    ),
    ("not-served", Plant::Facts(|f| (f.enabled, f.state) = (true, State::Closed(Box::default())))),
    ("broken", Plant::Facts(|f| f.state = State::Broken("/dev/fast is corrupt at byte 4096".into()))),
    ("unfinished", Plant::Facts(|f| (f.unfinished, f.state) = (true, State::Unfound))),
    ("old-server", Plant::Facts(|f| with_server(f, |server| server.is_outdated = true))),
    ("never-moved", Plant::Facts(|f| with_server(f, |s| s.map.iter_mut().for_each(|c| c.hottest = 16)))),
    (
        "hot-on-slow",
        Plant::Facts(|f| {
            with_server(f, |server| {
                server.map.iter_mut().for_each(|cell| cell.hottest = 90);
                (server.status.promoted_chunks, server.status.last_promotion_unix_s) =
                    (7, Some(now() - 3600));
            })
        }),
    ),
    ("read-only", Status(|s| s.state = "read-only".into())),
    ("degraded", Status(|s| s.state = "degraded".into())),
    ("silent-device", Status(|s| s.tiers[1].silent_since_unix_s = Some(now() - 60))),
    (
        "away-device",
        Status(|s| {
            let away_since_unix_s = Some(now() - 5);
            s.tiers[1].remote = Some(RemoteDoc { away_since_unix_s, ..RemoteDoc::default() });
        }),
    ),
    ("zone-short", Status(|s| s.landing.short = true)),
    (
        "wear-budget",
        Status(|s| s.wear.budget = Some(WearBudgetDoc { bytes_per_day: 1 << 30, left_bytes: 0 })),
    ),
    ("moves-do-not-repay", Status(|s| (s.moves.judged_chunks, s.moves.repaid_chunks) = (5000, 400))),
    ("same-speed", Status(|s| s.moves.saved_us_per_read = Some(3.0))),
    ("reads-again", Status(|s| s.reads_again = 12)),
    ("device-errors", Status(|s| s.tiers[1].load.errors = 2)),
    ("page-cache", Status(|s| s.tiers[0].direct = false)),
    (
        "lost-data",
        Status(|s| {
            s.scrub = serde_json::from_value(serde_json::json!({
            "state": "whole", "paused_because": null, "done_bytes": 1, "of_bytes": 1, "begun_unix_s": 1, "whole_unix_s": 2,
            "wrong_blocks": 1, "repaired_blocks": 0, "lost": [{ "offset": 0, "length_bytes": 4096 }], "unlisted_bytes": 0,
            "bytes_per_s": null, "left_s": null
        })).expect("a scrub");
        }),
    ),
];

fn with_server(facts: &mut Facts, change: impl FnOnce(&mut Server)) {
    if let State::Served(server) = &mut facts.state {
        change(server);
    }
}

#[test]
fn each_planted_sickness_is_named_and_nothing_else() {
    let mut kinds = std::collections::BTreeSet::new();
    for (nth, (kind, plant)) in SICKNESSES.iter().enumerate() {
        let machine = Machine::new();
        if let Below(plant) = plant {
            plant(&machine);
        }
        let mut facts = machine.facts();
        match plant {
            Below(_) => {
                if *kind == "memory" {
                    with_server(&mut facts, |server| server.status.ram_bytes = 15 << 10);
                }
            }
            Plant::Facts(plant) => plant(&mut facts),
            Status(plant) => with_server(&mut facts, |server| plant(&mut server.status)),
        }
        let found = findings(&facts);
        let named: Vec<&str> = found.iter().map(|finding| finding.kind).collect();
        assert_eq!(named, [*kind], "the {nth}th: {found:?}");
        for finding in &found {
            assert!(!finding.what.ends_with('.') && !finding.cure.ends_with('.'), "{finding:?}");
        }
        kinds.insert(kind);
    }
    assert!(kinds.len() >= 25, "{kinds:?}");
}

#[test]
fn nothing_is_invented_on_machines_that_are_well() {
    let mut seen = 0;
    for (fast, slow) in
        [(NVME, SDA), (NVME_PART, SDA), (NVME, MD), (CRYPT, SDB), (CRYPT, MD), (NVME_PART, MD)]
    {
        let machine = Machine::new();
        for served in [true, false] {
            for enabled in [true, false] {
                let mut facts = machine.facts_of(fast, slow);
                facts.enabled = enabled && served;
                if !served {
                    let status = server().status;
                    (facts.state, facts.later) = (State::Closed(Box::new(status)), [None, None]);
                }
                let found = findings(&facts);
                assert!(found.is_empty(), "{fast:?} {slow:?}: {found:?}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 20);
}

#[test]
fn two_files_have_to_have_room_beside_each_other() {
    let machine = Machine::new();
    let system = FileSystem {
        kind: "ext4".into(),
        place: "/srv".into(),
        source: "/dev/sda1".into(),
        options: vec!["rw".into()],
    };
    let found = |available_bytes| {
        let mut facts = machine.facts();
        for (tier, size_bytes) in [(0, 10 << 30), (1, 100 << 30)] {
            let (allocated_bytes, system) = (0, Some(system.clone()));
            let file = InFile { size_bytes, allocated_bytes, available_bytes, read_only: false, system };
            facts.devices[tier].as_mut().expect("a device").file = Some(file);
        }
        findings(&facts).iter().map(|finding| finding.kind).collect::<Vec<_>>()
    };
    assert!(found(111 << 30).is_empty());
    assert_eq!(found(105 << 30), ["little-room"]);
    assert_eq!(found(50 << 30), ["little-room"]);
    assert_eq!(found(1 << 30), ["little-room"; 2]);
}

#[test]
fn a_little_that_is_hot_is_not_told() {
    let mut facts = Machine::new().facts();
    with_server(&mut facts, |server| server.map[3].hottest = 90);
    assert!(findings(&facts).is_empty());
}

#[test]
fn disks_are_found_below_what_stands_on_them() {
    let machine = Machine::new();
    let names = |at| {
        let disks = machine.device("/dev/x", at).expect("a device").disks;
        let mut names: Vec<String> = disks.into_iter().map(|disk| disk.name).collect();
        names.sort();
        names
    };
    assert_eq!(names(NVME_PART), ["nvme0n1"]);
    assert_eq!(names(MD), ["sda", "sdb"]);
    assert_eq!(names(CRYPT), ["nvme0n1"]);
    assert!(names((7, 7)).is_empty());
    let part = machine.device("/dev/x", NVME_PART).expect("a device");
    assert_eq!(part.begins_at, Some(2048 * 512));
    machine.nvme("nvme0n1p1/start", "63");
    let facts = machine.facts_of(NVME_PART, SDA);
    assert_eq!(findings(&facts).iter().map(|finding| finding.kind).collect::<Vec<_>>(), ["unaligned"]);
}

#[test]
fn a_disk_below_usb_is_known_by_its_place() {
    let machine = Machine::new();
    machine.disk((8, 32), "pci0/usb2/2-1/host4/block/sdc", &[("queue/rotational", "1")]);
    let facts = machine.facts_of(NVME, (8, 32));
    assert_eq!(findings(&facts).iter().map(|finding| finding.kind).collect::<Vec<_>>(), ["usb"]);
}

#[test]
fn a_unit_that_something_wants_is_enabled() {
    let machine = Machine::new();
    let enabled = || super::facts::is_enabled(&machine.root(), "films");
    assert!(!enabled());
    machine.write("etc/systemd/system/multi-user.target.wants/bimetal@films2.service", "");
    assert!(!enabled());
    machine.write("etc/systemd/system/multi-user.target.wants/bimetal@films.service", "");
    assert!(enabled());
    machine.write("etc/fstab", "# /dev/bimetal/films / ext4\n/dev/bimetal/films /films ext4 noauto 0 0\n");
    assert!(!super::facts::is_in_fstab(&machine.root(), "films"));
}
