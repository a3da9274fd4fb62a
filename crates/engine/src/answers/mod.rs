//! What is answered at once to whoever asks: where things are and why, counters, moments that tests wait for.

mod extents;
mod heat;
mod losses;
mod moments;
mod pins;
mod scrub;
mod status;
mod tally;
mod why;
