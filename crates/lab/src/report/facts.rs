//! What a page says of the machine and the targets.

use super::page::MAX_DETAILS;
use super::units::{bytes, moment, prose, three};
use crate::record::{Cpu, Environment, Run};

pub(super) type Fact = fn(&Run) -> String;

/// What the environment's table says of a run; nothing where it is not known.
pub(super) const FACTS: [(&str, Fact); 11] = [
    ("Title", |run| prose(&run.title)),
    ("Began", |run| moment(run.began_unix_ms)),
    ("State", |run| if run.interrupted { "interrupted before its time".into() } else { String::new() }),
    ("Clock", |run| if run.virtual_time { "simulated".into() } else { "real".into() }),
    ("Seed", |run| run.seed.to_string()),
    ("Program", |run| prose(&run.environment.program)),
    ("Kernel", |run| prose(&run.environment.kernel)),
    ("Processor", |run| processor(&run.environment)),
    ("Memory", |run| {
        if run.environment.memory_bytes > 0 { bytes(run.environment.memory_bytes) } else { String::new() }
    }),
    ("Processor time", |run| run.cpu.map_or(String::new(), used)),
    ("Targets", |run| targets(&run.environment)),
];

/// What a run used of a processor.
fn used(cpu: Cpu) -> String {
    format!("{} % user, {} % system", three(cpu.user_percent), three(cpu.system_percent))
}

fn processor(environment: &Environment) -> String {
    match (prose(&environment.processor), environment.processors) {
        (model, 0) => model,
        (model, count) => format!("{count} × {model}"),
    }
}

fn targets(environment: &Environment) -> String {
    let target = |(called, facts): (&String, &crate::record::TargetFacts)| {
        let details = facts
            .details
            .iter()
            .take(MAX_DETAILS)
            .map(|(key, value)| format!(", {} {}", prose(key), prose(value)));
        // Of a directory that is only watched it is not known.
        let size = match facts.size_bytes {
            0 => String::new(),
            known => format!(", {}", bytes(known)),
        };
        format!("{}: {}{size}{}", prose(called), prose(&facts.kind), details.collect::<String>())
    };
    environment.targets.iter().take(MAX_DETAILS).map(target).collect::<Vec<_>>().join("; ")
}
