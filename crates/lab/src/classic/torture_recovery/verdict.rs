//! Whether a drive comes back, how far and how soon.

use serde::Serialize;

/// A drive is back when it does so much of what it did when it was fresh ...
const BACK_SHARE: f64 = 0.9;
/// ... over so many parts in a row, wherever from there on.
const WINDOW: usize = 5;

/// A pass in order over all of the drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pass {
    /// Its name.
    pub name: String,
    /// All of it, MB/s.
    pub mb_per_s: f64,
    /// As a share of what the same parts did when the drive was fresh.
    pub share_of_fresh: f64,
    /// The same of the first parts alone.
    pub share_at_first: f64,
    /// The speed of each part, MB/s.
    pub parts_mb_per_s: Vec<f64>,
    /// From where on it is back; none if it is not by the end.
    pub back: Option<Recovered>,
}

/// When a drive is back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Recovered {
    /// What had been written in order by then.
    pub after_bytes: u64,
    /// How long that took.
    pub after_seconds: f64,
}

impl Pass {
    /// Of a pass whose parts of so many bytes took these times, and took the others when the drive was fresh; both have as
    /// many parts as were done.
    pub fn new(name: &str, part_bytes: u64, files_ns: &[u64], fresh_ns: &[u64]) -> Pass {
        let parts = files_ns.len().min(fresh_ns.len());
        let share = |from: usize, to: usize| {
            let sum = |ns: &[u64]| ns[from..to].iter().sum::<u64>().max(1) as f64;
            sum(fresh_ns) / sum(files_ns)
        };
        let back =
            (0..parts).rev().take_while(|&from| share(from, parts.min(from + WINDOW)) >= BACK_SHARE).last();
        let bytes = part_bytes * files_ns.len() as u64;
        let mb_per_s = |bytes: u64, ns: u64| bytes as f64 * 1e3 / ns.max(1) as f64;
        Pass {
            name: name.to_owned(),
            mb_per_s: mb_per_s(bytes, files_ns.iter().sum()),
            share_of_fresh: share(0, parts),
            share_at_first: share(0, parts.min(WINDOW)),
            parts_mb_per_s: files_ns.iter().map(|&ns| mb_per_s(part_bytes, ns)).collect(),
            back: back.map(|part| Recovered {
                after_bytes: part as u64 * part_bytes,
                after_seconds: files_ns[..part].iter().sum::<u64>() as f64 / 1e9,
            }),
        }
    }
}

/// What a torture and the passes after it say.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Random writes fell to this share of what they did at first.
    pub torture_share: f64,
    /// Right after the torture, writes in order did this share of what they did when the drive was fresh.
    pub share_after_torture: f64,
    /// The torture slowed writes in order at all.
    pub slowed: bool,
    /// When writes in order alone had brought it back: from the end of the torture on; none if they did not.
    pub by_writing: Option<Recovered>,
    /// When TRIM had; none if it did not, or the target takes none.
    pub by_trim: Option<Recovered>,
    /// All that in sentences.
    pub sentences: Vec<String>,
}

impl Verdict {
    /// Of the speeds of random writes at the begin and at the end, the passes before TRIM, and the one after it.
    pub fn new(
        torture: [f64; 2],
        before_trim: &[Pass],
        part_bytes: u64,
        after_trim: Option<&Pass>,
    ) -> Verdict {
        let Some(first) = before_trim.first() else { return Verdict::default() };
        let slowed = first.share_at_first < BACK_SHARE;
        let by_writing = in_a_row(before_trim, part_bytes);
        let by_trim = after_trim.and_then(|pass| pass.back);
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let mut sentences = vec![format!(
            "random writes fell from {:.1} to {:.1} MB/s, {} of it",
            torture[0],
            torture[1],
            percent(torture[1] / torture[0].max(1e-9))
        )];
        let at_first = percent(first.share_at_first);
        sentences.push(match slowed {
            true => {
                format!("right after them, writes in order had {at_first} of the speed of the fresh target")
            }
            false => format!(
                "they did not slow writes in order: right after them, these had {at_first} of the fresh speed"
            ),
        });
        if slowed {
            sentences.push(by_writing_sentence(by_writing, before_trim));
        }
        sentences.push(match (after_trim, by_trim) {
            (None, _) => "it was not given back: what TRIM would do is not known".to_owned(),
            (Some(pass), Some(back)) => {
                format!(
                    "TRIM brought it back {}: {} of the fresh speed",
                    when(back),
                    percent(pass.share_of_fresh)
                )
            }
            (Some(pass), None) => {
                format!("TRIM did not bring it back: {} of the fresh speed", percent(pass.share_of_fresh))
            }
        });
        Verdict {
            torture_share: torture[1] / torture[0].max(1e-9),
            share_after_torture: first.share_at_first,
            slowed,
            by_writing,
            by_trim,
            sentences,
        }
    }
}

