//! What a file is, decided by its first 64 KiB.

use crate::blktrace::{self, Blktrace, Moment};
use crate::events::{LineFormat, Lines, Parser, Step};
use crate::fields::Names;
use crate::input::{Input, LOOK_AHEAD};
use crate::{binary, blkparse, columns, csv, iolog, own};
use serde::Serialize;
use std::fmt;
use std::io::{self, Cursor};

/// Lines that are tried to find out what a text is.
const LINES_TO_TRY: usize = 256;

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Format {
    Bimetal,
    Blktrace,
    Blkparse,
    Iolog2,
    Iolog3,
    Msr,
    Spc,
    Systor17,
    Alibaba,
    Tencent,
    Vscsi1,
    Vscsi2,
    Blkreplay,
    Disksim,
    DisksimValidation,
    Mqsim,
    HpSrt,
    Arc,
    OracleGeneral,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 19] = [
        Format::Bimetal,
        Format::Blktrace,
        Format::Blkparse,
        Format::Iolog2,
        Format::Iolog3,
        Format::Msr,
        Format::Spc,
        Format::Systor17,
        Format::Alibaba,
        Format::Tencent,
        Format::Vscsi1,
        Format::Vscsi2,
        Format::Blkreplay,
        Format::Disksim,
        Format::DisksimValidation,
        Format::Mqsim,
        Format::HpSrt,
        Format::Arc,
        Format::OracleGeneral,
    ];

    /// Formats of lines that are told apart by trying, the stricter ones first.
    const LINES: [Format; 10] = [
        Format::Blkparse,
        Format::DisksimValidation,
        Format::Msr,
        Format::Systor17,
        Format::Alibaba,
        Format::Spc,
        Format::Tencent,
        Format::Disksim,
        Format::Mqsim,
        Format::Arc,
    ];

    /// Whether its clock is shared by all devices, and requests may be logged above and below a remap.
    pub(crate) fn has_twins(self) -> bool {
        matches!(self, Format::Blktrace | Format::Blkparse)
    }

    /// The best moment that the beginning of a file holds.
    pub(crate) fn moment(self, ahead: &[u8]) -> Option<Moment> {
        match self {
            Format::Blktrace => blktrace::best_moment(ahead),
            Format::Blkparse => blkparse::best_moment(ahead),
            _ => None,
        }
    }

    /// A parser for a file that begins like this.
    pub(crate) fn parser(self, ahead: &[u8], moment: Moment, names: &Names) -> Box<dyn Parser> {
        fn lines(format: impl LineFormat + 'static) -> Box<dyn Parser> {
            Box::new(Lines(format))
        }
        match self {
            Format::Bimetal => Box::new(own::Own::default()),
            Format::Blktrace => Box::new(Blktrace::new(moment)),
            Format::Blkparse => lines(blkparse::Blkparse::new(moment)),
            Format::Iolog2 | Format::Iolog3 => lines(iolog::Iolog::new(ahead, names.clone())),
            Format::Msr => lines(csv::Msr(names.clone())),
            Format::Spc => lines(csv::Spc),
            Format::Systor17 => lines(csv::Systor),
            Format::Alibaba => lines(csv::Alibaba),
            Format::Tencent => lines(csv::Tencent),
            Format::Vscsi1 => binary::vscsi1(),
            Format::Vscsi2 => binary::vscsi2(),
            Format::Blkreplay => lines(columns::Blkreplay),
            Format::Disksim => lines(columns::Disksim),
            Format::DisksimValidation => lines(columns::Validation::default()),
            Format::Mqsim => lines(columns::Mqsim),
            Format::HpSrt => Box::new(binary::Srt::default()),
            Format::Arc => lines(columns::Arc),
            Format::OracleGeneral => binary::oracle(),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Bimetal => "bimetal",
            Format::Blktrace => "blktrace",
            Format::Blkparse => "blkparse",
            Format::Iolog2 => "fio iolog 2",
            Format::Iolog3 => "fio iolog 3",
            Format::Msr => "MSR",
            Format::Spc => "SPC",
            Format::Systor17 => "SYSTOR '17",
            Format::Alibaba => "Alibaba",
            Format::Tencent => "Tencent",
            Format::Vscsi1 => "VSCSI 1",
            Format::Vscsi2 => "VSCSI 2",
            Format::Blkreplay => "blkreplay",
            Format::Disksim => "DiskSim",
            Format::DisksimValidation => "DiskSim validation",
            Format::Mqsim => "MQSim",
            Format::HpSrt => "HP SRT",
            Format::Arc => "ARC",
            Format::OracleGeneral => "oracleGeneral",
        })
    }
}

