//! Options whose values have a form of their own.

use super::error::Problem;
use super::number;
use super::options::{
    Data, Direction, Distribution, EngineKind, FileService, JobOptions, PerSide, Verify, Zone, ZoneMode,
};
use super::value::{Given, MOST_SPLITS, Result, percent};

/// Zones of a distribution: fio's own limit.
pub const MOST_ZONES: usize = 256;

pub(crate) fn engine(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    let name = given.text()?;
    options.engine = match name {
        "libaio" | "linuxaio" | "posixaio" | "windowsaio" | "solarisaio" | "guasi" | "io_uring" => {
            EngineKind::Ring
        }
        "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" | "mmap" | "splice" => EngineKind::Synchronous,
        "nbd" => EngineKind::Nbd,
        "null" => EngineKind::Null,
        "falloc" | "ftruncate" | "e4defrag" | "filecreate" | "filestat" | "filedelete" | "dircreate"
        | "dirstat" | "dirdelete" => {
            let problem = format!("the engine `{name}` works on files as such and does no I/O");
            return Err(Problem::new(problem, "`bimetal lab create-files` measures the making of files"));
        }
        "cpuio" => {
            return Err(Problem::new("the engine `cpuio` does no I/O", "run it with fio, beside the lab"));
        }
        _ => {
            let cure = "write io_uring, libaio, psync, nbd or null";
            return Err(Problem::new(format!("the engine `{name}` is not offered"), cure));
        }
    };
    options.engine_name = name.into();
    Ok(())
}

pub(crate) fn direction(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    let (word, modifier) = given.behind_colon()?;
    let (direction, random) = match word {
        "read" => (Direction::Read, false),
        "write" => (Direction::Write, false),
        "trim" => (Direction::Trim, false),
        "randread" => (Direction::Read, true),
        "randwrite" => (Direction::Write, true),
        "randtrim" => (Direction::Trim, true),
        "rw" | "readwrite" => (Direction::ReadWrite, false),
        "randrw" => (Direction::ReadWrite, true),
        "trimwrite" => (Direction::TrimWrite, false),
        "randtrimwrite" => (Direction::TrimWrite, true),
        _ => {
            let cure = "write read, write, rw, trim or trimwrite, with or without rand before it";
            return Err(Problem::new(format!("`{word}` is no kind of I/O"), cure));
        }
    };
    (options.direction, options.random) = (direction, random);
    (options.ios_per_offset, options.gap_bytes) = (1, 0);
    match modifier {
        None => {}
        Some(ios) if random => {
            let ios = ios.parse::<u32>().ok().filter(|ios| *ios >= 1);
            options.ios_per_offset = ios.ok_or_else(|| {
                Problem::new("what follows the colon is no number of I/Os", "write 1 or more")
            })?;
        }
        Some(bytes) => options.gap_bytes = number::signed_bytes(bytes, given.base)?,
    }
    Ok(())
}

pub(crate) fn read_percent(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    options.read_percent = given.percent()?;
    Ok(())
}

pub(crate) fn write_percent(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    options.read_percent = 100 - given.percent()?;
    Ok(())
}

fn at_least_1(value: u64) -> Result<u64> {
    let problem = || Problem::new("a block of no bytes", "write one byte or more");
    Some(value).filter(|value| *value > 0).ok_or_else(problem)
}

pub(crate) fn block(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    // fio tells the sides apart by these as well: `4k-8k` is 4k for reads and 8k for the others.
    let sides =
        given.value.filter(|text| !text.starts_with('(')).map(|text| text.replace(['-', ':', '/'], ","));
    let given = &Given { value: sides.as_deref().or(given.value), ..*given };
    given.per_side(&mut options.block_bytes, |text| at_least_1(number::bytes(text, given.base)?))
}

pub(crate) fn align(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    given.per_side(&mut options.align_bytes, |text| at_least_1(number::bytes(text, given.base)?).map(Some))
}

pub(crate) fn block_range(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    given.per_side(&mut options.block_range_bytes, |text| {
        let (low, high) = number::two(text, |text| number::bytes(text, given.base))?;
        at_least_1(low).map(|low| Some((low, high)))
    })
}

