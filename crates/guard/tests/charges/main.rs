//! Charges of the guard, compared with the memory of the simulated GPU. Each test runs in a
//! separate process, in which the guard is preloaded. The process loads the simulated driver as
//! programs load NVIDIA's.
//!
//! # Gaps of HAMi-core
//!
//! Published gaps, and the tests that check them here. Other behaviour of the guard is tested in
//! `embedded`, the ledger in `guard-abi`.
//!
//! | HAMi-core | test |
//! |---|---|
//! | a release after a map gives the memory back to the limit | `vmm::a_release_after_a_map_gives_nothing_back` |
//! | memory of pools by `cuMemAllocFromPoolAsync` is not counted | `pools::memory_of_a_pool_of_ones_own_is_counted` |
//! | pools of a program's own are not counted | `pools::what_a_pool_keeps_stays_counted` |
//! | `_ptsz` functions are not hooked | `pools::the_per_thread_stream_is_charged` |
//! | graphs that allocate are not counted | `graphs::a_graph_that_does_not_fit_is_not_launched` |
//! | memory captured into a graph is counted when it is captured | `graphs::what_is_captured_is_counted_once` |
//! | arrays are not counted | `arrays::arrays_are_counted_up_to_the_limit` |
//! | mipmapped arrays are checked after the fact | `arrays::mipmapped_arrays_are_counted_with_their_levels` |
//! | stacks for all threads of a GPU, gigabytes, are not counted | `limits::stacks_count_for_all_resident_threads` |
//! | the device heap is not counted | `limits::a_heap_that_does_not_fit_is_refused` |
//! | contexts other than the primary one are not counted | `limits::a_limit_goes_with_its_context`; `embedded` |
//! | imported memory crashes it or is counted for the wrong process | `vmm::imported_memory_counts_for_its_owner` |
//! | host memory is taken for GPU memory (`Illegal device id`) | `vmm::memory_of_the_host_is_not_counted` |
//! | opened memory of other processes | `shared::opened_memory_counts_for_its_owner` |
//! | expandable segments are miscounted | `vmm::segments_that_grow_and_shrink_are_counted_to_the_byte` |
//! | an allocation that the driver refuses stays counted | `faults::what_the_driver_refuses_is_not_counted` |
//! | counts fall below zero | `model::random_work_is_never_counted_for_less_than_it_has` |
//! | a share over its limit gets an error from `cuMemGetInfo` | `embedded`, `limits` |
//! | `nvmlDeviceGetMemoryInfo` shows the whole GPU or fails | `view::nvml_shows_the_share` |
//! | other tenants' processes are listed | `view::only_the_shares_processes_are_listed_by_their_own_numbers` |
//! | 190 wrapped functions, of which a handful change anything | `view::nothing_can_be_set` |
//! | two processes both pass the check | `shared::racing_processes_are_refused_by_the_guard_never_by_the_gpu`; `guard-abi` |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "tests call C functions with pointers to their own locals and may fail loudly"
)]

mod agent;
mod container;
mod cuda;

mod advances;
mod arrays;
mod borrowed;
mod calls;
mod copies;
mod exported;
mod exported_pools;
mod fabric;
mod faults;
mod frameworks;
mod freed;
mod graphs;
mod leases;
mod limits;
mod model;
mod movable;
mod multicast;
mod plain;
mod pools;
mod runtimes;
mod shared;
mod suspended;
mod view;
mod vmm;
