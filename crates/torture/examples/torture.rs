//! The torture without the command line: `torture [SEEDS [FIRST_SEED [exports | losses | images | replacements] [trace | whole]]]`.
//! With `exports`, only those of the seeds are run whose slow device is an export; with `losses`, one of two disks is lost before every
//! second opening; with `images`, the volume has an image on its slow disk; with `replacements`, other disks take the place of its own. With `trace`, the first seed is shrunk if it fails, and
//! each step of what is left is told; with `whole`, each step of all.

use bimetal_torture::arena::ArenaMemory;
use bimetal_torture::draw::Kind;
use bimetal_torture::{Options, main_loop, run_plan, shrink};

fn main() {
    let mut args = std::env::args().skip(1);
    let seeds = args.next().and_then(|a| a.parse().ok());
    let seed = args.next().and_then(|a| a.parse().ok());
    let words: Vec<String> = args.collect();
    let kind = words.iter().find_map(|word| Kind::named(word)).unwrap_or_default();
    if let Some(word) = words.iter().find(|word| *word == "trace" || *word == "whole") {
        let Some(plan) = kind.plan(seed.unwrap_or(0)) else { return println!("the seed has none") };
        let memory = ArenaMemory::default();
        let outcome = run_plan(plan, &memory, false);
        let is_shrunk = outcome.violation.is_some() && word == "trace";
        let plan = if is_shrunk { shrink(&outcome, &memory).0 } else { outcome.plan };
        let again = run_plan(plan, &memory, true);
        println!("{}\n{:?}", again.plan, again.violation);
        return;
    }
    let report = main_loop(&Options { seeds, seed, kind, ..Options::default() }, &|line| eprintln!("{line}"));
    println!("{report:#?}");
}
