//! Plain memory that the guard moves to the host and back, while programs wait and their addresses stay.
//!
//! A share asks for it (`limits::PAGES`). Then large plain memory is physical memory that the guard maps to addresses which it has
//! reserved (the driver's virtual memory management). A move copies it, and gives only the physical memory back.
//!
//! ```text
//! calls     threads in functions of the driver: none is there while memory moves, or is away
//! span      reserved addresses, and physical memory that is mapped there
//! memory    one allocation: made and freed, moved out and back
//! work      the end of work on the GPU, before memory moves
//! moves     all allocations of a share, as the agent asks by the lease page
//! shown     how much of it there is, for the agent
//! ```
//!
//! Memory goes by the driver's own copy to and from ordinary memory of the process. The driver stages it through pinned memory. So
//! the kernel counts it for the container, and pins none of it. Memory of `cuMemHostAlloc` would be pinned for as long, which takes
//! about the time of the copy, and is not counted for the container by each driver.
//!
//! Memory of other functions stays where it is: small pieces of slabs, pools, arrays, contexts, what a program maps itself. So do
//! plain allocations for which a step failed, and all of a process that sees several GPUs: they could not reach it by peer access.

use crate::shares::Shares;

mod calls;
mod memory;
mod moves;
mod shown;
mod span;
mod work;

use calls::Calls;

pub(crate) use calls::{Entered, enter};
pub(crate) use memory::{Range, allocate, end_with, find, free, set_sync};
pub(crate) use moves::serve;
pub(crate) use span::SYNC_MEMOPS;

/// What a process knows of its movable memory. Zero bytes are that of a process without any.
#[derive(Debug)]
pub(crate) struct Movable {
    calls: Calls,
}

/// Begins with the shares of a process.
pub(crate) fn begin(shares: &Shares) {
    calls::count(shares.all().iter().any(|share| share.moves_pages));
}
