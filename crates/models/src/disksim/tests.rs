//! A description of a drive that never was, and what becomes of it when it is damaged.

use super::{Sources, convert};
use crate::disk::Disk;
use crate::disk::params::{DiskParams, QueuePolicy, ReadAhead, Serpentine, Spares};
use crate::spec::Spec;
use bimetal_units::rng::Rng;

pub(crate) const MODEL: &str = "
dm_disk TOY_model {   # a comment = { with all of it
   Number of data surfaces = 2,
   Number of cylinders = 40,
   Block count = 3000,
   Layout Model = dm_layout_g1 {
      LBN-to-PBN mapping scheme = 1,
      Sparing scheme used = 9,
      Rangesize for sparing = 1,
      Zones = [
         dm_layout_g1_zone {
            First cylinder number = 0,
            Last cylinder number = 19,
            Blocks per track = 50,
            Offset of first block = 0.000000,
            Empty space at zone front = 0,
            Skew for track switch = 5.000000,
            Skew for cylinder switch = 8.500000,
            Number of spares = 10,
            slips =
               [ 17, 118   ],
            defects = [ 30, 31 ]
         },
         dm_layout_g1_zone {
            First cylinder number = 20, Last cylinder number = 39, Blocks per track = 30,
            Number of spares = 10, slips = [], defects = []
         }
      ]
   },
   Mechanical Model = dm_mech_g1 {
      Access time type = trackSwitchPlusRotation,
      Seek type = extracted,
      Full seek curve = toy.seek,
      Add. write settling delay = 0.25,
      Head switch time = 0.5,
      Rotation speed (in rpms) = 6000,
      Percent error in rpms = 0.0
   }
} # end
";

pub(crate) const SPECS: &str = "
disksim_disk TOY {
   Model = source toy.model,
   Bulk sector transfer time = 0.1,
   Allow read hits on write data = 1,
   Max queue length = 4,
   Scheduler = disksim_ioqueue { Scheduling policy = 2, Priority scheduling = 0 },
   Number of buffer segments = 4,
   Maximum number of write segments = 2,
   Segment size (in blks) = 100,
   High (read) water mark = 0.5,
   Buffer continuous read = 4,
   Maximum read-ahead (blks) = 90,
   Fast write level = 2,
   Immediate buffer read = 1,
   Read hit over. after read = 0.2,
   Read miss over. after write = 0.3,
   Write hit over. after read = 0.4
}
";

pub(crate) const SEEK: &str = "Seek distances measured: 3\n1,\t0.5\n10, 1.5\n39,     3.25\n";

pub(crate) fn sources<'a>(model: &'a str, specs: &'a str, seek: &'a str) -> Sources<'a> {
    Sources {
        name: "toy",
        model: ("toy.model", model),
        specs: ("toy.diskspecs", specs),
        seek: Some(("toy.seek", seek)),
    }
}

fn toy() -> DiskParams {
    convert(&sources(MODEL, SPECS, SEEK)).expect("a drive")
}

#[test]
fn a_description_becomes_parameters() {
    let params = toy();
    assert_eq!((params.surfaces, params.rotation_period_ns), (2, 10_000_000));
    assert_eq!(params.serpentine, Serpentine::ByZone);
    assert_eq!(params.arm.seek_ns, [(1, 500_000), (10, 1_500_000), (39, 3_250_000)]);
    assert_eq!((params.arm.head_switch_ns, params.arm.write_settle_ns), (500_000, 250_000));
    let zone = &params.zones[0];
    assert_eq!((zone.cylinders, zone.sectors_per_track, zone.cylinder_skew_sectors), (20, 50, 8.5));
    assert_eq!(
        (zone.spares, zone.spare_sectors, &zone.slips[..]),
        (Spares::Zone, 10, &[(17, 1), (118, 1)][..])
    );
    assert_eq!(params.overheads.bus_ns_per_sector, 100_000);
    assert_eq!(params.overheads.read_hit_ns.after_read, 200_000);
    assert_eq!(params.overheads.read_miss_ns.after_write, 300_000);
    assert_eq!(params.overheads.read_watermark_permille, 500);
    assert_eq!((params.queue.depth, params.queue.policy), (4, QueuePolicy::Elevator));
    assert_eq!((params.buffer.segments, params.buffer.read_ahead), (4, ReadAhead::NextTrack));
    assert!(params.buffer.keep_written && params.buffer.zero_latency_reads);
    assert_eq!((params.write_cache.entries, params.write_cache.entry_sectors), (2, 100));
    let spec = Spec::HardDisk(params);
    assert_eq!(Spec::parse(&spec.to_toml().expect("TOML")), Ok(spec));
}

