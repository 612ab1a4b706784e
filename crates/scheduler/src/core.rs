//! What decides: changes in, orders out. One thread, no I/O, no clock.
