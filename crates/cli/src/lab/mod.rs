//! `bimetal lab`

mod stop;
mod target;