#[test]
fn what_is_missing_has_a_default_and_what_is_needed_is_asked_for() {
    let bare = "disksim_disk TOY { Model = source toy.model }";
    assert_eq!(convert(&sources(MODEL, bare, SEEK)).expect("a drive").write_cache.entries, 0);
    for (needed, words) in [
        ("Number of data surfaces = 2,", "toy.model:2: Number of data surfaces is missing"),
        ("Rotation speed (in rpms) = 6000,", "Rotation speed (in rpms) is missing"),
        ("Blocks per track = 50,", "toy.model:11: Blocks per track is missing"),
    ] {
        let error = convert(&sources(&MODEL.replace(needed, ""), SPECS, SEEK)).expect_err(needed);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_settling_below_zero_and_reading_ahead_without_a_bound_are_read() {
    let params = convert(&sources(&MODEL.replace("= 0.25", "= -0.483"), SPECS, SEEK)).expect("a drive");
    assert_eq!(params.arm.write_settle_ns, -483_000);
    let spec = Spec::HardDisk(params);
    assert_eq!(Spec::parse(&spec.to_toml().expect("TOML")), Ok(spec));
    for (bound, sectors) in [("= 90", 90), ("= 0", 100)] {
        let specs = SPECS.replace("read-ahead (blks) = 90", &format!("read-ahead (blks) {bound}"));
        assert_eq!(
            convert(&sources(MODEL, &specs, SEEK)).expect("a drive").buffer.read_ahead_sectors,
            sectors
        );
    }
}

#[test]
fn a_constant_seek_is_as_long_and_a_zone_may_have_units_of_its_own() {
    let model = MODEL.replace("Seek type = extracted", "Seek type = constant, Constant seek time = 2.5");
    let points = convert(&sources(&model, SPECS, SEEK)).expect("a drive").arm.seek_ns;
    assert!(points.iter().all(|&(_, time)| time == 2_500_000), "{points:?}");
    let model =
        MODEL.replace("Skew for track switch = 5.0", "Skew units = revolutions, Skew for track switch = 0.1");
    let zones = convert(&sources(&model, SPECS, SEEK)).expect("a drive").zones;
    assert_eq!((zones[0].track_skew_sectors, zones[1].track_skew_sectors), (5.0, 0.0));
}

#[test]
fn every_sparing_scheme_gives_a_disk() {
    for scheme in 0..=10 {
        let with = format!("Sparing scheme used = {scheme}");
        let model = MODEL.replace("Sparing scheme used = 9", &with).replace("spares = 10", "spares = 3");
        let model = model.replace("Rangesize for sparing = 1", "Rangesize for sparing = 4");
        let params = convert(&sources(&model, SPECS, SEEK)).expect("a drive");
        Disk::new(&params).expect("a disk");
    }
}

#[test]
fn every_kind_of_seek_curve_rises_from_its_first_to_its_last_time() {
    let kinds = [
        "linear, Single cylinder seek time = 1.0, Full strobe seek time = 5.0",
        "curve, Single cylinder seek time = 1.0, Average seek time = 3.5, Full strobe seek time = 5.0",
        "hpl, HPL seek equation values = [ 10, 0.7, 0.3, 1.65, 0.086, 1.0 ]",
        "hplplus10, HPL seek equation values = [ 10, 0.7, 0.3, 1.65, 0.086, -1.0 ], First ten seek times = [ 1.0, 1.1 ]",
    ];
    for kind in kinds {
        let model = MODEL.replace("Seek type = extracted", &format!("Seek type = {kind}"));
        let points = convert(&sources(&model, SPECS, SEEK)).expect(kind).arm.seek_ns;
        assert_eq!(points[0], (1, 1_000_000), "{kind}");
        let (distance, time) = *points.last().expect("points");
        assert!(distance == 39 && time.abs_diff(5_000_000) < 10_000, "{kind}: {distance} {time}");
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0), "{kind}");
    }
}

