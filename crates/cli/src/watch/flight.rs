//! `bimetal flight`, and `bimetal sim replay-recording`

use super::args::{FlightArgs, ReplayRecordingArgs};
use super::times;
use crate::volume::{self, Volume};
use crate::{Outcome, record, say, say_json, size};
use anyhow::{Context as _, bail};
use bimetal_flight::{Longest, Replayed};
use bimetal_serve::live_flight;
use bimetal_serve::status::{hex, tier_name};
use bimetal_units::{FAST, Nanos, SLOW};
use serde::Serialize;
use std::fs::{File, Permissions};
use std::io::{self, BufReader};
use std::os::unix::fs::PermissionsExt as _;

/// What takes a device less than this is no news.
const WORTH_SAYING_NS: u64 = Nanos::SECOND;

/// What `flight --json` prints.
#[derive(Serialize)]
struct FlightDoc<'a> {
    volume: &'a str,
    file: String,
    bytes: u64,
}

pub(crate) fn write(args: &FlightArgs) -> anyhow::Result<Outcome> {
    let volume = Volume::load(&volume::locate(&args.volume)?)?;
    let control = volume.socket("control")?;
    let name = volume.file.display();
    let silent = || format!("the server of {name} does not answer on {}", control.display());
    let mut handover = match live_flight(&control).with_context(silent)? {
        Some(Ok(handover)) => handover,
        Some(Err(why)) => bail!(why),
        None => bail!("{name}: nobody serves it, so nothing of it is recorded"),
    };
    let cannot = || format!("cannot write {}", args.output.display());
    let mut file = record::output(&args.output, args.force)?;
    file.set_permissions(Permissions::from_mode(0o600)).with_context(cannot)?;
    let bytes = io::copy(&mut handover, &mut file).with_context(cannot)?;
    file.sync_all().with_context(cannot)?;
    if bytes != handover.doc.bytes {
        bail!("{name}: its server went away in the middle; {} has what it said", args.output.display());
    }
    let volume = handover.doc.volume.as_str();
    let doc = FlightDoc { volume, file: args.output.display().to_string(), bytes };
    match args.json {
        true => say_json(&doc)?,
        false => say(&format!("{}: what the engine of {volume} did, {}", doc.file, size::show(bytes))),
    }
    Ok(Outcome::Good)
}

/// What took longest.
#[derive(Serialize)]
struct LongestDoc {
    unix_ms: u64,
    what: String,
    took_us: u64,
    answered: bool,
}

#[derive(Serialize)]
struct EventLine {
    unix_ms: u64,
    message: String,
}

#[derive(Serialize)]
struct DifferenceDoc {
    item: u64,
    unix_ms: u64,
    recorded: String,
    done: String,
}

/// What `sim replay-recording --json` prints.
#[derive(Serialize)]
struct ReplayDoc {
    volume_id: String,
    from_unix_ms: u64,
    to_unix_ms: u64,
    items: u64,
    requests: u64,
    actions: u64,
    replies: u64,
    completions: u64,
    errors: u64,
    metadata_bytes: u64,
    events: Vec<EventLine>,
    slowest_fast: Option<LongestDoc>,
    slowest_slow: Option<LongestDoc>,
    longest_request: Option<LongestDoc>,
    panicked: bool,
    torn: bool,
    difference: Option<DifferenceDoc>,
}

fn unix_ms(at: Nanos) -> u64 {
    at.0 / Nanos::MS
}

impl LongestDoc {
    fn new(longest: Option<&Longest>) -> Option<LongestDoc> {
        let Longest { at, what, took_ns, answered } = longest?;
        let (unix_ms, took_us) = (unix_ms(*at), took_ns / 1000);
        Some(LongestDoc { unix_ms, what: what.clone(), took_us, answered: *answered })
    }
}

impl ReplayDoc {
    fn new(replayed: &Replayed) -> ReplayDoc {
        let events = replayed.events.iter();
        let difference = replayed.difference.as_ref();
        ReplayDoc {
            volume_id: hex(&replayed.volume),
            from_unix_ms: unix_ms(replayed.from),
            to_unix_ms: unix_ms(replayed.to),
            items: replayed.items,
            requests: replayed.requests,
            actions: replayed.actions,
            replies: replayed.replies,
            completions: replayed.completions,
            errors: replayed.errors,
            metadata_bytes: replayed.metadata_bytes,
            events: events
                .map(|told| EventLine { unix_ms: unix_ms(told.at), message: told.event.message.clone() })
                .collect(),
            slowest_fast: LongestDoc::new(replayed.slowest[FAST].as_ref()),
            slowest_slow: LongestDoc::new(replayed.slowest[SLOW].as_ref()),
            longest_request: LongestDoc::new(replayed.longest.as_ref()),
            panicked: replayed.panicked,
            torn: replayed.torn,
            difference: difference.map(|difference| DifferenceDoc {
                item: difference.item,
                unix_ms: unix_ms(difference.at),
                recorded: difference.recorded.clone(),
                done: difference.done.clone(),
            }),
        }
    }
}

pub(crate) fn replay(args: &ReplayRecordingArgs) -> anyhow::Result<Outcome> {
    let name = args.file.display();
    let file = File::open(&args.file).with_context(|| format!("cannot read {name}"))?;
    if !file.metadata().with_context(|| format!("cannot read {name}"))?.is_file() {
        bail!("{name}: not a regular file");
    }
    let replayed = bimetal_flight::replay(&mut BufReader::new(file)).with_context(|| name.to_string())?;
    match args.json {
        true => say_json(&ReplayDoc::new(&replayed))?,
        false => describe(&replayed),
    }
    Ok(match &replayed.difference {
        None => Outcome::Good,
        Some(difference) => Outcome::Problem(format!(
            "{name}: at item {} the engine did something else; recorded: {}; done: {}",
            difference.item, difference.recorded, difference.done
        )),
    })
}

fn describe(replayed: &Replayed) {
    let Replayed { requests, actions, completions, errors, .. } = replayed;
    let seconds = replayed.to.since(replayed.from) as f64 / Nanos::SECOND as f64;
    let same = if replayed.difference.is_some() { "up to a difference" } else { "the same, to the byte" };
    say(&format!(
        "{seconds:.1} s from {}: {requests} requests, {completions} answers of devices ({errors} errors), {actions} \
         things done: {same}",
        times::shown(unix_ms(replayed.from))
    ));
    if replayed.torn {
        say("it ends in the middle of something, or is damaged there; what was before that counts");
    }
    if replayed.panicked {
        say("the engine panicked at the end, as it had when this was recorded");
    }
    for told in &replayed.events {
        say(&format!("{}  {}", times::shown(unix_ms(told.at)), told.event.message));
    }
    let devices = [FAST, SLOW].map(|tier| (tier_name(usize::from(tier.0)), replayed.slowest[tier].as_ref()));
    for (tier, longest) in devices {
        longest.into_iter().for_each(|longest| say_longest(&format!("the {tier} device"), longest));
    }
    replayed.longest.iter().for_each(|longest| say_longest("clients", longest));
}

/// Says what took longest, if that is long.
fn say_longest(whom: &str, longest: &Longest) {
    let Longest { at, what, took_ns, answered } = longest;
    if *took_ns >= WORTH_SAYING_NS {
        let seconds = *took_ns as f64 / Nanos::SECOND as f64;
        let end = if *answered { "" } else { " and was not answered" };
        say(&format!("longest for {whom}: {seconds:.1} s{end}: {what}, from {}", times::shown(unix_ms(*at))));
    }
}
