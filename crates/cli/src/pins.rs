//! `bimetal pin`, `bimetal unpin`, `bimetal pins` and `bimetal why`

use crate::args::{PinArgs, PinTier, PinsArgs, UnpinArgs, WhyArgs};
use crate::offline::with_closed;
use crate::volume::{self, Volume};
use crate::{Outcome, say, say_json, size};
use anyhow::{Context as _, bail};
use bimetal_driver::{Driver, RealArena};
use bimetal_engine::Engine;
use bimetal_serve::ask::{self, PinDoc, Taken, TierName};
use bimetal_serve::{Answer, EventDoc, PinsDoc, Question, WhyDoc, pin_event};
use std::io;
use std::path::Path;
use std::time::Duration;

pub(crate) fn pin(args: &PinArgs) -> anyhow::Result<Outcome> {
    let tier = match args.tier {
        PinTier::Fast => TierName::Fast,
        PinTier::Slow => TierName::Slow,
    };
    let (offset, length) = (args.range.offset, args.range.length);
    let doc = pins_of(&args.range.volume, args.json, Question::Pin { offset, length, tier })?;
    say_pins(&doc, args.json)
}

pub(crate) fn unpin(args: &UnpinArgs) -> anyhow::Result<Outcome> {
    let (offset, length) = (args.range.offset, args.range.length);
    let doc = pins_of(&args.range.volume, args.json, Question::Unpin { offset, length })?;
    say_pins(&doc, args.json)
}

pub(crate) fn pins(args: &PinsArgs) -> anyhow::Result<Outcome> {
    say_pins(&pins_of(&args.volume, args.json, Question::Pins {})?, args.json)
}

pub(crate) fn why(args: &WhyArgs) -> anyhow::Result<Outcome> {
    let doc = match answer(&args.volume, args.json, Question::Why { offset: args.offset })? {
        Answer::Why(doc) => doc,
        other => bail!("the server gave another answer than asked for: {other:?}"),
    };
    if args.json {
        say_json(&doc)?;
    } else {
        say(&describe(&doc));
    }
    Ok(Outcome::Good)
}

fn pins_of(volume: &str, quiet: bool, question: Question) -> anyhow::Result<PinsDoc> {
    match answer(volume, quiet, question)? {
        Answer::Pins(doc) => Ok(doc),
        other => bail!("the server gave another answer than asked for: {other:?}"),
    }
}

/// Changes the pins of the volume of a file; gives all that there are then.
pub(crate) fn change(volume: &str, question: Question) -> anyhow::Result<PinsDoc> {
    pins_of(volume, true, question)
}

/// Asks the server of a volume, or its engine where there is none.
fn answer(volume: &str, quiet: bool, question: Question) -> anyhow::Result<Answer> {
    let volume = Volume::load(&volume::locate(volume)?)?;
    let control = volume.socket("control")?;
    let silent =
        || format!("the server of {} does not answer on {}", volume.file.display(), control.display());
    let answer = match ask_server(&control, question).with_context(silent)? {
        Some(answer) => answer,
        None => with_closed(&volume, quiet, |driver, engine| {
            let question = within(question, engine.size_bytes());
            let name = volume.name().0;
            let answer = ask_engine(&name, driver, engine, question)?;
            if let (Answer::Pins(_), Some(event)) = (&answer, pin_event(&name, question)) {
                note(&volume, &event);
            }
            Ok(answer)
        })?,
    };
    match answer {
        Answer::Refused(what) => bail!(what),
        answer => Ok(answer),
    }
}

/// Notes what happened to a volume that nobody serves. It has happened, whether that can be noted or not.
fn note(volume: &Volume, event: &EventDoc) {
    let path = volume.events_file();
    if let Err(error) = bimetal_watch::events::add(&path, event) {
        tracing::warn!("{} cannot be written: {error}", path.display());
    }
}

/// Asks the server behind a control socket; `None` when there is none.
fn ask_server(control: &Path, question: Question) -> io::Result<Option<Answer>> {
    let mut question = question;
    if let Question::Unpin { .. } = question {
        let Some(status) = bimetal_serve::live_status(control)? else { return Ok(None) };
        question = within(question, status.size_bytes);
    }
    bimetal_serve::live_answer(control, &question)
}

/// Whoever unpins all of a volume need not know how much that is: what is unpinned ends with the volume.
fn within(question: Question, size_bytes: u64) -> Question {
    match question {
        Question::Unpin { offset, length } if offset < size_bytes => {
            Question::Unpin { offset, length: length.min(size_bytes - offset) }
        }
        question => question,
    }
}

/// Asks an engine that nobody else uses.
fn ask_engine(
    name: &str,
    driver: &mut Driver,
    engine: &mut Engine<RealArena>,
    question: Question,
) -> anyhow::Result<Answer> {
    match ask::ask(name, engine, driver.clock.now(), question) {
        Taken::Answered(answer) => return Ok(answer),
        Taken::Begun => {}
        Taken::Later => bail!("{name}: its pins are being changed; try again"),
    }
    loop {
        driver.pump(engine, |_, _, _| {});
        if let Some(answer) = ask::conclude(name, engine) {
            return Ok(answer);
        }
        driver.wait(engine, Some(Duration::from_secs(1))).context("io_uring failed")?;
        driver.harvest(engine, |_| {});
    }
}

/// Prints what is pinned.
pub(crate) fn say_pins(doc: &PinsDoc, json: bool) -> anyhow::Result<Outcome> {
    if json {
        say_json(doc)?;
    }
    if !doc.known {
        return Ok(Outcome::Problem(format!(
            "{}: the list of pins could not be read when the volume was opened; open it again",
            doc.volume
        )));
    }
    if json {
        return Ok(Outcome::Good);
    }
    if doc.pins.is_empty() {
        say(&format!("{}: nothing is pinned", doc.volume));
    }
    doc.pins.iter().for_each(|pin| say(&describe_pin(pin)));
    for tier in &doc.tiers {
        let (pinned, room) = (size::show(tier.pinned_bytes), size::show(tier.room_bytes));
        say(&format!("{}: {pinned} pinned to the {} tier, of {room} that may be", doc.volume, tier.tier));
    }
    Ok(Outcome::Good)
}

fn describe_pin(pin: &PinDoc) -> String {
    let progress = match (pin.settled_bytes, pin.astray_bytes) {
        (Some(settled), Some(0)) => format!("{} there", size::show(settled)),
        (Some(settled), Some(astray)) => {
            format!("{} there, {} to be moved", size::show(settled), size::show(astray))
        }
        _ => "too much to count".to_owned(),
    };
    format!("{:<5} byte {:>15}   {:>10}   {progress}", pin.tier, pin.offset, size::show(pin.length_bytes))
}

fn describe(doc: &WhyDoc) -> String {
    let end = doc.offset + u64::from(doc.chunk_bytes);
    let mut text =
        format!("{}: chunk {}, bytes {} to {end} of the volume", doc.volume, doc.chunk, doc.offset);
    for sentence in &doc.sentences {
        text += &format!("\n  {sentence}");
    }
    text
}
