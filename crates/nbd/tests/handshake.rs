//! Each path of the server's negotiation.

mod common;

use bimetal_nbd::limits::{
    MAX_EXPORTS, MAX_HANDSHAKE_REPLY_BYTES, MAX_OPTION_DATA_BYTES, MAX_OPTIONS, MAX_STRING_BYTES,
};
use bimetal_nbd::{
    Contexts, Export, Exports, ExportsError, HandshakeStep, MetaContext, ProtocolError, Terms,
    TransmissionFlags,
};
use common::*;
use std::sync::Arc;

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\x00\x03";
const VAULT_FLAGS: u16 = 0b1101_0110_1101;
const ATTIC_FLAGS: u16 = 0b101_0000_1111;
const DF_FLAG: u16 = 1 << 7;

fn run(options: &[Vec<u8>]) -> HandshakeOutcome {
    run_handshake(&exports(), &client_stream(FIXED_NO_ZEROES, options), &[])
}

fn replies(outcome: &HandshakeOutcome) -> Vec<OptionReply> {
    option_replies(outcome.out.strip_prefix(GREETING).unwrap())
}

fn only_reply(options: &[Vec<u8>]) -> (u32, u32) {
    let outcome = run(options);
    assert_eq!(outcome.end, Ok(HandshakeStep::NeedMore));
    assert!(outcome.rest.is_empty());
    let replies = replies(&outcome);
    assert_eq!(replies.len(), 1, "{replies:?}");
    (replies[0].option, replies[0].kind)
}

fn chosen(outcome: &HandshakeOutcome) -> usize {
    match outcome.end {
        Ok(HandshakeStep::Transmission { export, .. }) => export.get(),
        other => panic!("no export was chosen: {other:?}"),
    }
}

#[test]
fn the_server_greets_first() {
    let outcome = run_handshake(&exports(), &[], &[]);
    assert_eq!(outcome.out, GREETING);
    assert_eq!(outcome.end, Ok(HandshakeStep::NeedMore));
}

#[test]
fn unknown_client_flags_end_the_connection() {
    let outcome = run_handshake(&exports(), &5u32.to_be_bytes(), &[]);
    assert_eq!(outcome.end, Err(ProtocolError::UnknownClientFlags { flags: 5 }));
}

#[test]
fn export_name_answers_size_and_flags_with_padding_unless_agreed() {
    for (flags, padding) in [(FIXED_NO_ZEROES, 0), (FIXED, 124), (0, 124)] {
        let outcome = run_handshake(&exports(), &client_stream(flags, &[option(EXPORT_NAME, b"attic")]), &[]);
        assert_eq!(chosen(&outcome), 1);
        let answer = outcome.out.strip_prefix(GREETING).unwrap();
        assert_eq!(answer[..8], 4097u64.to_be_bytes());
        assert_eq!(answer[8..10], ATTIC_FLAGS.to_be_bytes());
        assert_eq!(answer[10..], vec![0; padding]);
    }
}

#[test]
fn export_name_of_nothing_ends_the_connection() {
    let outcome = run(&[option(EXPORT_NAME, b"cellar")]);
    assert_eq!(outcome.end, Err(ProtocolError::UnknownExport));
    assert_eq!(outcome.out, GREETING);
}

#[test]
fn go_leaves_the_first_requests_in_the_stream() {
    let mut stream = client_stream(FIXED, &[option(GO, &info_data(b"vault", &[]))]);
    stream.extend(request(0, 0, 1, 0, 512));
    let outcome = run_handshake(&exports(), &stream, &[]);
    assert_eq!(chosen(&outcome), 0);
    assert_eq!(outcome.rest, request(0, 0, 1, 0, 512));
    let replies = replies(&outcome);
    assert_eq!(replies.len(), 2);
    let mut size_and_flags = vec![0, 0];
    size_and_flags.extend((1u64 << 30).to_be_bytes());
    size_and_flags.extend(VAULT_FLAGS.to_be_bytes());
    assert_eq!(replies[0], OptionReply { option: GO, kind: 3, data: size_and_flags });
    assert_eq!(replies[1], OptionReply { option: GO, kind: ACK, data: vec![] });
}

#[test]
fn info_answers_what_was_asked_once_and_goes_on() {
    let outcome = run(&[option(INFO, &info_data(b"", &[1, 2, 3, 3, 2, 77]))]);
    assert_eq!(outcome.end, Ok(HandshakeStep::NeedMore));
    let replies = replies(&outcome);
    assert!(replies.iter().all(|reply| reply.option == INFO));
    let data: Vec<&[u8]> = replies[1..].iter().map(|reply| &reply.data[..]).collect();
    let sizes = b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0";
    assert_eq!(data, [b"\0\x01vault".as_slice(), b"\0\x02the big one", sizes, b""]);
}

