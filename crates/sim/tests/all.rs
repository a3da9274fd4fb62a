//! All scenarios, and what is held against peers, as one program: the engine is compiled anew for each program that drives it.

mod long_queue;
mod matrix;
mod peers;
mod protected;
mod rest;
mod scenarios;
