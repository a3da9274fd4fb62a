//! Samples of every format, damaged in many ways, the same ways every time: nothing panics, nothing runs forever, and
//! whatever is given out holds what a record promises.

mod common;

use bimetal_trace::depend::Dependencies;
use bimetal_trace::{Op, Stat, Trace};
use bimetal_units::rng::Rng;
use common::*;

/// Damages of each sample.
const ROUNDS: u64 = 500;
/// What is read of one: a few damaged bytes may make a decompressor give out gigabytes.
const MAX_ITEMS: usize = 100_000;

fn damage(contents: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..rng.range(1, 6) {
        let length = contents.len() as u64;
        let at = rng.below(length.max(1)) as usize;
        let digits = b"0123456789.,;-+ \n\0RWQDCA\xff";
        match rng.below(8) {
            _ if length == 0 => contents.push(rng.next_u64() as u8),
            0 => contents[at] = rng.next_u64() as u8,
            1 => contents[at] ^= 1 << rng.below(8),
            2 => contents[at] = digits[rng.below(digits.len() as u64) as usize],
            3 => contents.truncate(at),
            4 => {
                contents.remove(at);
            }
            5 => contents.insert(at, digits[rng.below(digits.len() as u64) as usize]),
            6 => {
                let end = (at + rng.range(1, 64) as usize).min(contents.len());
                let part = contents[at..end].to_vec();
                let to = rng.below(length) as usize;
                contents.splice(to..to, part);
            }
            _ => {
                let end = (at + 8).min(contents.len());
                contents[at..end].fill(0xff * (rng.below(2) as u8));
            }
        }
    }
}

fn read(files: Vec<Vec<u8>>) -> usize {
    let files = files.iter().map(|contents| file("damaged", contents)).collect();
    let Ok(mut trace) = Trace::read(files) else { return 0 };
    let (mut stat, mut dependencies) = (Stat::default(), Dependencies::default());
    let mut items = 0;
    for found in trace.by_ref().take(MAX_ITEMS) {
        if let Ok(record) = &found {
            let end = record.offset.checked_add(record.bytes).expect("it fits");
            assert!(end <= i64::MAX as u64);
            assert_eq!(record.bytes == 0, record.op == Op::Flush);
            assert!(record.op == Op::Write || !record.marks.zeroes);
            let number = dependencies.tally().requests;
            assert!(dependencies.next(record).after.is_none_or(|after| after < number));
        }
        stat.add(&found);
        items += 1;
    }
    let summary = stat.summary(&trace);
    assert_eq!(summary.records + summary.malformed.count, items as u64);
    assert!(summary.malformed.first.len() <= 10);
    items
}

#[test]
fn damaged_samples_are_read_or_refused() {
    let mut items = 0;
    for (number, (_, contents, _)) in samples().into_iter().enumerate() {
        // Long samples would take their time and say no more.
        let contents = &contents[..contents.len().min(4000)];
        for round in 0..ROUNDS {
            let mut rng = Rng::new(round, number as u64);
            let mut damaged = contents.to_vec();
            damage(&mut damaged, &mut rng);
            items += read(vec![damaged.clone()]);
            if round % 4 == 0 {
                items += read(vec![contents.to_vec(), damaged, contents.to_vec()]);
            }
        }
    }
    assert!(items > 10_000, "{items}: nearly everything was refused");
}

#[test]
fn damaged_compressed_files_are_read_or_refused() {
    let contents = own(&mixture()[..500]);
    for (number, (_, packed)) in compressed(&contents).into_iter().enumerate() {
        for round in 0..ROUNDS {
            let mut damaged = packed.clone();
            damage(&mut damaged, &mut Rng::new(round, 1000 + number as u64));
            read(vec![damaged]);
        }
    }
}

#[test]
fn noise_is_read_or_refused() {
    for round in 0..300 {
        let mut rng = Rng::new(round, 2000);
        let length = rng.below(3000);
        let alphabet = b"0123456789 ,;.\nRW";
        let text = round % 2 == 0;
        let noise = (0..length).map(|_| match text {
            true => alphabet[rng.below(alphabet.len() as u64) as usize],
            false => rng.next_u64() as u8,
        });
        read(vec![noise.collect()]);
    }
}

/// Where a fuzzer may begin: a sample of every format. Written anew with
/// `cargo test -p bimetal-trace --test fuzz -- --ignored`.
#[test]
#[ignore = "writes the fuzz target's corpus"]
fn corpus() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/trace");
    let write = |name: &str, contents: &[u8]| {
        std::fs::write(dir.join(name), [&[0], contents].concat()).expect("write");
    };
    let short = own(&mixture()[..20]);
    for (format, contents, _) in samples() {
        let name = format.to_string().replace(' ', "-").replace('\'', "");
        let long = contents.len() > 2000;
        write(&name, if long { &contents[..600] } else { &contents });
    }
    write("bimetal", &short);
    for (how, packed) in compressed(&short) {
        write(how, &packed);
    }
}
