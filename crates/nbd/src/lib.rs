//! The NBD wire protocol, sans-I/O.
