//! From a description to the parameters of the model.

use super::{Block, Body, FormatError, Value, blocks, seek};
use crate::disk::params::{
    ArmParams, BufferParams, CommandNs, DiskParams, OverheadParams, QueueParams, QueuePolicy, ReadAhead,
    Serpentine, Spares, WriteCacheParams, ZoneParams,
};

/// The files of a description: what each is called in messages, and its text.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// What the drive is to be called.
    pub name: &'a str,
    /// `NAME.model`: geometry and mechanics.
    pub model: (&'a str, &'a str),
    /// `NAME.diskspecs`: buffer, cache, overheads.
    pub specs: (&'a str, &'a str),
    /// `NAME.seek`, where the model's seek times are measured ones.
    pub seek: Option<(&'a str, &'a str)>,
}

/// Converts a description. Fields that are missing take the value that changes least; fields that are not known are
/// left alone, since every version of the format has its own.
///
/// Not taken over: remapped defects (they are few, and are read as if in place), the deviation of the rotation speed,
/// and which parts of a transfer hold the bus, since a drive has its bus for itself here.
///
/// # Errors
/// A file that cannot be read as this format, or values out of their bounds.
pub fn convert(sources: &Sources<'_>) -> Result<DiskParams, FormatError> {
    let model_blocks = blocks(sources.model.0, sources.model.1)?;
    let specs_blocks = blocks(sources.specs.0, sources.specs.1)?;
    let model = find(&model_blocks, sources.model.0, "dm_disk")?;
    let specs = find(&specs_blocks, sources.specs.0, "disksim_disk")?;
    let surfaces =
        model.whole("Number of data surfaces")?.ok_or_else(|| model.missing("Number of data surfaces"))?;
    let layout = model.inner("Layout Model")?;
    let mech = model.inner("Mechanical Model")?;
    let zones = zones(&layout, surfaces)?;
    let cylinders = zones.iter().map(|zone| zone.first_cylinder.saturating_add(zone.cylinders)).max();
    let rpm =
        mech.number("Rotation speed (in rpms)")?.ok_or_else(|| mech.missing("Rotation speed (in rpms)"))?;
    if !(100.0..=60_000.0).contains(&rpm) {
        return Err(mech.error(format!("Rotation speed (in rpms) is {rpm}, not 100 to 60000")));
    }
    let params = DiskParams {
        name: sources.name.to_owned(),
        sector_bytes: 512,
        size_bytes: 0,
        surfaces,
        rotation_period_ns: (60e9 / rpm).round() as u32,
        spindle_phase_ns: 0,
        serpentine: serpentine(&layout)?,
        arm: arm(&mech, &specs, sources, cylinders.unwrap_or(1))?,
        overheads: overheads(&specs)?,
        queue: queue(&specs)?,
        buffer: buffer(&specs)?,
        write_cache: write_cache(&specs)?,
        zones,
    };
    params.validate().map_err(|error| model.error(error.to_string()))?;
    Ok(params)
}

/// The file of the model that a `.diskspecs` names, where it names one: its name, without a folder.
///
/// # Errors
/// A file that cannot be read as this format.
pub fn model_file(specs: (&str, &str)) -> Result<Option<String>, FormatError> {
    let blocks = blocks(specs.0, specs.1)?;
    let specs = find(&blocks, specs.0, "disksim_disk")?;
    Ok(specs.word("Model").and_then(|word| word.strip_prefix("source")).and_then(plain_name))
}

/// The file of measured seek times that a `.model` names, where it names one: its name, without a folder.
///
/// # Errors
/// A file that cannot be read as this format.
pub fn seek_file(model: (&str, &str)) -> Result<Option<String>, FormatError> {
    let blocks = blocks(model.0, model.1)?;
    let model = find(&blocks, model.0, "dm_disk")?;
    let mech = model.inner("Mechanical Model")?;
    Ok(mech.word("Full seek curve").and_then(plain_name))
}

