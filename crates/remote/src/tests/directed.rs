//! What chance seldom comes to.

use super::{CELL, PATIENCE_NS, World, agreed, cases};
use crate::session::{Ask, Doubt, News, Outbox, Seal, Session, Wish};
use bimetal_engine::arena::Buf;
use bimetal_nbd::{Command, NbdErrno, Parse, Transmission, simple_reply};
use bimetal_units::Nanos;

#[test]
fn another_export_is_never_written_to() {
    let mut world = World::new(1);
    world.server.fails = false;
    world.server.most_bytes = 1 << 20;
    let judge = Box::new(super::judge);
    world.session = Session::new(agreed(&world.server, false), PATIENCE_NS, Nanos(0));
    world.session.seal(Seal { places: Vec::new(), judge: Box::new(|_| Ok(())) });
    let bufs = || std::iter::once(Buf { start: 0, len: CELL as u32 }).collect();
    world.room.0 = vec![9; CELL];
    world.session.ask(world.now, Ask::Write { offset: 0, bufs: bufs(), durable: false }, 1);
    for _ in 0..1000 {
        world.step(true);
    }
    assert!(world.session.take_news().is_empty());
    // The server comes back as another one.
    world.session.seal(Seal { places: vec![0], judge });
    world.session.break_off(world.now, "it was cut".to_owned());
    world.session.closed(world.now, &mut world.room);
    let before = world.server.cache;
    world.session.ask(world.now, Ask::Write { offset: 0, bufs: bufs(), durable: false }, 2);
    world.now = world.now.after(Nanos::SECOND);
    world.session.dialing();
    world.connect();
    let mut out = [0; 4096];
    let mut out = Outbox::new(&mut out, 64);
    assert!(world.session.waiting() > 0 && world.session.fill(0, world.now, 9, &mut out));
    assert_eq!(out.used(), 28, "only a superblock is read");
    world.session.sent(0, world.now, &mut world.room);
    let Ok(Parse::Request { request, .. }) = Transmission::new().next(&out.scratch()[..28]) else { panic!() };
    assert_eq!((request.command, request.offset, request.length), (Command::Read, 0, 4096));
    let reply = [&simple_reply(request.cookie, None)[..], &[1; 4096]].concat();
    world.session.received(0, world.now, &reply, &mut world.room);
    let news = world.session.take_news();
    assert!(matches!(news.last(), Some(News::Lost(why)) if why == "it begins with 1"), "{news:?}");
    assert_eq!(world.session.take_done(), Some((2, -libc::EIO)));
    assert_eq!(world.server.cache, before);
}

#[test]
fn a_superblock_that_cannot_be_read_says_nothing_where_another_does() {
    for readable in [1, 0] {
        let mut world = World::new(1);
        world.session = Session::new(agreed(&world.server, false), PATIENCE_NS, Nanos(0));
        let judge = Box::new(|blocks: &[Vec<u8>]| match (blocks[0][0], blocks[1][0]) {
            (0, 7) => Ok(()),
            other => Err(Doubt::Other(format!("they begin with {other:?}"))),
        });
        world.session.seal(Seal { places: vec![0, 4096], judge });
        world.session.ask(world.now, Ask::Flush, 1);
        world.session.dialing();
        world.connect();
        let mut out = [0; 4096];
        let mut out = Outbox::new(&mut out, 64);
        assert!(world.session.fill(0, world.now, 9, &mut out));
        world.session.sent(0, world.now, &mut world.room);
        for (header, works) in out.scratch().chunks(28).zip([false, readable == 1]) {
            let Ok(Parse::Request { request, .. }) = Transmission::new().next(header) else { panic!() };
            let reply = match works {
                true => [&simple_reply(request.cookie, None)[..], &[7; 4096]].concat(),
                false => simple_reply(request.cookie, Some(NbdErrno::Io)).to_vec(),
            };
            world.session.received(0, world.now, &reply, &mut world.room);
        }
        let wish = world.session.wish(world.now);
        assert_eq!(wish, if readable == 1 { Wish::Serve } else { Wish::Close });
        assert!(!world.session.take_news().iter().any(|news| matches!(news, News::Lost(_))));
    }
}

#[test]
fn who_waits_too_long_is_told_unless_it_is_for_a_flush() {
    let mut world = World::new(1);
    world.server.fails = false;
    let buf = Buf { start: 0, len: CELL as u32 };
    world.room.0 = vec![9; CELL];
    let bufs = std::iter::once(buf).collect();
    world.session.ask(world.now, Ask::Write { offset: 0, bufs, durable: false }, 1);
    while world.session.take_done().is_none() {
        let (now, wish) = (world.now, world.session.wish(world.now));
        if wish == Wish::Dial {
            world.session.dialing();
            world.connect();
        }
        world.send(0);
        world.kernel_sent(0);
        world.serve(0);
        world.deliver(0);
        world.now = now.after(Nanos::MS);
    }
    world.session.seal(Seal { places: Vec::new(), judge: Box::new(|_| Ok(())) });
    world.session.break_off(world.now, "it was cut".to_owned());
    world.session.closed(world.now, &mut world.room);
    world.session.ask(world.now, Ask::Flush, 2);
    world.session.ask(world.now, Ask::Read { offset: 0, buf }, 3);
    world.session.on_time(world.now.after(PATIENCE_NS - 1));
    assert_eq!(world.session.take_done(), None);
    world.session.on_time(world.now.after(PATIENCE_NS));
    assert_eq!(world.session.take_done(), Some((3, -libc::ETIMEDOUT)));
    world.session.on_time(world.now.after(100 * PATIENCE_NS));
    assert_eq!(world.session.take_done(), None);
}

