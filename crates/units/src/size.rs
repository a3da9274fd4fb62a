//! Sizes as people write them: 128K, 4G. Powers of two.

/// Bytes of a size such as `4096`, `128K`, `10G` or `1.5T`.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size; write a number with K, M, G or T, such as 128K or 10G");
    let trimmed = text.trim().trim_end_matches("iB").trim_end_matches('B');
    let (number, shift) = match trimmed.chars().last().map(|c| c.to_ascii_uppercase()) {
        Some('K') => (&trimmed[..trimmed.len() - 1], 10),
        Some('M') => (&trimmed[..trimmed.len() - 1], 20),
        Some('G') => (&trimmed[..trimmed.len() - 1], 30),
        Some('T') => (&trimmed[..trimmed.len() - 1], 40),
        _ => (trimmed, 0),
    };
    if let Ok(whole) = number.parse::<u64>() {
        let bytes = whole.checked_mul(1 << shift).filter(|&bytes| bytes <= i64::MAX as u64);
        return bytes.ok_or_else(|| format!("{text:?} is larger than any device"));
    }
    let value: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = value * f64::from(1u32 << (shift / 2)) * f64::from(1u32 << (shift - shift / 2));
    if !(bytes.is_finite() && bytes >= 0.0 && bytes < 2f64.powi(62)) || bytes.fract() != 0.0 {
        return Err(wrong());
    }
    Ok(bytes as u64)
}

/// A size for people.
pub fn show(bytes: u64) -> String {
    let units = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    for (unit, one) in units {
        if bytes >= one {
            let value = bytes as f64 / one as f64;
            let places = if bytes.is_multiple_of(one) { 0 } else { 2 };
            return format!("{value:.places$} {unit}");
        }
    }
    format!("{bytes} B")
}

/// A size as [`parse`] reads it, to the byte.
pub fn exact(bytes: u64) -> String {
    let units = [("T", 1u64 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];
    let unit = units.iter().find(|(_, one)| bytes > 0 && bytes.is_multiple_of(*one));
    unit.map_or_else(|| bytes.to_string(), |(unit, one)| format!("{}{unit}", bytes / one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("128K", 128 << 10), ("4g", 4 << 30), ("1.5T", 3 << 39)]
        {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "-1", "1X", "ten", "1.0000001K", "99999999T", "NaN", "infG", "1e400", "é", "5é"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        for (bytes, text) in
            [(0, "0"), (1500, "1500"), (164 << 30, "164G"), (1 << 40, "1T"), (3 << 39, "1536G")]
        {
            assert_eq!((exact(bytes).as_str(), parse(text)), (text, Ok(bytes)));
        }
        assert_eq!(show(8 << 30), "8 GiB");
        assert_eq!(show(1500), "1.46 KiB");
    }
}
