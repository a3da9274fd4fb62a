//! `.lun` files: a target in each line.

use crate::target::TargetName;

/// A `.lun` file is no longer, bytes.
pub const MAX_LUN_FILE_BYTES: u64 = 1 << 20;
/// It names so many targets at most: more are no list that somebody wrote.
pub const MAX_LUNS: usize = 1024;

/// Why a `.lun` file is none: in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LunError {
    /// A line names nothing.
    #[error("{file}, line {line}: {why}")]
    Line {
        /// The file.
        file: String,
        /// The line; the first is 1.
        line: usize,
        /// What is wrong, and what helps.
        why: String,
    },
    /// It has no lines.
    #[error(
        "{0} names no target; write one in each line: a path, nbd://HOST/EXPORT, volume:NAME or model:NAME"
    )]
    Empty(String),
    /// It has too many.
    #[error("{file} names more than {MAX_LUNS} targets; name fewer")]
    Many {
        /// The file.
        file: String,
    },
}

/// Reads a `.lun` file: a target in each line, in the order in which they are laid out; empty lines count for nothing.
///
/// # Errors
/// When a line names no target or, other than a model, one that an earlier line names; when there are none or too many.
pub fn parse(file: &str, text: &str) -> Result<Vec<TargetName>, LunError> {
    let mut luns: Vec<TargetName> = Vec::new();
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
    for (number, line) in lines {
        let wrong = |why: String| LunError::Line { file: file.to_owned(), line: number + 1, why };
        if line.starts_with('#') {
            return Err(wrong("a .lun file has no comments; leave only the names of targets".to_owned()));
        }
        let name = TargetName::parse(line).map_err(|error| wrong(error.to_string()))?;
        if luns.contains(&name) && !matches!(name, TargetName::Model { .. }) {
            return Err(wrong(format!(
                "{name} is named twice; each target counts once, so leave this line out"
            )));
        }
        if luns.len() == MAX_LUNS {
            return Err(LunError::Many { file: file.to_owned() });
        }
        luns.push(name);
    }
    if luns.is_empty() { Err(LunError::Empty(file.to_owned())) } else { Ok(luns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_in_each_line() {
        let luns =
            parse("t.lun", "/dev/sdb\r\n\n  model:disk-1tb-2012 \nmodel:disk-1tb-2012\n").expect("good");
        let names: Vec<String> = luns.iter().map(TargetName::to_string).collect();
        assert_eq!(names, ["/dev/sdb", "model:disk-1tb-2012", "model:disk-1tb-2012"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line) in [
            ("/dev/sdb\n# the second\n", "t.lun, line 2: "),
            ("/dev/sdb\n\n/dev/sdb\n", "t.lun, line 3: "),
            ("nbd://\n", "t.lun, line 1: "),
            ("volume:\n", "t.lun, line 1: "),
        ] {
            let error = parse("t.lun", text).expect_err(text).to_string();
            assert!(error.starts_with(line) && !error.contains('\n'), "{error}");
        }
        assert_eq!(parse("t.lun", " \n\n"), Err(LunError::Empty("t.lun".to_owned())));
        let many: String = (0..=MAX_LUNS).map(|n| format!("/dev/x{n}\n")).collect();
        assert_eq!(parse("t.lun", &many), Err(LunError::Many { file: "t.lun".to_owned() }));
    }
}