/// Who asks for one thing after the other waits for the patience once, not for each: a stream of writes that waited for their
/// turns was answered after twenty minutes.
#[test]
fn what_is_asked_of_an_export_that_is_away_for_long_is_given_up_soon() {
    let mut world = World::new(1);
    let buf = Buf { start: 0, len: CELL as u32 };
    world.session.dialing();
    world.session.refused(world.now, "nobody is there");
    let after = |ns| world.now.after(ns);
    let (first, later) = (after(PATIENCE_NS), after(2 * PATIENCE_NS));
    world.session.ask(world.now, Ask::Read { offset: 0, buf }, 1);
    world.session.on_time(first);
    assert_eq!(world.session.take_done(), Some((1, -libc::ETIMEDOUT)));
    world.session.ask(later, Ask::Read { offset: 0, buf }, 2);
    world.session.on_time(later.after(Nanos::SECOND));
    assert_eq!(world.session.take_done(), None, "it may come back with the next attempt");
    let soon = later.after(5 * Nanos::SECOND);
    assert!(world.session.deadline().is_some_and(|at| at <= soon));
    world.session.on_time(soon);
    assert_eq!(world.session.take_done(), Some((2, -libc::ETIMEDOUT)));
}

/// A server that answers, and does not take again what it may have lost, is not one that may answer yet: who waited for marks
/// waited for ever.
#[test]
fn who_waits_for_a_server_that_refuses_is_told_what_it_says() {
    let mut world = World::new(1);
    world.server.fails = false;
    let buf = Buf { start: 0, len: CELL as u32 };
    let write = || Ask::Write { offset: 0, bufs: std::iter::once(buf).collect(), durable: false };
    world.room.0 = vec![9; CELL];
    world.session.ask(world.now, write(), 1);
    let mut done = Vec::new();
    let until = world.now.after(10 * PATIENCE_NS);
    while done.len() < 2 && world.now < until {
        match world.session.wish(world.now) {
            Wish::Dial => {
                world.session.dialing();
                world.connect();
            }
            Wish::Close => world.session.closed(world.now, &mut world.room),
            _ => {}
        }
        world.session.on_time(world.now);
        world.send(0);
        world.kernel_sent(0);
        world.serve(0);
        world.deliver(0);
        while let Some(answer) = world.session.take_done() {
            if done.is_empty() {
                world.server.refuses = true;
                world.session.break_off(world.now, "it was cut".to_owned());
                world.session.ask(world.now, write(), 2);
            }
            done.push(answer);
        }
        world.now = world.now.after(Nanos::MS);
    }
    assert_eq!(done, [(1, CELL as i32), (2, -libc::EIO)]);
}

/// An opening waited for ever where its export went away before its first flush was answered.
#[test]
fn before_anything_is_promised_a_flush_is_not_waited_for_longer() {
    let mut world = World::new(1);
    world.session.ask(world.now, Ask::Flush, 1);
    world.session.dialing();
    world.session.refused(world.now, "nobody is there");
    world.session.on_time(world.now.after(PATIENCE_NS - 1));
    assert_eq!(world.session.take_done(), None);
    assert!(world.session.deadline().is_some_and(|at| at <= world.now.after(PATIENCE_NS)));
    world.session.on_time(world.now.after(PATIENCE_NS));
    assert_eq!(world.session.take_done(), Some((1, -libc::ETIMEDOUT)));
}

#[test]
fn what_no_server_says_breaks_the_connection_and_nothing_else() {
    let mut broken = 0;
    for seed in cases(2_000) {
        let mut world = World::new(seed);
        for _ in 0..100 {
            world.step(false);
        }
        if world.lines.is_empty() || world.session.wish(world.now) != Wish::Serve {
            continue;
        }
        let mut bytes = vec![0; 64];
        world.rng.fill(&mut bytes);
        if world.rng.one_in(2) {
            let magic: u32 = if world.rng.one_in(2) { 0x6744_6698 } else { 0x668e_33ef };
            bytes[..4].copy_from_slice(&magic.to_be_bytes());
        }
        world.session.received(0, world.now, &bytes, &mut world.room);
        broken += u32::from(world.session.wish(world.now) == Wish::Close);
    }
    // Amid the payload of a read, any bytes are some.
    assert!(broken > 500, "only {broken} connections were broken");
}

#[test]
fn a_connection_of_which_nothing_is_heard_is_broken_and_a_slow_one_is_not() {
    let mut world = World::new(1);
    (world.server.fails, world.server.structured) = (false, false);
    world.multi = false;
    world.room.0 = vec![9; 2 * CELL];
    for tag in 0..2 {
        let buf = Buf { start: tag * CELL as u64, len: CELL as u32 };
        world.session.ask(world.now, Ask::Read { offset: buf.start, buf }, tag);
    }
    world.session.dialing();
    world.connect();
    let begun = world.now;
    let at = |seconds: u64| begun.after(seconds * Nanos::SECOND);
    while world.lines[0].pending.len() < 2 {
        world.send(0);
        world.kernel_sent(0);
        world.read_requests(0);
    }
    // The first answer comes late, and in two parts.
    let (request, bytes) = world.lines[0].pending.remove(0);
    let answer = world.server.answer(&mut world.rng, &request, &bytes);
    let (one, two) = answer.split_at(answer.len() / 2);
    world.session.received(0, at(20), one, &mut world.room);
    world.session.on_time(at(45));
    world.session.received(0, at(45), two, &mut world.room);
    world.session.on_time(at(74));
    assert_eq!((world.session.take_done(), world.session.standing().breaks), (Some((0, CELL as i32)), 0));
    assert_eq!(world.session.deadline(), Some(at(75)));
    world.session.on_time(at(75));
    assert_eq!((world.session.wish(at(75)), world.session.standing().breaks), (Wish::Close, 1));
}
