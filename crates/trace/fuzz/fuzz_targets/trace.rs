//! Traces of any format, compressed or not. The first byte says where to cut the rest into two files.
#![no_main]

use bimetal_trace::depend::Dependencies;
use bimetal_trace::{Op, Stat, Trace};
use libfuzzer_sys::fuzz_target;
use std::io::{Cursor, Read};

/// A few bytes may make a decompressor give out gigabytes.
const MAX_ITEMS: usize = 100_000;

fuzz_target!(|data: &[u8]| {
    let Some((&cut, contents)) = data.split_first() else { return };
    // Mostly one file: zero cuts off nothing.
    let (first, second) = contents.split_at(usize::from(cut).min(contents.len()));
    let files = [second, first].into_iter().filter(|part| !part.is_empty());
    let files = files.map(|part| ("f".to_owned(), Box::new(Cursor::new(part.to_vec())) as Box<dyn Read + Send>));
    let Ok(mut trace) = Trace::read(files.collect()) else { return };
    let (mut stat, mut dependencies) = (Stat::default(), Dependencies::default());
    for found in trace.by_ref().take(MAX_ITEMS) {
        if let Ok(record) = &found {
            assert!(record.offset.checked_add(record.bytes).is_some_and(|end| end <= i64::MAX as u64));
            assert_eq!(record.bytes == 0, record.op == Op::Flush);
            let number = dependencies.tally().requests;
            assert!(dependencies.next(record).after.is_none_or(|after| after < number));
        }
        stat.add(&found);
    }
    stat.summary(&trace);
});