#[test]
fn an_empty_description_is_left_out() {
    let outcome = run(&[option(INFO, &info_data(b"attic", &[2]))]);
    assert_eq!(replies(&outcome).iter().map(|reply| reply.kind).collect::<Vec<_>>(), [3, ACK]);
}

#[test]
fn an_unknown_export_is_an_error_reply_to_info_and_go() {
    assert_eq!(only_reply(&[option(INFO, &info_data(b"cellar", &[]))]), (INFO, ERR_UNKNOWN));
    assert_eq!(only_reply(&[option(GO, &info_data(b"\xff\xfe", &[]))]), (GO, ERR_UNKNOWN));
}

#[test]
fn malformed_info_is_an_error_reply() {
    let good = info_data(b"vault", &[1, 2]);
    for length in 0..good.len() {
        assert_eq!(only_reply(&[option(GO, &good[..length])]), (GO, ERR_INVALID), "cut to {length}");
    }
    let mut longer = good.clone();
    longer.push(0);
    assert_eq!(only_reply(&[option(GO, &longer)]), (GO, ERR_INVALID));
    let long_name = vec![b'x'; MAX_STRING_BYTES + 1];
    assert_eq!(only_reply(&[option(GO, &info_data(&long_name, &[]))]), (GO, ERR_TOO_BIG));
}

#[test]
fn list_names_and_describes_every_export() {
    let outcome = run(&[option(LIST, &[])]);
    let replies = replies(&outcome);
    let data: Vec<&[u8]> = replies.iter().map(|reply| &reply.data[..]).collect();
    assert_eq!(data, [b"\0\0\0\x05vaultthe big one".as_slice(), b"\0\0\0\x05attic", b""]);
    assert_eq!(replies.iter().map(|reply| reply.kind).collect::<Vec<_>>(), [2, 2, ACK]);
    assert_eq!(only_reply(&[option(LIST, b"x")]), (LIST, ERR_INVALID));
}

#[test]
fn abort_is_acknowledged_and_closes() {
    let outcome = run(&[option(ABORT, &[]), option(LIST, &[])]);
    assert_eq!(outcome.end, Ok(HandshakeStep::Closed));
    assert_eq!(replies(&outcome), [OptionReply { option: ABORT, kind: ACK, data: vec![] }]);
    assert_eq!(outcome.rest, option(LIST, &[]));
}

#[test]
fn what_is_not_offered_is_refused_and_negotiation_goes_on() {
    for number in [0, 4, STARTTLS, 11, 12, u32::MAX] {
        assert_eq!(only_reply(&[option(number, b"data")]), (number, ERR_UNSUP));
    }
    let outcome = run(&[option(STARTTLS, &[]), option(GO, &info_data(b"", &[]))]);
    assert_eq!(chosen(&outcome), 0);
}

#[test]
fn options_other_than_export_name_need_fixed_newstyle() {
    let outcome = run_handshake(&exports(), &client_stream(0, &[option(LIST, &[])]), &[]);
    assert_eq!(outcome.end, Err(ProtocolError::OptionWithoutFixedNewstyle { option: LIST }));
}

#[test]
fn a_bad_option_magic_ends_the_connection() {
    let mut bad = option(LIST, &[]);
    bad[7] = b'X';
    let found = u64::from_be_bytes(*b"IHAVEOPX");
    assert_eq!(run(&[bad]).end, Err(ProtocolError::BadOptionMagic { found }));
}

#[test]
fn an_overlong_option_ends_the_connection_before_its_data_comes() {
    let longest = option(77, &vec![0; MAX_OPTION_DATA_BYTES]);
    assert_eq!(only_reply(&[longest]), (77, ERR_UNSUP));
    let mut header = option(77, &[]);
    let length = MAX_OPTION_DATA_BYTES as u32 + 1;
    header[12..].copy_from_slice(&length.to_be_bytes());
    assert_eq!(run(&[header]).end, Err(ProtocolError::OptionTooLong { option: 77, length }));
}

#[test]
fn endless_haggling_is_cut_off() {
    let many = vec![option(77, &[]); MAX_OPTIONS as usize];
    assert_eq!(run(&many).end, Ok(HandshakeStep::NeedMore));
    let too_many = vec![option(77, &[]); MAX_OPTIONS as usize + 1];
    assert_eq!(run(&too_many).end, Err(ProtocolError::TooManyOptions));
}

