//! Answers to single options (sections "Option types" and "Option reply types").

use crate::error::ProtocolError;
use crate::export::{Export, ExportIndex, Exports};
use crate::limits::{MAX_PAYLOAD_BYTES, MAX_STRING_BYTES, MIN_BLOCK_BYTES, PREFERRED_BLOCK_BYTES};
use crate::meta;
use crate::terms::{Contexts, Terms};
use crate::wire::{self, Fields, info, opt, rep};

/// What has been agreed on so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Haggle {
    pub(crate) no_zeroes: bool,
    pub(crate) structured: bool,
    /// The metadata contexts of the last SET_META_CONTEXT, and the export it named.
    pub(crate) contexts: Contexts,
    pub(crate) contexts_of: Option<ExportIndex>,
}

impl Haggle {
    /// The terms for the chosen export: contexts that were selected for another one are dropped (section
    /// "Option types", SET_META_CONTEXT).
    pub(crate) fn terms_for(&self, export: ExportIndex) -> Terms {
        let contexts = match self.contexts_of {
            Some(of) if of == export => self.contexts,
            _ => Contexts::NONE,
        };
        Terms { structured: self.structured, contexts }
    }
}

/// What an option did to the negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    GoOn,
    Chosen(ExportIndex),
    Aborted,
}

/// Answers one option into `out`.
pub(crate) fn answer(
    exports: &Exports,
    haggle: &mut Haggle,
    option: u32,
    data: &[u8],
    out: &mut Vec<u8>,
) -> Result<Answer, ProtocolError> {
    match option {
        opt::EXPORT_NAME => export_name(exports, haggle, data, out).map(Answer::Chosen),
        opt::ABORT => {
            reply(out, option, rep::ACK, &[]);
            Ok(Answer::Aborted)
        }
        opt::LIST => {
            list(exports, data, out);
            Ok(Answer::GoOn)
        }
        opt::STRUCTURED_REPLY => {
            structured_reply(haggle, data, out);
            Ok(Answer::GoOn)
        }
        opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => {
            meta::answer(exports, haggle, option, data, out);
            Ok(Answer::GoOn)
        }
        opt::INFO | opt::GO => match info_or_go(exports, haggle, option, data, out) {
            Some(export) if option == opt::GO => Ok(Answer::Chosen(export)),
            _ => Ok(Answer::GoOn),
        },
        // Known to the specification but not offered (STARTTLS, extended headers), or from its future: clients
        // are told to go on without.
        _ => {
            reply(out, option, rep::ERR_UNSUP, b"this option is not supported");
            Ok(Answer::GoOn)
        }
    }
}

/// EXPORT_NAME has no header in its answer and no way to report an error.
fn export_name(
    exports: &Exports,
    haggle: &Haggle,
    name: &[u8],
    out: &mut Vec<u8>,
) -> Result<ExportIndex, ProtocolError> {
    let index = exports.find(name).ok_or(ProtocolError::UnknownExport)?;
    let export = exports.get(index);
    out.extend_from_slice(&export.size_bytes.to_be_bytes());
    out.extend_from_slice(&export.transmission_flags(haggle.structured).bits().to_be_bytes());
    if !haggle.no_zeroes {
        out.extend_from_slice(&wire::EXPORT_NAME_PADDING);
    }
    Ok(index)
}

fn structured_reply(haggle: &mut Haggle, data: &[u8], out: &mut Vec<u8>) {
    if !data.is_empty() {
        return reply(out, opt::STRUCTURED_REPLY, rep::ERR_INVALID, b"STRUCTURED_REPLY takes no data");
    }
    haggle.structured = true;
    reply(out, opt::STRUCTURED_REPLY, rep::ACK, &[]);
}

fn list(exports: &Exports, data: &[u8], out: &mut Vec<u8>) {
    if !data.is_empty() {
        return reply(out, opt::LIST, rep::ERR_INVALID, b"LIST takes no data");
    }
    for export in exports.as_slice() {
        let name = export.name.as_bytes();
        let name_length = (name.len() as u32).to_be_bytes();
        reply_parts(out, opt::LIST, rep::SERVER, &[&name_length, name, export.description.as_bytes()]);
    }
    reply(out, opt::LIST, rep::ACK, &[]);
}

/// What a client wants to know beside size and flags; a set, so that asking twice is answered once.
#[derive(Debug, Clone, Copy, Default)]
struct Wanted {
    name: bool,
    description: bool,
    block_size: bool,
}