/// Pairs of something and a percentage, colons between them.
fn shares<T>(
    text: &str,
    most: usize,
    one: impl Fn(&str, Option<&str>) -> Result<(T, Option<u8>)>,
) -> Result<Vec<(T, u8)>> {
    let pairs = text.split(':').take(most + 1).map(|pair| match pair.split_once('/') {
        Some((first, second)) => one(first, Some(second).filter(|text| !text.is_empty())),
        None => one(pair, None),
    });
    let pairs = pairs.collect::<Result<Vec<_>>>()?;
    if pairs.len() > most {
        return Err(Problem::new(format!("more than {most} shares"), "write fewer"));
    }
    let given = pairs.iter().filter_map(|(_, percent)| *percent).map(u32::from).sum::<u32>();
    let open = pairs.iter().filter(|(_, percent)| percent.is_none()).count() as u32;
    if given > 100 && open > 0 {
        let problem = format!("the percentages add up to {given}, more than 100");
        return Err(Problem::new(problem, "write such that add up to 100, or leave some out"));
    }
    // What is left is spread over those without, as fio does; the last of them has the remainder.
    let each = (100 - given.min(100)).checked_div(open).unwrap_or(0);
    let mut left = 100 - given.min(100);
    let mut without = open;
    let share = |(value, percent): (T, Option<u8>)| {
        let percent = percent.unwrap_or_else(|| {
            without -= 1;
            let share = if without == 0 { left } else { each };
            left -= share;
            share as u8
        });
        (value, percent)
    };
    Ok(pairs.into_iter().map(share).collect())
}

/// Makes percentages add up as fio's draw does: it goes through them from the smallest on, and whatever is not met by
/// then is of the largest. So that has what lacks, and what there is too much.
fn even_out<T>(shares: &mut [(T, u8)]) {
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by_key(|&n| shares[n].1);
    let mut left = 100;
    for (nth, &n) in order.iter().enumerate() {
        let last = nth + 1 == order.len();
        shares[n].1 = if last { left } else { shares[n].1.min(left) };
        left -= shares[n].1;
    }
}

pub(crate) fn block_split(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    given.per_side(&mut options.block_split, |text| {
        let mut shares = shares(text, MOST_SPLITS, |size, share| {
            Ok((at_least_1(number::bytes(size, given.base)?)?, share.map(percent).transpose()?))
        })?;
        even_out(&mut shares);
        Ok(shares)
    })
}

pub(crate) fn random_percent(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    given.per_side(&mut options.random_percent, percent)
}

pub(crate) fn distribution(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    let (word, rest) = given.behind_colon()?;
    let numbers = || -> Result<(f64, Option<f64>)> {
        let rest = rest.ok_or_else(|| {
            Problem::new(format!("`{word}` lacks its parameter"), "write it behind a colon: zipf:1.2")
        })?;
        let (first, center) = rest.split_once(':').map_or((rest, None), |(a, b)| (a, Some(b)));
        let center = center.map(number::decimal).transpose()?;
        if center.is_some_and(|center| center > 1.0) {
            return Err(Problem::new("the centre lies outside", "write one from 0 to 1"));
        }
        Ok((number::decimal(first)?, center))
    };
    options.distribution = match word {
        "random" if rest.is_none() => Distribution::Uniform,
        "zipf" => match numbers()? {
            (theta, center) if theta > 0.0 && theta != 1.0 => Distribution::Zipf { theta, center },
            _ => return Err(Problem::new("zipf's theta may be neither 0 nor 1", "write 1.2 for example")),
        },
        "pareto" => match numbers()? {
            (power, center) if power > 0.0 && power < 1.0 => Distribution::Pareto { power, center },
            _ => return Err(Problem::new("pareto's power is not between 0 and 1", "write 0.2 for example")),
        },
        "normal" => match numbers()? {
            (deviation_percent, center) if deviation_percent > 0.0 && deviation_percent <= 100.0 => {
                Distribution::Normal { deviation_percent, center }
            }
            _ => return Err(Problem::new("the deviation is no percentage", "write 10 for example")),
        },
        "zoned" => Distribution::Zoned(zones(rest, percent, |_| Ok(()), rest_of_percents)?),
        "zoned_abs" => Distribution::ZonedAbsolute(zones(
            rest,
            |text| number::bytes(text, given.base),
            at_least_one_zone,
            rest_of_bytes,
        )?),
        _ => {
            let cure = "write random, zipf:, pareto:, normal:, zoned: or zoned_abs:";
            return Err(Problem::new(format!("the distribution `{word}` is not offered"), cure));
        }
    };
    Ok(())
}