#[test]
fn the_longest_list_fits_and_many_of_them_do_not() {
    let export = |place: usize| Export {
        name: format!("{place:0width$}", width = MAX_STRING_BYTES),
        description: "d".repeat(MAX_STRING_BYTES),
        size_bytes: 1,
        read_only: false,
    };
    let exports = Arc::new(Exports::new((0..MAX_EXPORTS).map(export).collect()).unwrap());
    let once = run_handshake(&exports, &client_stream(FIXED, &[option(LIST, &[])]), &[]);
    assert_eq!(once.end, Ok(HandshakeStep::NeedMore));
    let lists = vec![option(LIST, &[]); 8];
    let often = run_handshake(&exports, &client_stream(FIXED, &lists), &[]);
    assert_eq!(often.end, Err(ProtocolError::TooManyReplies));
    // Whole lists, as many as fit.
    let list_bytes = once.out.len() - GREETING.len();
    let lists_bytes = MAX_HANDSHAKE_REPLY_BYTES / list_bytes * list_bytes;
    assert_eq!(often.out.len() - GREETING.len(), lists_bytes);
}

#[test]
fn exports_are_checked_once() {
    let export = |name: &str| Export {
        name: name.into(),
        description: String::new(),
        size_bytes: 0,
        read_only: false,
    };
    assert_eq!(Exports::new(vec![]), Err(ExportsError::Empty));
    let twice = Exports::new(vec![export("a"), export("a")]);
    assert_eq!(twice, Err(ExportsError::DuplicateName { name: "a".into() }));
    let long = Exports::new(vec![export(&"ä".repeat(MAX_STRING_BYTES))]);
    assert!(matches!(long, Err(ExportsError::StringTooLong { .. })));
    let large = Exports::new(vec![Export { size_bytes: 1 << 63, ..export("a") }]);
    assert!(matches!(large, Err(ExportsError::TooLarge { .. })));
    let many = (0..=MAX_EXPORTS).map(|place| export(&place.to_string())).collect();
    assert_eq!(Exports::new(many), Err(ExportsError::TooMany { count: MAX_EXPORTS + 1 }));
    let named_empty = Exports::new(vec![export("a"), export("")]).unwrap();
    assert_eq!(named_empty.find(b"").unwrap().get(), 1);
}

#[test]
fn a_read_only_export_offers_nothing_that_writes() {
    let exports = exports();
    let [vault, attic] = exports.as_slice() else { panic!("there are two") };
    assert_eq!(vault.transmission_flags(false).bits(), VAULT_FLAGS);
    assert!(attic.transmission_flags(false).contains(TransmissionFlags::READ_ONLY));
    assert!(!attic.transmission_flags(false).contains(TransmissionFlags::SEND_TRIM));
}

fn terms(options: &[Vec<u8>]) -> Terms {
    match run(options).end {
        Ok(HandshakeStep::Transmission { terms, .. }) => terms,
        other => panic!("no export was chosen: {other:?}"),
    }
}

fn contexts(of: &[MetaContext]) -> Contexts {
    of.iter().fold(Contexts::NONE, |set, &context| set.with(context))
}

#[test]
fn structured_replies_are_agreed_on_and_change_the_flags() {
    let go = option(GO, &info_data(b"vault", &[]));
    assert_eq!(terms(std::slice::from_ref(&go)), Terms::default());
    let outcome = run(&[option(STRUCTURED_REPLY, &[]), go]);
    let replies = replies(&outcome);
    assert_eq!(replies[0], OptionReply { option: STRUCTURED_REPLY, kind: ACK, data: vec![] });
    assert_eq!(replies[1].data[10..], (VAULT_FLAGS | DF_FLAG).to_be_bytes());
    let expected = Terms { structured: true, contexts: Contexts::NONE };
    assert!(matches!(outcome.end, Ok(HandshakeStep::Transmission { terms, .. }) if terms == expected));
    assert_eq!(only_reply(&[option(STRUCTURED_REPLY, b"x")]), (STRUCTURED_REPLY, ERR_INVALID));
    let outcome = run(&[option(STRUCTURED_REPLY, &[]), option(EXPORT_NAME, b"attic")]);
    let answer = &outcome.out[outcome.out.len() - 10..];
    assert_eq!(answer[8..], (ATTIC_FLAGS | DF_FLAG).to_be_bytes());
}

