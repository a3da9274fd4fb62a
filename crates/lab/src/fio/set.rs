//! Options whose values have a form of their own.

use super::error::Problem;
use super::number;
use super::options::{Data, Direction, Distribution, EngineKind, JobOptions, PerSide, Verify, Zone};
use super::value::{Given, MOST_SPLITS, Result, percent};

/// Zones of a distribution: fio's own limit.
pub const MOST_ZONES: usize = 256;

pub(crate) fn engine(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    let name = given.text()?;
    options.engine = match name {
        "libaio" | "posixaio" | "windowsaio" | "solarisaio" | "io_uring" => EngineKind::Ring,
        "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" | "mmap" => EngineKind::Synchronous,
        "nbd" => EngineKind::Nbd,
        "null" => EngineKind::Null,
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
    let fits = if open == 0 { given == 100 } else { given + open <= 100 };
    if !fits {
        let problem = format!("the percentages add up to {given}, not to 100");
        return Err(Problem::new(problem, "write such that do, or leave some out"));
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

pub(crate) fn block_split(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    given.per_side(&mut options.block_split, |text| {
        shares(text, MOST_SPLITS, |size, share| {
            Ok((at_least_1(number::bytes(size, given.base)?)?, share.map(percent).transpose()?))
        })
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
        "zoned" => Distribution::Zoned(zones(rest, percent, |_| Ok(()))?),
        "zoned_abs" => Distribution::ZonedAbsolute(zones(
            rest,
            |text| number::bytes(text, given.base),
            at_least_one_zone,
        )?),
        _ => {
            let cure = "write random, zipf:, pareto:, normal:, zoned: or zoned_abs:";
            return Err(Problem::new(format!("the distribution `{word}` is not offered"), cure));
        }
    };
    if let Distribution::Zoned(zones) = &options.distribution {
        for zones in zones.sides() {
            let all = zones.iter().map(|zone| u32::from(zone.part)).sum::<u32>();
            if all != 100 {
                let problem = format!("the zones add up to {all} % of the span, not to 100");
                return Err(Problem::new(problem, "write such that do"));
            }
        }
    }
    Ok(())
}

fn at_least_one_zone(bytes: &u64) -> Result<()> {
    if *bytes == 0 { Err(Problem::new("a zone of no bytes", "write one of some")) } else { Ok(()) }
}

/// `60/10:30/20:10/70`: percent of the accesses for a part; commas between reads, writes and discards.
fn zones<T: Clone + Default>(
    text: Option<&str>,
    part: impl Fn(&str) -> Result<T>,
    check: impl Fn(&T) -> Result<()>,
) -> Result<PerSide<Vec<Zone<T>>>> {
    let mut sides = PerSide::default();
    let given = Given { name: "random_distribution", value: text, base: number::KbBase::default() };
    given.per_side(&mut sides, |text| {
        let shares = shares(text, MOST_ZONES, |share, size| {
            let size = size.ok_or_else(|| {
                Problem::new(format!("the zone `{share}` lacks its size"), "write it behind a slash: 60/10")
            })?;
            let size = part(size)?;
            check(&size)?;
            Ok((size, Some(percent(share)?)))
        })?;
        Ok(shares.into_iter().map(|(part, accesses_percent)| Zone { accesses_percent, part }).collect())
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
    options.filenames.extend(names);
    Ok(())
}

pub(crate) fn verify(options: &mut JobOptions, given: &mut Given<'_>) -> Result<()> {
    options.verify = match given.text()? {
        "0" => None,
        // Which checksum fio would write is no matter: all bytes are compared.
        "crc7" | "crc16" | "crc32" | "crc32c" | "crc32c-intel" | "crc64" | "md5" | "xxhash" | "sha1"
        | "sha256" | "sha512" | "sha3-224" | "sha3-256" | "sha3-384" | "sha3-512" => Some(Verify::Checksum),
        "pattern" => Some(Verify::Pattern),
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
        (faces.slat, faces.clat, faces.bandwidth, faces.clat_percentiles) = (false, false, false, false);
    }
    Ok(())
}
