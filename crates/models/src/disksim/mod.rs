//! Descriptions of drives in the format of DiskSim 3 and 4: `NAME.model`, `NAME.diskspecs` and `NAME.seek`.
//!
//! Described in the manuals of DiskSim 4.0 and of its disk model (Bucy, Schindler, Schlosser and Ganger, CMU). A file
//! holds blocks, `TYPE NAME { Key = value, … }`; a value is a word, a number, a list in brackets or a block, and `#`
//! begins a comment.

mod convert;
mod seek;

pub use convert::{Sources, convert, model_file, seek_file};

use std::fmt;

/// The longest file.
const MAX_FILE_BYTES: usize = 8 << 20;
/// Values in a file at most.
const MAX_VALUES: usize = 1_000_000;
/// Blocks within blocks at most.
const MAX_DEPTH: usize = 16;

/// What is wrong with a description, in one sentence that names the file and the line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}{what}", Line(*line))]
pub struct FormatError {
    /// The file, as it was named.
    pub file: String,
    /// Line, from 1; 0 where no line is to blame.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// A line number between a file's name and what is wrong with it.
struct Line(usize);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str(": ") } else { write!(f, ":{}: ", self.0) }
    }
}

/// A value and the line it begins on.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) line: usize,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Word(String),
    List(Vec<Value>),
    Block(Block),
}

/// A block: its type, its name if it has one, and its fields.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) kind: String,
    pub(crate) line: usize,
    fields: Vec<(String, Value)>,
}

impl Block {
    /// A field's value; the last one, where a key stands twice. Keys are compared without regard to case and blanks.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        let plain = plain(key);
        self.fields.iter().rev().find(|(known, _)| *known == plain).map(|(_, value)| value)
    }
}

/// A key in the form in which keys are compared.
fn plain(key: &str) -> String {
    key.split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase()
}

/// Reads the blocks of a file.
pub(crate) fn blocks(file: &str, text: &str) -> Result<Vec<Block>, FormatError> {
    let mut reader = Reader { file, text: text.as_bytes(), at: 0, line: 1, values: 0 };
    if text.len() > MAX_FILE_BYTES {
        return Err(reader.error(0, format!("it is longer than {} MiB", MAX_FILE_BYTES >> 20)));
    }
    let mut found = Vec::new();
    while reader.skip_blanks().is_some() {
        let line = reader.line;
        let head = reader.until(b"{=}[],")?;
        if reader.peek() != Some(b'{') {
            return Err(reader.error(line, "a block, TYPE NAME { ... }, should begin here".to_owned()));
        }
        let kind = head.split_whitespace().next().unwrap_or_default().to_owned();
        found.push(reader.block(kind, line, 0)?);
    }
    Ok(found)
}

struct Reader<'a> {
    file: &'a str,
    text: &'a [u8],
    at: usize,
    line: usize,
    values: usize,
}

impl Reader<'_> {
    fn error(&self, line: usize, what: String) -> FormatError {
        FormatError { file: self.file.to_owned(), line, what }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) {
        if self.peek() == Some(b'\n') {
            self.line += 1;
        }
        self.at += 1;
    }

    /// Goes past blanks and comments; the byte that follows, `None` at the end.
    fn skip_blanks(&mut self) -> Option<u8> {
        let mut comment = false;
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' => comment = false,
                b'#' => comment = true,
                _ if comment || byte.is_ascii_whitespace() => {}
                _ => return Some(byte),
            }
            self.next();
        }
        None
    }

    /// The text up to one of these bytes, or to the end; comments left out.
    fn until(&mut self, stops: &[u8]) -> Result<String, FormatError> {
        let line = self.line;
        let mut found = Vec::new();
        let mut comment = false;
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' => comment = false,
                b'#' => comment = true,
                _ => {}
            }
            if stops.contains(&byte) && !comment {
                break;
            }
            if !comment {
                found.push(byte);
            }
            self.next();
            if found.len() > 1000 {
                return Err(self.error(line, "a word or key of more than 1000 bytes begins here".to_owned()));
            }
        }
        Ok(String::from_utf8_lossy(&found).trim().to_owned())
    }

    /// A block whose `{` comes next.
    fn block(&mut self, kind: String, line: usize, depth: usize) -> Result<Block, FormatError> {
        if depth >= MAX_DEPTH {
            return Err(self.error(line, format!("blocks within more than {MAX_DEPTH} blocks")));
        }
        self.next();
        let mut fields = Vec::new();
        loop {
            match self.skip_blanks() {
                None => return Err(self.error(line, "the block that begins here has no end".to_owned())),
                Some(b'}') => {
                    self.next();
                    return Ok(Block { kind, line, fields });
                }
                Some(b',') => self.next(),
                Some(_) => {
                    let line = self.line;
                    let key = self.until(b"={}[],")?;
                    if self.peek() != Some(b'=') || key.is_empty() {
                        let shown: String = key.chars().take(60).collect();
                        return Err(self.error(line, format!("{shown:?} is not followed by = and a value")));
                    }
                    self.next();
                    fields.push((plain(&key), self.value(depth + 1)?));
                }
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, FormatError> {
        self.values += 1;
        let first = self.skip_blanks();
        let line = self.line;
        if self.values > MAX_VALUES {
            return Err(self.error(line, format!("more than {MAX_VALUES} values")));
        }
        if first == Some(b'[') {
            return Ok(Value { line, body: Body::List(self.list(line, depth)?) });
        }
        let word = self.until(b",{}[]\n")?;
        let body = if self.skip_blanks() == Some(b'{') {
            Body::Block(self.block(word, line, depth)?)
        } else if word.is_empty() {
            return Err(self.error(line, "a value is missing".to_owned()));
        } else {
            Body::Word(word)
        };
        Ok(Value { line, body })
    }

    /// A list whose `[` comes next.
    fn list(&mut self, line: usize, depth: usize) -> Result<Vec<Value>, FormatError> {
        if depth >= MAX_DEPTH {
            return Err(self.error(line, format!("lists within more than {MAX_DEPTH} blocks")));
        }
        self.next();
        let mut values = Vec::new();
        loop {
            match self.skip_blanks() {
                None => return Err(self.error(line, "the list that begins here has no end".to_owned())),
                Some(b']') => {
                    self.next();
                    return Ok(values);
                }
                Some(b',') => self.next(),
                Some(_) => values.push(self.value(depth + 1)?),
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
