//! LIST_META_CONTEXT and SET_META_CONTEXT (section "Metadata querying").

use crate::export::Exports;
use crate::limits::MAX_STRING_BYTES;
use crate::option::{self, Haggle};
use crate::terms::{Contexts, MetaContext};
use crate::wire::{Fields, opt, rep};

/// Answers either option. The contexts of an earlier SET_META_CONTEXT are forgotten by the next one, whatever
/// becomes of it.
pub(crate) fn answer(exports: &Exports, haggle: &mut Haggle, option: u32, data: &[u8], out: &mut Vec<u8>) {
    let sets = option == opt::SET_META_CONTEXT;
    if sets {
        (haggle.contexts, haggle.contexts_of) = (Contexts::NONE, None);
        if !haggle.structured {
            let text = b"metadata contexts need STRUCTURED_REPLY to be negotiated first";
            return option::reply(out, option, rep::ERR_INVALID, text);
        }
    }
    let Some((name, fields)) = option::name_first(option, data, out) else { return };
    let contexts = match queried(fields) {
        Ok(Queried::Some(contexts)) => contexts,
        // Without a query, LIST is for all there are, and SET selects none.
        Ok(Queried::Nothing) if sets => Contexts::NONE,
        Ok(Queried::Nothing) => MetaContext::ALL.into_iter().fold(Contexts::NONE, Contexts::with),
        Err(kind) if kind == rep::ERR_TOO_BIG => {
            return option::reply(out, option, kind, b"a query is too long");
        }
        Err(kind) => return option::reply(out, option, kind, option::LENGTHS_DO_NOT_FIT),
    };
    let Some(export) = option::find(exports, name, option, out) else { return };
    if sets {
        (haggle.contexts, haggle.contexts_of) = (contexts, Some(export));
    }
    for context in contexts.iter() {
        // In a list the number means nothing and is 0.
        let id = if sets { context.id() } else { 0 };
        option::reply_parts(out, option, rep::META_CONTEXT, &[&id.to_be_bytes(), context.name().as_bytes()]);
    }
    option::reply(out, option, rep::ACK, &[]);
}

enum Queried {
    /// There was no query.
    Nothing,
    /// What the queries match; those for contexts that nobody knows match none.
    Some(Contexts),
}

/// Reads the queries, which must fill the data to its end; each takes four bytes at least, so their number is
/// bounded by the option's length. The error is the kind of reply that refuses them.
fn queried(mut fields: Fields<'_>) -> Result<Queried, u32> {
    let count = fields.u32().ok_or(rep::ERR_INVALID)?;
    let mut contexts = Contexts::NONE;
    for _ in 0..count {
        let length = fields.u32().ok_or(rep::ERR_INVALID)? as usize;
        if length > MAX_STRING_BYTES {
            return Err(rep::ERR_TOO_BIG);
        }
        let query = fields.bytes(length).ok_or(rep::ERR_INVALID)?;
        contexts = MetaContext::ALL
            .into_iter()
            .filter(|context| context.matches(query))
            .fold(contexts, Contexts::with);
    }
    if !fields.rest().is_empty() {
        return Err(rep::ERR_INVALID);
    }
    Ok(if count == 0 { Queried::Nothing } else { Queried::Some(contexts) })
}
