//! Traces of measured service times.

use crate::disksim::FormatError;

/// The longest trace file.
const MAX_FILE_BYTES: usize = 256 << 20;
/// The longest time from its beginning to its end: a hundred years, far from where counting it would overflow.
const MAX_NS: u64 = 100 * 365 * 86_400_000_000_000;
/// Requests of a trace at most.
const MAX_REQUESTS: usize = 4_000_000;

/// A request, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// A write, not a read.
    pub write: bool,
    /// First sector, of 512 bytes.
    pub sector: u64,
    /// Sectors.
    pub sectors: u32,
    /// What it took on the drive.
    pub service_ns: u64,
    /// From its end to the next request.
    pub gap_ns: u64,
}

/// A trace.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// In the order in which they were made.
    pub requests: Vec<TraceRequest>,
}

impl Trace {
    /// Reads a trace: on each line `R` or `W`, whether the trace's authors held it for a cache hit (left alone), first
    /// sector, sectors, service time and gap to the next in microseconds.
    ///
    /// # Errors
    /// A line that is not that.
    pub fn parse(file: &str, text: &str) -> Result<Trace, FormatError> {
        let error = |line: usize, what: String| FormatError { file: file.to_owned(), line, what };
        if text.len() > MAX_FILE_BYTES {
            return Err(error(0, format!("it is longer than {} MiB", MAX_FILE_BYTES >> 20)));
        }
        let mut requests = Vec::new();
        let mut lasts: u64 = 0;
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let Some(request) = parse_line(line) else {
                let shown: String = line.chars().take(60).collect();
                let what = format!("{shown:?} is not R or W, a class, sector, sectors, service and gap");
                return Err(error(number + 1, what));
            };
            if requests.len() >= MAX_REQUESTS {
                return Err(error(number + 1, format!("more than {MAX_REQUESTS} requests")));
            }
            lasts = lasts.saturating_add(request.service_ns).saturating_add(request.gap_ns);
            if lasts > MAX_NS {
                return Err(error(number + 1, "up to here it lasts more than a hundred years".to_owned()));
            }
            requests.push(request);
        }
        if requests.is_empty() {
            return Err(error(0, "it holds no request".to_owned()));
        }
        Ok(Trace { requests })
    }

    /// Moves requests that lie beyond a drive of this many sectors to its end, and cuts those that are longer than
    /// it; returns how many. Descriptions do not always hold as many sectors as the drive does.
    pub fn keep_within(&mut self, size_sectors: u64) -> usize {
        let mut moved = 0;
        for request in &mut self.requests {
            if request.sector + u64::from(request.sectors) > size_sectors {
                moved += 1;
                request.sectors = u64::from(request.sectors).min(size_sectors) as u32;
                request.sector = size_sectors - u64::from(request.sectors);
            }
        }
        moved
    }
}

fn parse_line(line: &str) -> Option<TraceRequest> {
    let mut words = line.split_whitespace();
    let write = match words.next()? {
        "R" | "r" => false,
        "W" | "w" => true,
        _ => return None,
    };
    words.next()?;
    let sector = words.next()?.parse::<u64>().ok().filter(|&sector| sector < 1 << 48)?;
    let sectors = words.next()?.parse::<u32>().ok().filter(|sectors| (1..=1 << 20).contains(sectors))?;
    let mut micros = || {
        let number = words.next()?.parse::<f64>().ok()?;
        (0.0..=1e10).contains(&number).then(|| (number * 1000.0).round() as u64)
    };
    let (service_ns, gap_ns) = (micros()?, micros()?);
    words.next().is_none().then_some(TraceRequest { write, sector, sectors, service_ns, gap_ns })
}
