//! What a run costs the machine.

use bimetal_lab::record::Cpu;
use std::time::Instant;

/// What this process has needed of a processor.
pub(crate) struct Busy {
    began: Instant,
    before: [f64; 2],
}

impl Busy {
    pub(crate) fn new() -> Busy {
        Busy { began: Instant::now(), before: Busy::seconds() }
    }

    /// In the program and in the kernel, by the clock ticks that `/proc/self/stat` counts (proc(5): fields 14 and 15,
    /// hundredths of a second on Linux).
    fn seconds() -> [f64; 2] {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The program's name, which may have anything in it, ends with the last parenthesis.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        [11, 12].map(|n| fields.get(n).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0) / 100.0)
    }

    /// Since it was made, in real time.
    pub(crate) fn cpu(&self) -> Cpu {
        let seconds = self.began.elapsed().as_secs_f64().max(1e-9);
        let now = Busy::seconds();
        let percent = |n: usize| (now[n] - self.before[n]) / seconds * 100.0;
        Cpu { user_percent: percent(0), system_percent: percent(1) }
    }
}