/// The format of a file that begins like this, or none that is known.
pub(crate) fn detect(ahead: &[u8]) -> Option<Format> {
    let ahead = &ahead[..ahead.len().min(LOOK_AHEAD)];
    if own::begins(ahead) {
        return Some(Format::Bimetal);
    }
    if blktrace::begins(ahead) {
        return Some(Format::Blktrace);
    }
    if binary::srt_header(ahead).is_some() {
        return Some(Format::HpSrt);
    }
    if !ahead.contains(&0) {
        return detect_text(ahead);
    }
    if binary::is_vscsi1(ahead) {
        return Some(Format::Vscsi1);
    }
    if binary::is_vscsi2(ahead) {
        return Some(Format::Vscsi2);
    }
    if binary::is_oracle(ahead) {
        return Some(Format::OracleGeneral);
    }
    // A text with a damaged place.
    detect_text(ahead)
}

/// Whether it is text of two bytes a character: a mark that says so, and behind it letters, digits and blanks only. A
/// binary file may begin with the mark's bytes, too.
pub(crate) fn is_utf16(ahead: &[u8]) -> bool {
    const CHARACTERS: usize = 32;
    let (low, high, text) = match ahead {
        [0xff, 0xfe, text @ ..] => (0, 1, text),
        [0xfe, 0xff, text @ ..] => (1, 0, text),
        _ => return false,
    };
    let is_text = |pair: &[u8]| pair[high] == 0 && matches!(pair[low], b' '..=b'~' | b'\t' | b'\r' | b'\n');
    text.chunks_exact(2).take(CHARACTERS).all(is_text)
}

fn detect_text(ahead: &[u8]) -> Option<Format> {
    // The last line may be cut off by the look ahead.
    let whole = match memchr::memrchr(b'\n', ahead) {
        Some(end) if ahead.len() == LOOK_AHEAD => &ahead[..=end],
        _ => ahead,
    };
    let mut lines = whole.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    match lines.find(|line| !line.is_empty()).and_then(iolog::version) {
        Some(2) => return Some(Format::Iolog2),
        Some(_) => return Some(Format::Iolog3),
        None => {}
    }
    if lines.any(|line| line.starts_with(b"start ;")) || score(Format::Blkreplay, whole).is_some() {
        return Some(Format::Blkreplay);
    }
    let scored = Format::LINES.into_iter().filter_map(|format| Some((score(format, whole)?, format)));
    // Of equals the first.
    scored.rev().max_by_key(|(score, _)| *score).map(|(_, format)| format)
}

/// How many more of the first lines a format understands than not; none unless it understands one in five.
fn score(format: Format, text: &[u8]) -> Option<i32> {
    let moment = format.moment(text).unwrap_or(Moment::Queue);
    let mut input = Input::new(Box::new(Cursor::new(text.to_vec())));
    let mut parser = format.parser(text, moment, &Names::default());
    let (mut good, mut bad) = (0, 0);
    for _ in 0..LINES_TO_TRY {
        match parser.step(&mut input) {
            Ok(Step::Item(_)) => good += 1,
            Ok(Step::Bad(..)) => bad += 1,
            Ok(Step::Nothing) => {}
            Ok(Step::End) | Err(_) => break,
        }
    }
    (good > 0 && bad <= 4 * good).then_some(good - bad)
}

/// Reads ahead.
pub(crate) fn ahead(input: &mut Input) -> io::Result<&[u8]> {
    let seen = input.peek(LOOK_AHEAD)?;
    Ok(&seen[..seen.len().min(LOOK_AHEAD)])
}
