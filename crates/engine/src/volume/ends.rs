//! What a record in the log ends, until that record is durable: a crash may bring it back before.

use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// What ends, each with the group that its record is in at the latest; none: nobody has said so yet.
#[derive(Serialize, Deserialize)]
pub struct Ends<T> {
    list: Vec<(T, Option<Seq>)>,
}

impl<T> Default for Ends<T> {
    fn default() -> Ends<T> {
        Ends { list: Vec::new() }
    }
}

impl<T> Ends<T> {
    /// Another, by a record in a group that [`Ends::ended_by`] will tell.
    pub fn push(&mut self, it: T) {
        self.list.push((it, None));
    }

    /// Whether all is known to have ended.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// What is not known to have ended.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.list.iter().map(|(it, _)| it)
    }

    /// What was ended of late was ended by records in groups up to this one.
    pub fn ended_by(&mut self, group: Seq) {
        self.list.iter_mut().filter(|(_, after)| after.is_none()).for_each(|(_, after)| *after = Some(group));
    }

    /// The groups that are waited for.
    pub fn waits(&mut self) -> impl Iterator<Item = &mut Seq> {
        self.list.iter_mut().filter_map(|(_, after)| after.as_mut())
    }

    /// Groups up to this one are durable: what has ended with them.
    pub fn durable(&mut self, group: Seq) -> Vec<T> {
        let ended = |(_, after): &mut (T, Option<Seq>)| after.is_some_and(|after| after <= group);
        self.list.extract_if(.., ended).map(|(it, _)| it).collect()
    }
}
