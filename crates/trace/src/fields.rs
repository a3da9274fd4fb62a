//! Numbers and words of text formats. No floating point: times are exact, and what does not fit is an error.

use crate::Op;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What is wrong with a line.
pub(crate) type Bad = &'static str;

/// Names that are told apart in one trace, and what they may take together; lines with further ones are malformed.
const MAX_NAMES: usize = 65_536;
const MAX_NAME_BYTES: usize = 16 << 20;

pub(crate) fn beyond<T>(value: Option<T>) -> Result<T, Bad> {
    value.ok_or("a number beyond any device")
}

/// A decimal number without sign.
pub(crate) fn number(field: &[u8]) -> Result<u64, Bad> {
    if field.is_empty() {
        return Err("a number is missing");
    }
    let mut value = 0u64;
    for &digit in field {
        if !digit.is_ascii_digit() {
            return Err("not a number where one belongs");
        }
        let next = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit - b'0')));
        value = next.ok_or("a number of more than 64 bits")?;
    }
    Ok(value)
}

pub(crate) fn number32(field: &[u8]) -> Result<u32, Bad> {
    u32::try_from(number(field)?).map_err(|_| "a number of more than 32 bits")
}

pub(crate) fn hex(field: &[u8]) -> Result<u64, Bad> {
    let digits = field.strip_prefix(b"0x").unwrap_or(field);
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'));
    text.and_then(|text| u64::from_str_radix(text, 16).ok())
        .ok_or("not a hexadecimal number where one belongs")
}

/// A decimal fraction, in units of 10^-`places`: seconds with nine places are nanoseconds. Further digits are cut off.
pub(crate) fn fraction(field: &[u8], places: u32) -> Result<u64, Bad> {
    let (whole, rest) = match memchr::memchr(b'.', field) {
        Some(dot) => (&field[..dot], &field[dot + 1..]),
        None => (field, &field[..0]),
    };
    let mut value = if whole.is_empty() && !rest.is_empty() { 0 } else { number(whole)? };
    let mut rest = rest.iter();
    for _ in 0..places {
        let digit = *rest.next().unwrap_or(&b'0');
        if !digit.is_ascii_digit() {
            return Err("not a number where one belongs");
        }
        let next = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit - b'0')));
        value = next.ok_or("a number of more than 64 bits")?;
    }
    if rest.all(u8::is_ascii_digit) { Ok(value) } else { Err("not a number where one belongs") }
}

/// R or W; behind it may stand how, as blkparse says it (`RA`, `WS`, `RSM`).
pub(crate) fn letter(field: &[u8]) -> Result<Op, Bad> {
    match field {
        [b'R' | b'r'] => Ok(Op::Read),
        [b'W' | b'w'] => Ok(Op::Write),
        [b'R', how @ ..] if how.iter().all(|letter| b"ASMF".contains(letter)) => Ok(Op::Read),
        [b'W', how @ ..] if how.iter().all(|letter| b"ASMF".contains(letter)) => Ok(Op::Write),
        _ => Err("neither R nor W where one belongs"),
    }
}

/// 1 for a read, 0 for a write, or the other way round.
pub(crate) fn bit(field: &[u8], read: u64) -> Result<Op, Bad> {
    match number(field)? {
        value if value == read => Ok(Op::Read),
        0 | 1 => Ok(Op::Write),
        _ => Err("neither 0 nor 1 where one belongs"),
    }
}

/// Exactly so many fields, cut at a byte and trimmed.
pub(crate) fn cut<const N: usize>(text: &[u8], at: u8) -> Result<[&[u8]; N], Bad> {
    let mut fields = text.split(|&byte| byte == at).map(<[u8]>::trim_ascii);
    let found = first(&mut fields)?;
    if fields.next().is_some() { Err("too many fields") } else { Ok(found) }
}

/// The first so many fields, cut at a byte and trimmed.
pub(crate) fn cut_first<const N: usize>(text: &[u8], at: u8) -> Result<[&[u8]; N], Bad> {
    first(&mut text.split(|&byte| byte == at).map(<[u8]>::trim_ascii))
}

/// The fields between blanks.
pub(crate) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Exactly so many fields between blanks.
pub(crate) fn exactly<const N: usize>(text: &[u8]) -> Result<[&[u8]; N], Bad> {
    let mut fields = words(text);
    let found = first(&mut fields)?;
    if fields.next().is_some() { Err("too many fields") } else { Ok(found) }
}

fn first<'a, const N: usize>(fields: &mut impl Iterator<Item = &'a [u8]>) -> Result<[&'a [u8]; N], Bad> {
    let mut found = [&b""[..]; N];
    for place in &mut found {
        *place = fields.next().ok_or("too few fields")?;
    }
    Ok(found)
}

/// Numbers for names, in the order in which they were met: the same in all files of a trace.
#[derive(Clone, Default)]
pub(crate) struct Names(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    numbers: HashMap<Box<[u8]>, u32>,
    bytes: usize,
}

impl Names {
    pub(crate) fn number(&self, name: &[u8]) -> Result<u32, Bad> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&number) = known.numbers.get(name) {
            return Ok(number);
        }
        if known.numbers.len() >= MAX_NAMES || known.bytes + name.len() > MAX_NAME_BYTES {
            return Err("more names than can be told apart");
        }
        let number = known.numbers.len() as u32;
        known.bytes += name.len();
        known.numbers.insert(name.into(), number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_exact() {
        for (text, places, value) in [
            ("0.449518165", 9, Some(449_518_165)),
            ("1456095145.133076000", 9, Some(1_456_095_145_133_076_000)),
            ("12", 9, Some(12_000_000_000)),
            ("12.", 3, Some(12_000)),
            (".5", 3, Some(500)),
            ("0.0000000019", 9, Some(1)),
            ("18446744073.709551615", 9, Some(u64::MAX)),
            ("18446744073.709551616", 9, None),
            ("", 9, None),
            (".", 9, None),
            ("-1", 9, None),
            ("+1", 9, None),
            ("1e3", 9, None),
            ("1.0x", 9, None),
            ("1.0000000000x", 9, None),
            ("1.2.3", 9, None),
        ] {
            assert_eq!(fraction(text.as_bytes(), places).ok(), value, "{text}");
        }
        assert!(number(b"18446744073709551616").is_err());
        assert_eq!(hex(b"0x1f"), Ok(31));
        assert!(hex(b"+1").is_err() && hex(b"").is_err());
    }
}
