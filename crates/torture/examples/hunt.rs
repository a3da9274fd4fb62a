use bimetal_engine::bugs::{Bug, plant};
use bimetal_torture::arena::ArenaMemory;
use bimetal_torture::{draw, run_plan};
fn main() {
    let names: Vec<String> = std::env::args().skip(3).collect();
    let first: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let limit: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    for bug in Bug::ALL {
        let name = format!("{bug:?}");
        if !names.contains(&name) {
            continue;
        }
        plant(Some(*bug));
        let memory = ArenaMemory::default();
        let mut cycles = 0;
        let mut seed = first;
        while cycles < limit {
            let plan = draw::plan(seed);
            if format!("{:?}", plan.geometry.marking) == "Off" {
                seed += 1;
                cycles += 8;
                continue;
            }
            let outcome = run_plan(plan, &memory, false);
            cycles += outcome.stats.cycles;
            if let Some(what) = outcome.violation {
                println!(
                    "{name} seed {seed} cycles {cycles}: {}",
                    &what.chars().take(300).collect::<String>()
                );
                if !what.starts_with("spins") {
                    break;
                }
            }
            seed += 1;
        }
        println!("{name} done at seed {seed}, {cycles}");
    }
    if names.contains(&"None".to_string()) {
        plant(None);
        let memory = ArenaMemory::default();
        let (mut cycles, mut seed) = (0, first);
        let mut counts = std::collections::BTreeMap::new();
        while cycles < limit {
            let plan = draw::plan(seed);
            if format!("{:?}", plan.geometry.marking) == "Off" {
                seed += 1;
                continue;
            }
            let outcome = run_plan(plan, &memory, false);
            cycles += outcome.stats.cycles;
            for (k, v) in &outcome.stats.faults {
                if k.contains("without-fast") {
                    *counts.entry(*k).or_insert(0) += v;
                }
            }
            if let Some(what) = outcome.violation {
                println!("none seed {seed}: {}", &what.chars().take(400).collect::<String>());
            }
            seed += 1;
        }
        println!("none: to seed {seed}, {cycles} cycles, {counts:?}");
    }
}
