//! Who is answered.
//!
//! A page of somebody else's, open in a browser on this machine, can have its name point here (DNS rebinding) and read
//! what it is told. It cannot change what the browser says that it asked: so only hosts are answered that are addresses,
//! or localhost, unless a token is asked for, which such a page does not have.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Longest token.
const MAX_TOKEN_BYTES: u64 = 1024;
/// Shortest token: 16 letters of 64 are 96 bits.
const MIN_TOKEN_BYTES: usize = 16;
/// The cookie that stands for it in a browser.
pub(super) const COOKIE: &str = "bimetal_token";

/// Why a token cannot be had from a file.
#[derive(Debug)]
pub enum TokenError {
    /// The file cannot be read.
    Io(io::Error),
    /// What it holds is none: this is what is wrong.
    Bad(&'static str),
}

/// What is asked of who wants an answer.
#[derive(Debug, Default)]
pub struct Guard {
    token: Option<Vec<u8>>,
}

/// How a request is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is answered.
    Welcome,
    /// The host that it is for is none of ours.
    Stranger,
    /// It says no host, or more than one.
    Nameless,
    /// It has not the token.
    NoToken,
}

impl Guard {
    /// Asks for the token in a file that only its owner can read: one line of letters, digits and `-._~`.
    ///
    /// # Errors
    /// When there is no such token.
    pub fn with_token(path: &Path) -> Result<Guard, TokenError> {
        let file = File::open(path).map_err(TokenError::Io)?;
        let meta = file.metadata().map_err(TokenError::Io)?;
        if !meta.is_file() {
            return Err(TokenError::Bad("it is not a regular file"));
        }
        if meta.mode() & 0o077 != 0 {
            return Err(TokenError::Bad("others may read it (chmod 600)"));
        }
        let mut text = Vec::new();
        file.take(MAX_TOKEN_BYTES + 1).read_to_end(&mut text).map_err(TokenError::Io)?;
        let token = text.trim_ascii().to_vec();
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
        match () {
            () if text.len() as u64 > MAX_TOKEN_BYTES => Err(TokenError::Bad("it is too long for a token")),
            () if token.len() < MIN_TOKEN_BYTES => Err(TokenError::Bad("a token has 16 characters at least")),
            () if !token.iter().all(plain) => Err(TokenError::Bad("a token is letters, digits and -._~")),
            () => Ok(Guard { token: Some(token) }),
        }
    }

    /// Whether a text is the token; it takes as long whatever is wrong with it.
    pub(super) fn is_token(&self, text: &[u8]) -> bool {
        let Some(token) = &self.token else { return false };
        let differs =
            token.iter().zip(text.iter().chain(std::iter::repeat(&0))).fold(0, |all, (a, b)| all | (a ^ b));
        differs == 0 && token.len() == text.len()
    }

    /// What becomes of a request with these fields in its head, and this token in its address.
    pub(super) fn judge(
        &self,
        hosts: &[&[u8]],
        authorization: Option<&[u8]>,
        cookies: &[&[u8]],
        asked: Option<&[u8]>,
    ) -> Verdict {
        let [host] = hosts else { return Verdict::Nameless };
        if self.token.is_none() {
            return if is_ours(host) { Verdict::Welcome } else { Verdict::Stranger };
        }
        let bearer = authorization.and_then(|field| field.strip_prefix(b"Bearer "));
        let cookie = cookies
            .iter()
            .flat_map(|field| field.split(|byte| *byte == b';'))
            .find_map(|pair| pair.trim_ascii().strip_prefix(COOKIE.as_bytes())?.strip_prefix(b"="));
        let is_known = [bearer, cookie, asked].into_iter().flatten().any(|text| self.is_token(text));
        if is_known { Verdict::Welcome } else { Verdict::NoToken }
    }
}

/// Whether a host is an address, or localhost, with a port perhaps.
fn is_ours(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, rest)) if rest.is_empty() || is_port(rest) => name,
        Some(_) => return false,
        None => match host.split_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            Some(_) => return false,
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn is_port(rest: &str) -> bool {
    rest.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn names_that_somebody_else_may_own_are_not_ours() {
        for host in
            ["127.0.0.1", "127.0.0.1:8000", "localhost:1", "LOCALHOST", "[::1]:80", "[::1]", "192.168.0.7:1"]
        {
            assert!(is_ours(host.as_bytes()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:80",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "",
            "[::1]x",
            "::1:80",
            "127.0.0.1:80:80",
            "127.0.0.1@evil",
            "\u{e9}",
        ] {
            assert!(!is_ours(host.as_bytes()), "{host}");
        }
        let guard = Guard::default();
        let judge = |hosts: &[&[u8]]| guard.judge(hosts, None, &[], None);
        assert_eq!(judge(&[b"localhost"]), Verdict::Welcome);
        assert_eq!(judge(&[b"evil.example"]), Verdict::Stranger);
        assert_eq!(
            (judge(&[]), judge(&[b"localhost", b"evil.example"])),
            (Verdict::Nameless, Verdict::Nameless)
        );
    }

    #[test]
    fn a_token_opens_and_nothing_like_it_does() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        let write = |text: &str, mode| {
            std::fs::write(&path, text).expect("write");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("permissions");
            Guard::with_token(&path)
        };
        for (text, mode) in
            [("0123456789abcdef\n", 0o644), ("short", 0o600), ("", 0o600), ("0123456789abcde\u{7}f", 0o600)]
        {
            assert!(matches!(write(text, mode), Err(TokenError::Bad(_))), "{text:?}");
        }
        assert!(matches!(write(&"x".repeat(2000), 0o600), Err(TokenError::Bad(_))));
        let guard = write("0123456789abcdef\n", 0o600).expect("a token");
        let host: &[&[u8]] = &[b"anything.example"];
        let good: &[u8] = b"0123456789abcdef";
        assert_eq!(guard.judge(host, None, &[], None), Verdict::NoToken);
        assert_eq!(guard.judge(host, None, &[], Some(good)), Verdict::Welcome);
        assert_eq!(guard.judge(host, Some(b"Bearer 0123456789abcdef"), &[], None), Verdict::Welcome);
        assert_eq!(
            guard.judge(host, None, &[b"a=b; bimetal_token=0123456789abcdef"], None),
            Verdict::Welcome
        );
        for bad in [&b""[..], b"0123456789abcde", b"0123456789abcdef0", b"0123456789abcdeF"] {
            assert_eq!(guard.judge(host, None, &[], Some(bad)), Verdict::NoToken);
        }
    }
}
