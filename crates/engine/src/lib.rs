//! The tiered volume: a sans-I/O state machine.
