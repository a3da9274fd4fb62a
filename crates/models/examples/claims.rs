//! Prints what was measured on real drives beside what their models say: `cargo run --release -p bimetal-models
//! --example claims [DRIVE]`.

use bimetal_models::claims;

fn main() {
    let rows = std::env::args().nth(1).map_or_else(claims::all, |name| claims::of(&name));
    let rows = rows.expect("the drives are our own");
    println!("{:<20}   {:<68} {:>10} {:>10} {:>8}", "drive", "claim", "reference", "modelled", "error");
    let mut how = "";
    for row in rows {
        if std::mem::replace(&mut how, row.how) != row.how {
            println!("{:<20} {}", "", row.how);
        }
        let reference = row.reference.map_or(String::new(), |reference| format!("{reference:.1}"));
        let error = row.error_percent.map_or(String::new(), |error| format!("{error:+.1} %"));
        println!("{:<20}   {:<68} {reference:>10} {:>10.1} {error:>8}", row.name, row.claim, row.modelled);
    }
}
