//! The production loop: one thread, one io_uring, sockets and devices alike.
