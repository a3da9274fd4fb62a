//! The logs that jobs write: what they are called.

use super::file::JobSection;
use crate::load::{Log, LogFile, Logged};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The files of a run's logs, each once: jobs may share one.
#[derive(Default)]
pub(super) struct LogFiles(BTreeMap<PathBuf, LogFile>);

impl LogFiles {
    /// The logs of a copy of a job; `nth` is its number among all, from 1 on.
    pub(super) fn of(&mut self, section: &JobSection, nth: usize, target: &str) -> Vec<Log> {
        let (logs, faces) = (&section.options.logs, &section.options.faces);
        let kinds = [
            (&logs.bandwidth, "bw", Logged::Bandwidth, true),
            (&logs.latency, "lat", Logged::Response, faces.lat),
            (&logs.latency, "slat", Logged::Submit, faces.slat),
            (&logs.latency, "clat", Logged::Service, faces.clat),
            (&logs.iops, "iops", Logged::Ios, true),
        ];
        let mut all = Vec::new();
        // As in fio, a kind of times that is not measured has no log.
        for (name, kind, what, _) in kinds.into_iter().filter(|(.., is_measured)| *is_measured) {
            let Some(name) = name else { continue };
            let name = if name.is_empty() { section.name.replace('/', "_") } else { name.clone() };
            let path = match logs.shared {
                true => format!("{name}_{kind}.log"),
                false => format!("{name}_{kind}.{nth}.log"),
            };
            let path = PathBuf::from(path);
            let file = self.0.entry(path.clone()).or_insert_with(|| LogFile::new(path)).clone();
            let (window_ns, highest) = (logs.window_ns, logs.highest);
            let (offset, wall_clock) = (logs.offset, logs.wall_clock);
            let target = target.to_owned();
            all.push(Log { file, what, target, window_ns, highest, offset, wall_clock });
        }
        if let Some(name) = &logs.iolog {
            let path = PathBuf::from(name);
            let file = self.0.entry(path.clone()).or_insert_with(|| LogFile::new(path)).clone();
            let what = Logged::Trace;
            let target = target.to_owned();
            all.push(Log {
                file,
                what,
                target,
                window_ns: 0,
                highest: false,
                offset: true,
                wall_clock: false,
            });
        }
        all
    }
}
