//! What a run costs the machine.

use bimetal_lab::record::Cpu;
use std::time::Instant;

/// What this process has needed of a processor.
pub(crate) struct Busy {
    began: Instant,
    before: [f64; 4],
    switches: u64,
}

impl Busy {
    pub(crate) fn new() -> Busy {
        Busy { began: Instant::now(), before: Busy::counted(), switches: switches() }
    }

    /// Clock ticks in the program and in the kernel, faults of pages without and with a disk, as `/proc/self/stat` counts
    /// them (proc(5): fields 14, 15, 10 and 12; ticks are hundredths of a second on Linux).
    fn counted() -> [f64; 4] {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The program's name, which may have anything in it, ends with the last parenthesis.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        [11, 12, 7, 9].map(|n| fields.get(n).and_then(|count| count.parse::<f64>().ok()).unwrap_or(0.0))
    }

    /// Since it was made, in real time.
    pub(crate) fn cpu(&self) -> Cpu {
        let seconds = self.began.elapsed().as_secs_f64().max(1e-9);
        let now = Busy::counted();
        let since = |n: usize| now[n] - self.before[n];
        Cpu {
            // Of a hundred ticks in a second, each is a percent.
            user_percent: since(0) / seconds,
            system_percent: since(1) / seconds,
            context_switches: switches().saturating_sub(self.switches),
            major_faults: since(3).max(0.0) as u64,
            minor_faults: since(2).max(0.0) as u64,
        }
    }
}

/// How often the threads that there are were taken off a processor, or left it to wait.
fn switches() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of_task = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
        counts.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum::<u64>()
    };
    tasks.map(of_task).sum()
}
