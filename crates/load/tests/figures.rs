//! The models meet what was measured on the drives they stand for.

use bimetal_load::claims::{self, Claim};

fn modelled(rows: &[Claim], start: &str) -> f64 {
    rows.iter().find(|row| row.claim.starts_with(start)).unwrap_or_else(|| panic!("{start}")).modelled
}

/// All rows within so many percent.
fn hold(rows: &[Claim], percent: f64) {
    assert!(!rows.is_empty());
    for row in rows {
        let error = row.error_percent.unwrap_or(0.0);
        assert!(error.abs() <= percent, "{}: {}: {} ({error:+.1} %)", row.name, row.claim, row.modelled);
    }
}

#[test]
fn the_sata_ssd_fragments_and_recovers() {
    let rows = claims::of("ssd-128gb-2012").unwrap();
    hold(&rows, 10.0);
    let figure = |start| modelled(&rows, start);
    assert!(figure("D sequential write, after torture") < figure("D sequential write, fresh") / 2.0);
    assert!(
        figure("D sequential write, after a sequential pass")
            > figure("D sequential write, after torture") * 2.0
    );
    assert!(figure("D random write, after TRIM") > figure("D random write, end of torture") * 2.0);
}

#[test]
fn the_pcie_ssd_and_the_laptop() {
    hold(&claims::of("ssd-480gb-2012-pcie").unwrap(), 10.0);
    hold(&claims::of("laptop-2022").unwrap(), 10.0);
}

#[test]
fn the_flash_card_has_two_limits_and_a_knee() {
    let rows = claims::of("flash-card-2011").unwrap();
    hold(&rows, 10.0);
    let figure = |start| modelled(&rows, start);
    assert!(figure("E3 latency at the limit") < 10.0);
    assert!(figure("E3 latency at 16 in flight") > 2.0 * figure("E3 latency at the limit"));
    assert!(figure("E4 at full load") < 0.9 * figure("E4 8 KB random write, peak"));
}

#[test]
fn the_derived_disks() {
    for name in claims::MEASURED.into_iter().filter(|name| name.starts_with("disk-")) {
        hold(&claims::of(name).unwrap(), 3.0);
    }
}

#[test]
fn a_drive_that_nobody_measured_has_no_rows() {
    assert_eq!(claims::of("nvme-present").unwrap(), []);
}