impl Wanted {
    /// Reads the information requests, which must fill the data to its end. Unknown ones are ignored, as the
    /// specification asks.
    fn parse(mut fields: Fields<'_>) -> Option<Self> {
        let count = fields.u16()?;
        let mut wanted = Wanted::default();
        for _ in 0..count {
            match fields.u16()? {
                info::NAME => wanted.name = true,
                info::DESCRIPTION => wanted.description = true,
                info::BLOCK_SIZE => wanted.block_size = true,
                _ => {}
            }
        }
        fields.rest().is_empty().then_some(wanted)
    }
}

/// Answers INFO and GO, which differ only in what happens after; returns the export where there is one.
fn info_or_go(
    exports: &Exports,
    haggle: &Haggle,
    option: u32,
    data: &[u8],
    out: &mut Vec<u8>,
) -> Option<ExportIndex> {
    let (name, fields) = name_first(option, data, out)?;
    let Some(wanted) = Wanted::parse(fields) else {
        reply(out, option, rep::ERR_INVALID, LENGTHS_DO_NOT_FIT);
        return None;
    };
    let index = find(exports, name, option, out)?;
    describe(exports.get(index), haggle, option, wanted, out);
    reply(out, option, rep::ACK, &[]);
    Some(index)
}

/// What is said of an option whose lengths contradict each other.
pub(crate) const LENGTHS_DO_NOT_FIT: &[u8] = b"the lengths in this option do not fit its data";

/// Takes the export name that an option's data begins with; where there is none, says so to the client.
pub(crate) fn name_first<'a>(
    option: u32,
    data: &'a [u8],
    out: &mut Vec<u8>,
) -> Option<(&'a [u8], Fields<'a>)> {
    let mut fields = Fields::new(data);
    let length = fields.u32().map(|length| length as usize);
    if length.is_some_and(|length| length > MAX_STRING_BYTES) {
        reply(out, option, rep::ERR_TOO_BIG, b"the export name is too long");
        return None;
    }
    let Some(name) = length.and_then(|length| fields.bytes(length)) else {
        reply(out, option, rep::ERR_INVALID, LENGTHS_DO_NOT_FIT);
        return None;
    };
    Some((name, fields))
}

/// The export of this name; where there is none, says so to the client.
pub(crate) fn find(exports: &Exports, name: &[u8], option: u32, out: &mut Vec<u8>) -> Option<ExportIndex> {
    let found = exports.find(name);
    if found.is_none() {
        reply(out, option, rep::ERR_UNKNOWN, b"there is no export of this name");
    }
    found
}

fn describe(export: &Export, haggle: &Haggle, option: u32, wanted: Wanted, out: &mut Vec<u8>) {
    let size = export.size_bytes.to_be_bytes();
    let flags = export.transmission_flags(haggle.structured).bits().to_be_bytes();
    reply_info(out, option, info::EXPORT, &[&size, &flags]);
    if wanted.name {
        reply_info(out, option, info::NAME, &[export.name.as_bytes()]);
    }
    if wanted.description && !export.description.is_empty() {
        reply_info(out, option, info::DESCRIPTION, &[export.description.as_bytes()]);
    }
    if wanted.block_size {
        let sizes = [MIN_BLOCK_BYTES, PREFERRED_BLOCK_BYTES, MAX_PAYLOAD_BYTES].map(u32::to_be_bytes);
        reply_info(out, option, info::BLOCK_SIZE, &[&sizes[0], &sizes[1], &sizes[2]]);
    }
}

fn reply_info(out: &mut Vec<u8>, option: u32, kind: u16, parts: &[&[u8]]) {
    let start = begin_reply(out, option, rep::INFO);
    out.extend_from_slice(&kind.to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    end_reply(out, start);
}

pub(crate) fn reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    reply_parts(out, option, kind, &[data]);
}

pub(crate) fn reply_parts(out: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let start = begin_reply(out, option, kind);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    end_reply(out, start);
}

/// Appends a header whose length is filled in by `end_reply`; returns where the data starts.
fn begin_reply(out: &mut Vec<u8>, option: u32, kind: u32) -> usize {
    out.extend_from_slice(&wire::OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.len()
}

fn end_reply(out: &mut [u8], start: usize) {
    // At most two strings and a few numbers: far below 4 GiB.
    let length = (out.len() - start) as u32;
    out[start - 4..start].copy_from_slice(&length.to_be_bytes());
}