/// Those without a size have equal parts of what the others leave.
fn rest_of_percents(sizes: Vec<Option<u8>>) -> Result<Vec<u8>> {
    let given = sizes.iter().flatten().map(|size| u32::from(*size)).sum::<u32>();
    let open = sizes.iter().filter(|size| size.is_none()).count() as u32;
    if given > 100 || given == 100 && open > 0 {
        let problem = format!("the zones add up to {given} % of the span, and others have no room left");
        return Err(Problem::new(problem, "write such that add up to 100"));
    }
    let each = (100 - given).checked_div(open).unwrap_or(0) as u8;
    Ok(sizes.into_iter().map(|size| size.unwrap_or(each)).collect())
}

/// The last one may have what the others leave.
fn rest_of_bytes(sizes: Vec<Option<u64>>) -> Result<Vec<u64>> {
    let last = sizes.len().saturating_sub(1);
    if sizes[..last].iter().any(Option::is_none) {
        let problem = "a zone before the last one has no size";
        return Err(Problem::new(problem, "write it behind a slash: 60/10g"));
    }
    Ok(sizes.into_iter().map(|size| size.unwrap_or(u64::MAX)).collect())
}

fn at_least_one_zone(bytes: &u64) -> Result<()> {
    if *bytes == 0 { Err(Problem::new("a zone of no bytes", "write one of some")) } else { Ok(()) }
}

/// `60/10:30/20:10/70`: percent of the accesses for a part; commas between reads, writes and discards. Zones without a
/// size share the rest.
fn zones<T: Clone + Default>(
    text: Option<&str>,
    part: impl Fn(&str) -> Result<T>,
    check: impl Fn(&T) -> Result<()>,
    rest: impl Fn(Vec<Option<T>>) -> Result<Vec<T>>,
) -> Result<PerSide<Vec<Zone<T>>>> {
    let mut sides = PerSide::default();
    let given = Given { name: "random_distribution", value: text, base: number::KbBase::default() };
    given.per_side(&mut sides, |text| {
        let shares = shares(text, MOST_ZONES, |share, size| {
            let size = size.map(|size| part(size.trim())).transpose()?;
            size.as_ref().map_or(Ok(()), &check)?;
            Ok((size, Some(percent(share)?)))
        })?;
        let accesses = shares.iter().map(|(_, percent)| u32::from(*percent)).sum::<u32>();
        if accesses != 100 {
            let problem = format!("the accesses of the zones add up to {accesses} %, not to 100");
            return Err(Problem::new(problem, "write such that do"));
        }
        let sizes = rest(shares.iter().map(|(size, _)| size.clone()).collect())?;
        let zones = sizes.into_iter().zip(shares);
        Ok(zones.map(|(part, (_, accesses_percent))| Zone { accesses_percent, part }).collect())
    })?;
    Ok(sides)
}

pub(crate) fn rate(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    given.per_side(&mut options.rate_bytes, |text| rate_of(text, given))
}

pub(crate) fn rate_iops(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    given.per_side(&mut options.rate_iops, |text| rate_of(text, given))
}

fn rate_of(text: &str, given: &Given<'_>) -> Result<Option<u64>> {
    number::bytes(text, given.base).map(|rate| Some(rate).filter(|rate| *rate > 0))
}

pub(crate) fn max_latency(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    given.per_side(&mut options.max_latency_ns, |text| {
        number::micros(text).map(|time| Some(time).filter(|time| *time > 0))
    })
}

pub(crate) fn zone_mode(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    options.zone_mode = match given.text()? {
        "none" => ZoneMode::None,
        "strided" => ZoneMode::Strided,
        "zbd" => {
            let problem = "the zones of devices that have some, and their write pointers, are not offered";
            return Err(Problem::new(problem, "write zonemode=strided, or run it with fio"));
        }
        other => {
            let problem = format!("`{other}` is no kind of zones");
            return Err(Problem::new(problem, "write none or strided"));
        }
    };
    Ok(())
}