#[test]
fn metadata_contexts_are_listed() {
    let listed = |queries: &[&[u8]]| -> Vec<Vec<u8>> {
        let outcome = run(&[option(LIST_META, &meta_data(b"", queries))]);
        let mut replies = replies(&outcome);
        let end = replies.pop().unwrap();
        assert_eq!((end.option, end.kind, end.data), (LIST_META, ACK, vec![]));
        assert!(replies.iter().all(|reply| (reply.option, reply.kind) == (LIST_META, META_CONTEXT)));
        replies.into_iter().map(|reply| reply.data).collect()
    };
    let allocation = b"\0\0\0\0base:allocation".to_vec();
    let tier = b"\0\0\0\0x-bimetal:tier".to_vec();
    let both = [allocation.clone(), tier.clone()];
    assert_eq!(listed(&[]), both);
    assert_eq!(listed(&[b"x-bimetal:", b"base:"]), both, "each once, in one order");
    assert_eq!(listed(&[b"base:", b"base:allocation"]), [allocation]);
    assert_eq!(listed(&[b"x-bimetal:tier"]), [tier]);
    for nothing in [b"".as_slice(), b":", b"base", b"base:alloc", b"qemu:", b"base:allocation:", b"x-"] {
        assert_eq!(listed(&[nothing]), [[]; 0], "{nothing:?}");
    }
}

#[test]
fn metadata_contexts_are_selected_byte_by_byte() {
    let set = option(SET_META, &meta_data(b"vault", &[b"x-bimetal:tier", b"base:allocation", b"no:such"]));
    let outcome = run(&[option(STRUCTURED_REPLY, &[]), set, option(GO, &info_data(b"vault", &[]))]);
    let expected: &[u8] =
        b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x0a\0\0\0\x04\0\0\0\x13\0\0\0\x01base:allocation\
        \0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x0a\0\0\0\x04\0\0\0\x12\0\0\0\x02x-bimetal:tier\
        \0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x0a\0\0\0\x01\0\0\0\0";
    let start = GREETING.len() + 20;
    assert_eq!(outcome.out[start..start + expected.len()], *expected);
    let expected = Terms { structured: true, contexts: contexts(&MetaContext::ALL) };
    assert!(matches!(outcome.end, Ok(HandshakeStep::Transmission { terms, .. }) if terms == expected));
}

#[test]
fn the_last_selection_for_the_chosen_export_counts() {
    let structured = option(STRUCTURED_REPLY, &[]);
    let set = |name: &[u8], queries: &[&[u8]]| option(SET_META, &meta_data(name, queries));
    let go = |name: &[u8]| option(GO, &info_data(name, &[]));
    let selected = |options: &[Vec<u8>]| {
        let mut all = vec![structured.clone()];
        all.extend_from_slice(options);
        terms(&all).contexts
    };
    let tier = Contexts::NONE.with(MetaContext::Tier);
    assert_eq!(selected(&[set(b"", &[b"base:"]), set(b"", &[b"x-bimetal:"]), go(b"vault")]), tier);
    assert_eq!(selected(&[set(b"vault", &[b"x-bimetal:tier"]), go(b"")]), tier, "one export, two names");
    assert_eq!(selected(&[set(b"attic", &[b"x-bimetal:tier"]), go(b"")]), Contexts::NONE);
    assert_eq!(selected(&[set(b"", &[b"base:"]), set(b"", &[]), go(b"")]), Contexts::NONE);
    assert_eq!(selected(&[set(b"", &[b"base:"]), set(b"cellar", &[b"base:"]), go(b"")]), Contexts::NONE);
    let list = option(LIST_META, &meta_data(b"", &[]));
    assert_eq!(selected(&[set(b"", &[b"x-bimetal:"]), list, go(b"")]), tier, "a list selects nothing");
}

#[test]
fn malformed_metadata_queries_are_error_replies() {
    let good = meta_data(b"vault", &[b"base:allocation", b"x-bimetal:tier"]);
    for length in 0..good.len() {
        assert_eq!(only_reply(&[option(LIST_META, &good[..length])]), (LIST_META, ERR_INVALID), "{length}");
    }
    let mut longer = good.clone();
    longer.push(0);
    assert_eq!(only_reply(&[option(LIST_META, &longer)]), (LIST_META, ERR_INVALID));
    let long = vec![b'x'; MAX_STRING_BYTES + 1];
    assert_eq!(only_reply(&[option(LIST_META, &meta_data(&long, &[]))]), (LIST_META, ERR_TOO_BIG));
    assert_eq!(only_reply(&[option(LIST_META, &meta_data(b"", &[&long]))]), (LIST_META, ERR_TOO_BIG));
    assert_eq!(only_reply(&[option(LIST_META, &meta_data(b"cellar", &[]))]), (LIST_META, ERR_UNKNOWN));
    assert_eq!(only_reply(&[option(SET_META, &good)]), (SET_META, ERR_INVALID), "before STRUCTURED_REPLY");
    let mut many = meta_data(b"", &[]);
    let end = many.len();
    many[end - 4..].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(only_reply(&[option(LIST_META, &many)]), (LIST_META, ERR_INVALID));
}