/// A name that leads to no other folder.
fn plain_name(word: &str) -> Option<String> {
    let name = word.trim();
    let plain = !name.is_empty() && !name.contains(['/', '\\', '\0']) && name != "." && name != "..";
    plain.then(|| name.to_owned())
}

/// Milliseconds in nanoseconds.
pub(super) fn nanos(milliseconds: f64) -> u32 {
    (milliseconds * 1e6).round() as u32
}

/// The first block of a type.
fn find<'a>(blocks: &'a [Block], file: &'a str, kind: &str) -> Result<Fields<'a>, FormatError> {
    let found = blocks.iter().find(|block| block.kind == kind);
    found.map(|block| Fields { file, block }).ok_or_else(|| FormatError {
        file: file.to_owned(),
        line: 0,
        what: format!("it has no block {kind} NAME {{ ... }}"),
    })
}

/// A block, and the file it comes from for messages.
pub(super) struct Fields<'a> {
    file: &'a str,
    pub(super) block: &'a Block,
}

impl Fields<'_> {
    pub(super) fn error(&self, what: String) -> FormatError {
        self.error_at(self.block.line, what)
    }

    fn error_at(&self, line: usize, what: String) -> FormatError {
        FormatError { file: self.file.to_owned(), line, what }
    }

    fn missing(&self, key: &str) -> FormatError {
        self.error(format!("{key} is missing"))
    }

    fn word(&self, key: &str) -> Option<&str> {
        match &self.block.get(key)?.body {
            Body::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn number_of(&self, key: &str, value: &Value) -> Result<f64, FormatError> {
        let Body::Word(word) = &value.body else {
            return Err(self.error_at(value.line, format!("{key} is not a number")));
        };
        let number = word.parse::<f64>().ok().filter(|number| number.abs() < 1e12);
        number.ok_or_else(|| {
            let shown: String = word.chars().take(40).collect();
            self.error_at(value.line, format!("{key} is {shown:?}, not a number"))
        })
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, FormatError> {
        self.block.get(key).map(|value| self.number_of(key, value)).transpose()
    }

    /// A whole number that is not negative.
    fn whole(&self, key: &str) -> Result<Option<u32>, FormatError> {
        let Some(value) = self.block.get(key) else { return Ok(None) };
        let number = self.number_of(key, value)?;
        if number < 0.0 || number.fract() != 0.0 || number > f64::from(u32::MAX) {
            let what = format!("{key} is {number}, not a whole number from 0 to {}", u32::MAX);
            return Err(self.error_at(value.line, what));
        }
        Ok(Some(number as u32))
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool, FormatError> {
        Ok(self.number(key)?.map_or(default, |number| number != 0.0))
    }

    /// Milliseconds, 0 where they are missing.
    fn time(&self, key: &str) -> Result<f64, FormatError> {
        let time = self.number(key)?.unwrap_or(0.0);
        if !(0.0..=1000.0).contains(&time) {
            return Err(self.error(format!("{key} is {time}, not 0 to 1000 milliseconds")));
        }
        Ok(time)
    }

    fn inner(&self, key: &str) -> Result<Fields<'_>, FormatError> {
        match self.block.get(key) {
            Some(Value { body: Body::Block(block), .. }) => Ok(Fields { file: self.file, block }),
            Some(value) => Err(self.error_at(value.line, format!("{key} is not a block"))),
            None => Err(self.missing(key)),
        }
    }
}

fn serpentine(layout: &Fields<'_>) -> Result<Serpentine, FormatError> {
    match layout.whole("LBN-to-PBN mapping scheme")?.unwrap_or(0) {
        0 => Ok(Serpentine::None),
        1 => Ok(Serpentine::ByZone),
        2 => Ok(Serpentine::ByCylinder),
        other => Err(layout.error(format!("LBN-to-PBN mapping scheme {other} is not 0, 1 or 2"))),
    }
}

fn arm(
    mech: &Fields<'_>,
    specs: &Fields<'_>,
    sources: &Sources<'_>,
    cylinders: u32,
) -> Result<ArmParams, FormatError> {
    let kind = mech.word("Seek type").unwrap_or("extracted");
    let seek_ns = if kind == "extracted" {
        let Some((file, text)) = sources.seek else {
            return Err(mech.error("Seek type is extracted, but there is no seek file".to_owned()));
        };
        seek::measured(file, text)?
    } else {
        seek::by_formula(mech, kind, cylinders)?
    };
    Ok(ArmParams {
        seek_ns,
        head_switch_ns: nanos(mech.time("Head switch time")?),
        write_settle_ns: settle(mech)?,
        least_read_seek_ns: 0,
        least_write_seek_ns: nanos(specs.time("Minimum seek delay")?),
    })
}

/// By how much a write settles longer than a read; less than 0 where the seek times hold a read's longer settling.
fn settle(mech: &Fields<'_>) -> Result<i32, FormatError> {
    let key = "Add. write settling delay";
    let time = mech.number(key)?.unwrap_or(0.0);
    if !(-1000.0..=1000.0).contains(&time) {
        return Err(mech.error(format!("{key} is {time}, not -1000 to 1000 milliseconds")));
    }
    Ok((time * 1e6).round() as i32)
}

fn zones(layout: &Fields<'_>, surfaces: u32) -> Result<Vec<ZoneParams>, FormatError> {
    if layout.block.kind != "dm_layout_g1" {
        return Err(layout.error(format!("layout {:?} is not dm_layout_g1", layout.block.kind)));
    }
    let scheme = layout.whole("Sparing scheme used")?.unwrap_or(0);
    if scheme > 10 {
        return Err(layout.error(format!("Sparing scheme used is {scheme}, not 0 to 10")));
    }
    let range = layout.whole("Rangesize for sparing")?.unwrap_or(1).max(1);
    let in_revolutions = layout.word("Skew units").is_some_and(is_revolutions);
    let value = layout.block.get("Zones").ok_or_else(|| layout.missing("Zones"))?;
    let Body::List(list) = &value.body else {
        return Err(layout.error_at(value.line, "Zones is not a list".to_owned()));
    };
    let mut zones = Vec::with_capacity(list.len());
    for value in list {
        let Body::Block(block) = &value.body else {
            return Err(layout.error_at(value.line, "a zone is not a block".to_owned()));
        };
        let fields = Fields { file: layout.file, block };
        zones.push(zone(&fields, surfaces, scheme, range, in_revolutions)?);
    }
    Ok(zones)
}

fn is_revolutions(units: &str) -> bool {
    units.starts_with("revolution")
}

fn zone(
    zone: &Fields<'_>,
    surfaces: u32,
    scheme: u32,
    range: u32,
    in_revolutions: bool,
) -> Result<ZoneParams, FormatError> {
    let need = |key: &str| zone.whole(key)?.ok_or_else(|| zone.missing(key));
    let first_cylinder = need("First cylinder number")?;
    let last = need("Last cylinder number")?;
    let sectors_per_track = need("Blocks per track")?;
    let Some(cylinders) = last.checked_sub(first_cylinder).map(|count| count.saturating_add(1)) else {
        return Err(
            zone.error(format!("the last cylinder, {last}, comes before the first, {first_cylinder}"))
        );
    };
    // A zone may say it otherwise than the whole.
    let in_revolutions = zone.word("Skew units").map_or(in_revolutions, is_revolutions);
    let unit = if in_revolutions { f64::from(sectors_per_track) } else { 1.0 };
    let skew = |key: &str| Ok::<f64, FormatError>(zone.number(key)?.unwrap_or(0.0).max(0.0) * unit);
    let mut spare_sectors = zone.whole("Number of spares")?.unwrap_or(0);
    let mut slips: Vec<(u64, u32)> = list(zone, "slips")?.into_iter().map(|sector| (sector, 1)).collect();
    list(zone, "defects")?;
    let spares = match scheme {
        0 | 7 => Spares::None,
        1 | 9 | 10 => Spares::Zone,
        3 => Spares::Track,
        _ => Spares::Cylinders,
    };
    if scheme == 1 {
        // Whole tracks are spared, and slipped.
        spare_sectors = spare_sectors.saturating_mul(sectors_per_track);
        slips = slips
            .iter()
            .map(|&(track, _)| (track.saturating_mul(u64::from(sectors_per_track)), sectors_per_track))
            .collect();
    }
    if spares == Spares::None {
        spare_sectors = 0;
    }
    slips.sort_unstable();
    slips.dedup();
    let surplus = u64::from(cylinders) * u64::from(surfaces) * u64::from(sectors_per_track);
    slips.retain(|&(first, _)| first < surplus);
    Ok(ZoneParams {
        first_cylinder,
        cylinders,
        sectors_per_track,
        track_skew_sectors: skew("Skew for track switch")?,
        cylinder_skew_sectors: skew("Skew for cylinder switch")?,
        first_sector_angle_sectors: skew("Offset of first block")?,
        gap_sectors: zone.whole("Empty space at zone front")?.unwrap_or(0),
        spares,
        spare_sectors,
        spare_group_cylinders: if scheme == 8 { range.min(cylinders) } else { 1 },
        spares_at_front: matches!(scheme, 5 | 6),
        slips_to_end: matches!(scheme, 4 | 6 | 7 | 10),
        slips_push_skew: matches!(scheme, 2..=6),
        slips,
    })
}

/// A list of sectors; empty where it is missing.
fn list(zone: &Fields<'_>, key: &str) -> Result<Vec<u64>, FormatError> {
    let Some(value) = zone.block.get(key) else { return Ok(Vec::new()) };
    let Body::List(values) = &value.body else {
        return Err(zone.error_at(value.line, format!("{key} is not a list")));
    };
    let mut sectors = Vec::with_capacity(values.len());
    for value in values {
        let number = zone.number_of(key, value)?;
        if number < 0.0 || number.fract() != 0.0 {
            return Err(zone.error_at(value.line, format!("{key}: {number} is not the number of a sector")));
        }
        sectors.push(number as u64);
    }
    Ok(sectors)
}

fn overheads(specs: &Fields<'_>) -> Result<OverheadParams, FormatError> {
    let scale = specs.number("Time scale for overheads")?.unwrap_or(1.0).clamp(0.0, 1000.0);
    let each = specs.time("Per-request overhead time")?;
    let time = |key: &str| Ok::<u32, FormatError>(nanos(specs.time(key)? * scale));
    let pair = |what: &str| {
        let after = |kind: &str| {
            let time = specs.time(&format!("{what} over. after {kind}"))? * scale;
            Ok::<u32, FormatError>(nanos(time + each))
        };
        Ok::<CommandNs, FormatError>(CommandNs { after_read: after("read")?, after_write: after("write")? })
    };
    let write = pair("Write miss")?;
    let extra = if specs.flag("Extra write disconnect", false)? {
        // The command, the first disconnection and the wait before the data, in place of the usual command.
        let steps = [
            "Extradisc command overhead",
            "Extradisc disconnect overhead",
            "Extradisc inter-disconnect delay",
        ];
        let mut sum = 0;
        for step in steps {
            sum += u64::from(time(step)?);
        }
        sum.saturating_sub(u64::from(write.after_write)) as u32
    } else {
        0
    };
    let by_request = specs.flag("Set watermark by reqsize", true)?;
    let watermark = specs.number("High (read) water mark")?.unwrap_or(0.0).clamp(0.0, 1.0);
    // A share of a segment is more than most requests.
    let watermark = if by_request || watermark == 0.0 { watermark } else { 1.0 };
    Ok(OverheadParams {
        bus_ns_per_sector: nanos(specs.time("Bulk sector transfer time")?),
        read_hit_ns: pair("Read hit")?,
        read_miss_ns: pair("Read miss")?,
        cached_write_ns: pair("Write hit")?,
        write_ns: write,
        read_completion_ns: time("Read completion overhead")?,
        write_completion_ns: time("Write completion overhead")?,
        transfer_preparation_ns: time("Data preparation overhead")?,
        reconnection_ns: time("First reselect overhead")?,
        scattered_write_ns: extra,
        read_watermark_permille: (watermark * 1000.0).round() as u32,
    })
}

fn queue(specs: &Fields<'_>) -> Result<QueueParams, FormatError> {
    let policy = match specs.block.get("Scheduler") {
        Some(Value { body: Body::Block(block), .. }) => {
            let scheduler = Fields { file: specs.file, block };
            match scheduler.whole("Scheduling policy")?.unwrap_or(1) {
                0 | 1 => QueuePolicy::Fifo,
                2 | 3 | 5 | 6 => QueuePolicy::Elevator,
                _ => QueuePolicy::Sptf,
            }
        }
        _ => QueuePolicy::Fifo,
    };
    let depth = specs.whole("Max queue length")?.unwrap_or(1).clamp(1, 256);
    Ok(QueueParams { depth, policy, window: depth, margin_ns: 0, oldest_first_after_ns: 0 })
}

fn buffer(specs: &Fields<'_>) -> Result<BufferParams, FormatError> {
    let caches = specs.flag("Enable caching in buffer", true)?;
    let own_write_segment = specs.flag("Use separate write segment", false)?;
    let segments = specs.whole("Number of buffer segments")?.unwrap_or(1).min(256);
    let segment_sectors = specs.whole("Segment size (in blks)")?.unwrap_or(1).max(1);
    let read_ahead = match specs.whole("Buffer continuous read")?.unwrap_or(0) {
        0 => ReadAhead::None,
        1 => ReadAhead::Track,
        2 => ReadAhead::Cylinder,
        3 => ReadAhead::Segment,
        4 => ReadAhead::NextTrack,
        other => return Err(specs.error(format!("Buffer continuous read is {other}, not 0 to 4"))),
    };
    Ok(BufferParams {
        segments: if caches { segments.saturating_sub(u32::from(own_write_segment)) } else { 0 },
        segment_sectors,
        read_ahead,
        // None given, as a number or at all: as far as the segment goes.
        read_ahead_sectors: specs
            .whole("Maximum read-ahead (blks)")?
            .filter(|&most| most > 0)
            .unwrap_or(segment_sectors),
        read_ahead_in_order_only: false,
        read_ahead_over_requested: specs.flag("Read-ahead over requested", false)?,
        drop_transferred: specs.number("Read-ahead over requested")? == Some(-1.0),
        read_ahead_after_hit: specs.flag("Read-ahead on idle hit", false)?,
        join_read_ahead: specs.flag("Allow almost read hits", false)?,
        stop_within_sector: specs.flag("Stop prefetch in sector", false)?,
        keep_passing_sectors: specs.flag("Read any free blocks", false)?,
        zero_latency_reads: specs.flag("Immediate buffer read", false)?,
        zero_latency_writes: specs.flag("Immediate buffer write", false)?,
        drop_read_at_write: false,
        keep_written: caches && !own_write_segment && specs.flag("Allow read hits on write data", false)?,
    })
}

fn write_cache(specs: &Fields<'_>) -> Result<WriteCacheParams, FormatError> {
    let segments = specs.whole("Maximum number of write segments")?.unwrap_or(1).clamp(1, 512);
    let entries = match specs.whole("Fast write level")?.unwrap_or(0) {
        0 => 0,
        1 => 1,
        _ => segments,
    };
    let entry_sectors = specs.whole("Segment size (in blks)")?.unwrap_or(1).max(1);
    Ok(WriteCacheParams { entries, entry_sectors, delay_ns: 0 })
}
