//! The torture without the command line: `torture [SEEDS [FIRST_SEED [trace | whole | exports | losses]]]`.
//! With `trace`, the first seed is shrunk if it fails, and each step of what is left is told; with `whole`, each step of all. With
//! `exports`, only those of the seeds are run whose slow device is an export; with `losses`, one of two disks is lost before every
//! second opening.

use bimetal_torture::arena::ArenaMemory;
use bimetal_torture::{Options, main_loop, run_plan, run_seed, shrink};

fn main() {
    let mut args = std::env::args().skip(1);
    let seeds = args.next().and_then(|a| a.parse().ok());
    let seed = args.next().and_then(|a| a.parse().ok());
    let mode = args.next();
    let exports_only = mode.as_deref() == Some("exports");
    let losses = mode.as_deref() == Some("losses");
    if let Some(mode) = mode.filter(|m| m == "trace" || m == "whole") {
        let memory = ArenaMemory::default();
        let outcome = run_seed(seed.unwrap_or(0), &memory);
        let plan = if outcome.violation.is_some() && mode == "trace" {
            shrink(&outcome, &memory).0
        } else {
            outcome.plan
        };
        let again = run_plan(plan, &memory, true);
        println!("{}\n{:?}", again.plan, again.violation);
        return;
    }
    let report = main_loop(&Options { seeds, seed, exports_only, losses, ..Options::default() }, &|line| {
        eprintln!("{line}")
    });
    println!("{report:#?}");
}