#[test]
fn bad_input_is_refused_with_file_and_line() {
    let cases = [
        ("Blocks per track = 50", "Blocks per track = many", "toy.model:14: Blocks per track is \"many\""),
        ("Blocks per track = 50", "Blocks per track = 1e300", "toy.model:14: "),
        ("Blocks per track = 50", "Blocks per track = 999999999", "toy.model:2: zone 0: sectors_per_track"),
        ("Last cylinder number = 19", "Last cylinder number = 4294967295", "zone 0: cylinders"),
        ("First cylinder number = 20", "First cylinder number = 99", "toy.model:24: the last cylinder"),
        ("Number of data surfaces = 2", "Number of data surfaces = -2", "toy.model:3: "),
        ("dm_layout_g1 {", "dm_layout_g4 {", "toy.model:6: layout \"dm_layout_g4\""),
        ("Sparing scheme used = 9", "Sparing scheme used = 11", "Sparing scheme used is 11"),
        ("= 6000", "= 0", "Rotation speed"),
        ("= extracted", "= guessed", "Seek type \"guessed\""),
        ("= 0.25", "= -1001", "Add. write settling delay is -1001"),
        ("dm_disk", "disk", "toy.model: it has no block dm_disk"),
    ];
    for (good, bad, words) in cases {
        assert!(MODEL.contains(good), "{good}");
        let error = convert(&sources(&MODEL.replace(good, bad), SPECS, SEEK)).expect_err(bad).to_string();
        assert!(error.contains(words) && error.lines().count() == 1, "{bad}: {error}");
    }
    let cut = &MODEL[..MODEL.len() / 2];
    let error = convert(&sources(cut, SPECS, SEEK)).expect_err("cut").to_string();
    assert!(error.contains("has no end"), "{error}");
    let deep = format!("dm_disk X {}", "{ a = b ".repeat(1000));
    assert!(convert(&sources(&deep, SPECS, SEEK)).is_err());
    let deep = format!("dm_disk X {{ a = {}", "[".repeat(100_000));
    assert!(convert(&sources(&deep, SPECS, SEEK)).is_err());
    for seek in ["", "1, x", "1, 2, 3", "5, 1.0\n5, 2.0", "1, -1", "1, inf", "99999999999, 1"] {
        let error = convert(&sources(MODEL, SPECS, seek)).expect_err(seek).to_string();
        assert!(error.starts_with("toy.seek:"), "{seek}: {error}");
    }
}

#[test]
fn damaged_descriptions_are_refused_or_give_a_disk() {
    let mut chance = Rng::new(5, 1);
    let mut made = 0;
    for round in 0..3000 {
        let mut files = [MODEL, SPECS, SEEK].map(|text| text.as_bytes().to_vec());
        let file = &mut files[round % 3];
        for _ in 0..1 + chance.below(3) {
            let at = chance.below(file.len() as u64) as usize;
            match chance.below(4) {
                0 => file.truncate(at.max(1)),
                1 => file[at] = chance.below(256) as u8,
                2 => file[at] = b"0123456789,={}[]#\n.-"[chance.below(20) as usize],
                _ => file.insert(at, b"0123456789"[chance.below(10) as usize]),
            }
        }
        let [model, specs, seek] = files.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if let Ok(params) = convert(&sources(&model, &specs, &seek)) {
            made += usize::from(Disk::new(&params).is_ok());
        }
    }
    assert!(made > 100, "{made}");
}