/// When passes, one after the other, had brought the drive back for good.
fn in_a_row(passes: &[Pass], part_bytes: u64) -> Option<Recovered> {
    let at_end = passes.last()?.back?;
    // As long as a pass is back from its first part on, the one before it may have been already.
    let whole =
        passes.iter().rev().take_while(|pass| pass.back.is_some_and(|back| back.after_bytes == 0)).count();
    let (before, found) = match passes.len().checked_sub(whole + 1) {
        None => return passes.first()?.back,
        Some(turned) => (&passes[..turned], passes[turned].back),
    };
    let (before, found) = match found {
        Some(found) => (before, found),
        // It was not back by the end of that pass: it was when the next one began.
        None if whole > 0 => (&passes[..passes.len() - whole], Recovered::default()),
        None => (before, at_end),
    };
    let bytes = |pass: &Pass| pass.parts_mb_per_s.len() as u64 * part_bytes;
    let seconds = |pass: &Pass| bytes(pass) as f64 / 1e6 / pass.mb_per_s.max(1e-9);
    Some(Recovered {
        after_bytes: before.iter().map(bytes).sum::<u64>() + found.after_bytes,
        after_seconds: before.iter().map(seconds).sum::<f64>() + found.after_seconds,
    })
}

fn when(back: Recovered) -> String {
    match back.after_bytes {
        0 => "at once".to_owned(),
        bytes => format!("after {:.2} GB in order, {:.0} s", bytes as f64 / 1e9, back.after_seconds),
    }
}

fn by_writing_sentence(back: Option<Recovered>, passes: &[Pass]) -> String {
    let last = passes.last().map_or(0.0, |pass| pass.share_of_fresh * 100.0);
    match back {
        Some(back) => format!(
            "writing in order brought it back {}; the last of {} passes had {last:.0} % of the fresh speed",
            when(back),
            passes.len()
        ),
        None => format!(
            "{} passes in order did not bring it back: the last had {last:.0} % of the fresh speed",
            passes.len()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: u64 = 1_000_000;
    const MS: u64 = 1_000_000;

    fn pass(ms: impl Iterator<Item = u64>) -> Pass {
        let ns: Vec<u64> = ms.map(|ms| ms * MS).collect();
        Pass::new("a pass", PART, &ns, &vec![10 * MS; ns.len()])
    }

    #[test]
    fn a_drive_is_back_where_it_stays_fast() {
        let all = pass((0..100).map(|_| 10));
        assert_eq!((all.back, all.share_of_fresh), (Some(Recovered::default()), 1.0));
        // Slow, fast for a moment, slow again, then fast to the end; one slow part among five does not count.
        let turned = pass((0..100).map(|n| match n {
            0..20 | 30..40 => 50,
            70 => 12,
            _ => 10,
        }));
        let back = turned.back.expect("it comes back");
        assert_eq!(
            (back.after_bytes, back.after_seconds),
            (40 * PART, (20 * 50 + 10 * 10 + 10 * 50) as f64 / 1e3)
        );
        assert!((turned.share_at_first - 0.2).abs() < 1e-9);
        assert_eq!(pass((0..100).map(|n| if n < 99 { 10 } else { 50 })).back, None);
        assert_eq!(pass(std::iter::empty()).back, None);
    }

    #[test]
    fn passes_in_a_row() {
        let (slow, fast) = (pass((0..100).map(|_| 50)), pass((0..100).map(|_| 10)));
        let half = pass((0..100).map(|n| if n < 50 { 50 } else { 10 }));
        let found = |passes: &[&Pass]| {
            let passes: Vec<Pass> = passes.iter().map(|&pass| pass.clone()).collect();
            in_a_row(&passes, PART).map(|back| back.after_bytes / PART)
        };
        assert_eq!(found(&[&slow, &slow]), None);
        assert_eq!(found(&[&slow, &half]), Some(150));
        assert_eq!(found(&[&half, &fast]), Some(50));
        assert_eq!(found(&[&slow, &fast]), Some(100));
        assert_eq!(found(&[&fast, &fast]), Some(0));
        assert_eq!(found(&[&half, &slow]), None);
    }

    #[test]
    fn the_sentences_say_which_it_was() {
        let (slow, fast) = (pass((0..100).map(|_| 50)), pass((0..100).map(|_| 10)));
        let verdict = Verdict::new([98.0, 34.3], &[slow.clone(), slow.clone()], PART, Some(&fast));
        assert!(verdict.slowed && verdict.by_writing.is_none() && verdict.by_trim.is_some());
        assert!(
            verdict.sentences[0].contains("35 %") && verdict.sentences[2].contains("did not bring it back")
        );
        assert!(verdict.sentences[3].contains("at once"), "{:?}", verdict.sentences);
        let disk = Verdict::new([0.5, 0.5], &[fast.clone(), fast], PART, None);
        assert!(!disk.slowed && disk.sentences.len() == 3 && disk.sentences[2].contains("not known"));
    }
}
