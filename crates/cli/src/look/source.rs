//! Who tells what is where on a volume: its server, or its devices where it has none. Nothing is written by either.

use crate::offline::{self, Looked};
use crate::volume::Volume;
use anyhow::{Context as _, bail};
use bimetal_serve::ask::{self, Taken};
use bimetal_serve::map::{ExtentsDoc, MapDoc};
use bimetal_serve::{Answer, Question};
use std::path::{Path, PathBuf};

/// Who is asked of a volume.
pub(crate) struct Source {
    name: String,
    size_bytes: u64,
    teller: Teller,
}

enum Teller {
    /// The server behind this control socket.
    Server(PathBuf),
    Devices(Box<Looked>),
}

impl Source {
    /// Whoever can tell of a volume.
    pub(crate) fn of(volume: &Volume, quiet: bool) -> anyhow::Result<Source> {
        let (name, control) = (volume.name().0, volume.socket("control")?);
        let silent =
            || format!("the server of {} does not answer on {}", volume.file.display(), control.display());
        if let Some(status) = bimetal_serve::live_status(&control).with_context(silent)? {
            return Ok(Source { name, size_bytes: status.size_bytes, teller: Teller::Server(control) });
        }
        let looked = offline::look(volume, quiet)?;
        let size_bytes = looked.engine.size_bytes();
        Ok(Source { name, size_bytes, teller: Teller::Devices(Box::new(looked)) })
    }

    /// The server behind a control socket, of a volume of this size.
    pub(crate) fn server(name: &str, control: &Path, size_bytes: u64) -> Source {
        Source { name: name.to_owned(), size_bytes, teller: Teller::Server(control.into()) }
    }

    /// Whether a server tells.
    pub(crate) fn is_served(&self) -> bool {
        matches!(self.teller, Teller::Server(_))
    }

    /// Size that clients see.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn ask(&mut self, question: Question) -> anyhow::Result<Answer> {
        let name = &self.name;
        let answer = match &mut self.teller {
            Teller::Server(control) => bimetal_serve::live_answer(control, &question)
                .with_context(|| format!("the server of {name} does not answer on {}", control.display()))?,
            Teller::Devices(looked) => {
                let now = looked.driver.clock.now();
                match ask::ask(name, &mut looked.engine, now, question) {
                    Taken::Answered(answer) => Some(answer),
                    Taken::Begun | Taken::Later => None,
                }
            }
        };
        match answer {
            Some(Answer::Refused(what)) => bail!(what),
            Some(answer) => Ok(answer),
            None => bail!("the server of {name} ended meanwhile; ask again"),
        }
    }

    /// What is where in a range, by cells of at least so many bytes.
    pub(crate) fn map(&mut self, from: u64, to: u64, cell_bytes: u64) -> anyhow::Result<MapDoc> {
        let mut map: Option<MapDoc> = None;
        let mut next = Some(from);
        while let Some(at) = next {
            let part = match self.ask(Question::Map { from, to, at, cell_bytes })? {
                Answer::Map(part) => part,
                other => bail!("the server gave another answer than asked for: {other:?}"),
            };
            next = part.next;
            match &mut map {
                None => map = Some(part),
                Some(map) => map.append(part),
            }
        }
        map.context("the map has no part")
    }

    /// What is where from a byte on, extent by extent, as far as one answer goes; not beyond another byte.
    pub(crate) fn extents(&mut self, from: u64, to: u64) -> anyhow::Result<ExtentsDoc> {
        match self.ask(Question::Extents { from, to })? {
            Answer::Extents(doc) => Ok(doc),
            other => bail!("the server gave another answer than asked for: {other:?}"),
        }
    }
}
