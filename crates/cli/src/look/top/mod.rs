//! `bimetal top`: what volumes do now.

mod kernel;
mod once;
mod sample;
mod screen;
#[cfg(test)]
mod tests;
mod watch;
mod words;

use super::args::TopArgs;
use crate::Outcome;
use anyhow::{Context as _, bail};
use bimetal_driver::signals::StopSignals;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, poll};
use screen::View;
use std::io::IsTerminal as _;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// How soon it is noticed that the process is asked to end.
const NOTICED_WITHIN: Duration = Duration::from_millis(250);

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<Outcome> {
    let volumes = watch::volumes(&args.volumes)?;
    // NO_COLOR that is set to anything asks for none (no-color.org).
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let view = View { volumes, colour, keys: true, ..View::default() };
    if args.once {
        return once::run(view, args.json);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!(
            "standard input and output are no terminal; --once prints one screen as text, and with --json a document"
        );
    }
    // SIGHUP ends it as ever: there is no terminal any more that would have to be put in order.
    let signals = StopSignals::new().context("cannot catch signals")?;
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let ended = watch(&mut terminal, view, args.volumes.is_empty(), &signals);
    ratatui::restore();
    ended.map(|()| Outcome::Good)
}

/// Looks and draws until somebody wants it to end.
fn watch(
    terminal: &mut DefaultTerminal,
    mut view: View,
    all: bool,
    signals: &StopSignals,
) -> anyhow::Result<()> {
    let mut next = Instant::now();
    loop {
        if Instant::now() >= next {
            if all {
                join(&mut view)?;
            }
            view.volumes.iter_mut().for_each(watch::Watched::look);
            // One that took long to look at, or to draw, is not looked at more often to make up for that.
            next = Instant::now() + watch::EVERY;
        }
        view.picked = view.picked.min(view.volume().map_or(0, |volume| volume.hot.len().saturating_sub(1)));
        terminal
            .draw(|frame| screen::draw(frame.area(), frame.buffer_mut(), &view))
            .context("cannot draw")?;
        loop {
            if event::poll(Duration::ZERO).context("cannot read the terminal")? {
                match event::read().context("cannot read the terminal")? {
                    Event::Key(key) if key.kind == KeyEventKind::Press && wants_end(key, &mut view) => {
                        return Ok(());
                    }
                    _ => break,
                }
            }
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if is_over(signals, left.min(NOTICED_WITHIN)) {
                return Ok(());
            }
        }
    }
}

/// Adds volumes that are served by now.
fn join(view: &mut View) -> anyhow::Result<()> {
    for volume in watch::volumes(&[])? {
        if !view.volumes.iter().any(|known| known.is_same(&volume)) {
            view.volumes.push(volume);
        }
    }
    Ok(())
}

/// Waits for a key or for so long; whether the process is asked to end, or its terminal has gone.
fn is_over(signals: &StopSignals, at_most: Duration) -> bool {
    let stdin = std::io::stdin();
    let mut fds = [
        PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN),
    ];
    let limit =
        rustix::event::Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
    // Where it is interrupted, the terminal has another size.
    let ready = poll(&mut fds, Some(&limit)).unwrap_or(0);
    ready > 0
        && (!fds[0].revents().is_empty() || fds[1].revents().intersects(PollFlags::HUP | PollFlags::ERR))
}

/// Does what a key is for; whether that is to end.
fn wants_end(key: KeyEvent, view: &mut View) -> bool {
    let volumes = view.volumes.len().max(1);
    match key.code {
        KeyCode::Char('q') => return true,
        // In raw mode the terminal sends it as a key.
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
        KeyCode::Esc if view.why.is_none() => return true,
        KeyCode::Esc => view.why = None,
        KeyCode::Tab | KeyCode::Right => choose(view, (view.chosen + 1) % volumes),
        KeyCode::BackTab | KeyCode::Left => choose(view, (view.chosen + volumes - 1) % volumes),
        KeyCode::Char('s') => view.sort = view.sort.next(),
        KeyCode::Char('p') => pause(view),
        KeyCode::Down => view.picked += 1,
        KeyCode::Up => view.picked = view.picked.saturating_sub(1),
        KeyCode::Enter | KeyCode::Char('w') => view.why = why(view),
        _ => {}
    }
    false
}

/// Pauses the moves of the volume of which more is told, or resumes them; where that cannot be, it is said why.
fn pause(view: &mut View) {
    let Some(volume) = view.volumes.get_mut(view.chosen) else { return };
    match volume.pause() {
        Ok(()) => volume.look(),
        Err(what) => view.why = Some(vec![format!("moves cannot be paused: {what}")]),
    }
}

fn choose(view: &mut View, volume: usize) {
    (view.chosen, view.picked, view.why) = (volume, 0, None);
}

/// Why the hottest chunk of the range that is marked is where it is.
fn why(view: &View) -> Option<Vec<String>> {
    let volume = view.volume()?;
    let Some(cell) = volume.hot.get(view.picked) else {
        return Some(vec!["no range is marked: nothing is hot, or it has not been found yet".to_owned()]);
    };
    Some(match volume.why(cell.hottest_offset) {
        Ok(doc) => {
            let end = doc.offset + u64::from(doc.chunk_bytes);
            let head = format!("chunk {}, bytes {} to {end}", doc.chunk, doc.offset);
            std::iter::once(head).chain(doc.sentences).collect()
        }
        Err(what) => vec![what],
    })
}
