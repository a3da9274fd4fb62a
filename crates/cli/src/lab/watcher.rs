//! Who is told only how far a test is.

use super::stop::Stop;
use crate::progress::Progress;
use bimetal_lab::classic::disktester::Audience;

/// Tells how far it is, and nothing else.
pub(super) struct Watcher<'s> {
    what: &'s str,
    quiet: bool,
    stop: &'s Stop,
    part: Option<(String, Progress)>,
}

impl<'s> Watcher<'s> {
    pub(super) fn new(what: &'s str, quiet: bool, stop: &'s Stop) -> Watcher<'s> {
        Watcher { what, quiet, stop, part: None }
    }
}

impl Audience for Watcher<'_> {
    fn line(&mut self, _text: &str) {}

    fn going(&mut self, what: &str, share: f64) {
        if self.part.as_ref().is_none_or(|(part, _)| part != what) {
            self.part = Some((what.to_owned(), Progress::new(format!("{}{what}", self.what), self.quiet)));
        }
        if let Some((_, progress)) = &mut self.part {
            progress.at(&format!("{:.0} %", share * 100.0));
        }
    }

    fn goes_on(&mut self) -> bool {
        !self.stop.is_asked_for()
    }
}
