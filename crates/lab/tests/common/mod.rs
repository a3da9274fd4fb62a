//! What several tests begin with.

use bimetal_lab::session::Session;

/// A session of a test, in virtual time, on one place.
pub fn session(title: &str, place: &str) -> Session {
    Session {
        title: title.to_owned(),
        environment: Default::default(),
        places: vec![place.to_owned()],
        seed: 1,
        virtual_time: true,
        notes: Vec::new(),
    }
}