/// Names with colons between them; a colon of a name has a backslash before it.
pub(crate) fn filenames(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    let (mut names, mut name, mut escaped) = (Vec::new(), String::new(), false);
    for letter in given.text()?.chars() {
        match letter {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            ':' if !escaped => names.push(std::mem::take(&mut name)),
            ':' => name.push(':'),
            _ if escaped => name.extend(['\\', letter]),
            _ => name.push(letter),
        }
        escaped = false;
    }
    names.push(name);
    if names.iter().any(|name| name.trim().is_empty()) {
        return Err(Problem::new("a name is empty", "write names with single colons between them"));
    }
    // Who names the same file again adds none.
    for name in names {
        if !options.filenames.contains(&name) {
            options.filenames.push(name);
        }
    }
    Ok(())
}

pub(crate) fn verify(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    options.verify = match given.text()? {
        "0" => None,
        "null" => Some(Verify::Null),
        // Which checksum fio would write is no matter: all bytes are compared.
        "crc7" | "crc16" | "crc32" | "crc32c" | "crc32c-intel" | "crc64" | "md5" | "xxhash" | "sha1"
        | "sha256" | "sha512" | "sha3-224" | "sha3-256" | "sha3-384" | "sha3-512" => Some(Verify::Checksum),
        "meta" => Some(Verify::Checksum),
        "pattern" | "pattern_hdr" => Some(Verify::Pattern),
        other => {
            let cure = "name a checksum, such as verify=crc32c";
            return Err(Problem::new(format!("verifying with `{other}` is not offered"), cure));
        }
    };
    Ok(())
}

pub(crate) fn buffer_pattern(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    options.data = Data::Pattern(given.pattern()?);
    Ok(())
}

pub(crate) fn zero_buffers(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    set_data(options, given, Data::Zeros)
}

pub(crate) fn refill_buffers(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    set_data(options, given, Data::Refilled)
}

fn set_data(options: &mut JobOptions, given: &Given<'_>, data: Data) -> Result<()> {
    if given.flag()? {
        options.data = data;
    } else if options.data == data {
        options.data = Data::Scrambled;
    }
    Ok(())
}

/// Turns off what costs a look at the clock; here it only leaves the figures out of the report.
pub(crate) fn gtod_reduce(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    if given.bool()? {
        let faces = &mut options.faces;
        (faces.slat, faces.clat, faces.lat) = (false, false, false);
        (faces.bandwidth, faces.clat_percentiles) = (false, false);
    }
    Ok(())
}

/// `roundrobin:4`. What follows a choice by chance says how; here it is in turns.
pub(crate) fn file_service(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    let (word, rest) = given.behind_colon()?;
    let ios = || match rest {
        None => Ok(1),
        Some(text) => {
            let ios = number::bytes(text, given.base)?;
            u32::try_from(ios.max(1))
                .map_err(|_| Problem::new(format!("{ios} is out of range"), "write less"))
        }
    };
    options.file_service = match word {
        "roundrobin" | "random" => FileService::Turns(ios()?),
        "sequential" => FileService::Sequential,
        _ => {
            let problem = format!("files are not chosen by `{word}`");
            return Err(Problem::new(problem, "write roundrobin, random or sequential"));
        }
    };
    Ok(())
}

/// Processors at most: the kernel's own set of them has no room for more.
const MOST_PROCESSORS: u64 = 1024;

/// `0,2-4`.
pub(crate) fn processors(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    let mut all = Vec::new();
    for part in given.text()?.split([',', ':']).map(str::trim).filter(|part| !part.is_empty()) {
        let (from, to) = number::range(part, |text| number::bytes(text, given.base))?;
        if to >= MOST_PROCESSORS {
            let problem = format!("{part} names a processor beyond the {MOST_PROCESSORS} that can be named");
            return Err(Problem::new(problem, "write numbers that the machine has, from 0 on"));
        }
        all.extend((from..=to).map(|number| number as u16));
    }
    options.processors = all;
    Ok(())
}

/// A bit for each.
pub(crate) fn processor_mask(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    let mask = number::bytes(given.text()?, given.base)?;
    options.processors = (0..64).filter(|bit| mask >> bit & 1 == 1).collect();
    Ok(())
}

/// After which errors a job goes on: here after all, or none.
pub(crate) fn goes_on(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    let words = ["none", "read", "write", "io", "verify", "all", "0", "1"].map(|word| (word, word));
    options.goes_on = !matches!(given.word(&words)?, "none" | "0" | "verify");
    Ok(())
}
