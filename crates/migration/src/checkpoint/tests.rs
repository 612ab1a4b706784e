//! Files that NVIDIA's own code wrote, and damaged ones.
//!
//! Each fixture was written by `MarshalCheckpoint` of `cmd/gpu-kubelet-plugin/checkpoint.go` of its release, from the Go types of that
//! release's `prepared.go`, and read back by its `VerifyChecksum`:
//!
//! | fixture | release | commit |
//! |---|---|---|
//! | `v25.3.2.json` | 25.3.2: `v1` alone | `7020737a5e` |
//! | `v25.8.1.json` | 25.8.1: `v1` and `v2` | `fc69d98528` |
//! | `v25.12.0.json` | 25.12.0: names of claims, created MIG devices, vfio | `0882da8720` |
//! | `v0.4.1.json`, `v0.4.1-empty.json` | 0.4.1: boot id, time slices | `764900e783` |
//! | `v0.5.0-dev.json` | main before 0.5.0: shares, metadata, PCI addresses | `9593204668` |

mod damaged;
mod releases;

use super::{Checkpoint, CheckpointError, read_checkpoint};

const V25_3: &str = include_str!("tests/fixtures/v25.3.2.json");
const V25_8: &str = include_str!("tests/fixtures/v25.8.1.json");
const V25_12: &str = include_str!("tests/fixtures/v25.12.0.json");
const V0_4: &str = include_str!("tests/fixtures/v0.4.1.json");
const V0_4_EMPTY: &str = include_str!("tests/fixtures/v0.4.1-empty.json");
const V0_5: &str = include_str!("tests/fixtures/v0.5.0-dev.json");
const ALL: [&str; 6] = [V25_3, V25_8, V25_12, V0_4, V0_4_EMPTY, V0_5];

const CLAIM_A: &str = "0a4d7c3e-5b1f-4f0e-9c57-3f8f0d6f1a01";
const CLAIM_B: &str = "1b4d7c3e-5b1f-4f0e-9c57-3f8f0d6f1a02";
const CLAIM_C: &str = "2c4d7c3e-5b1f-4f0e-9c57-3f8f0d6f1a03";
const CLAIM_D: &str = "3d4d7c3e-5b1f-4f0e-9c57-3f8f0d6f1a04";

fn read(text: &str) -> Checkpoint {
    read_checkpoint(text.as_bytes()).unwrap()
}

fn refused(text: &str) -> CheckpointError {
    read_checkpoint(text.as_bytes()).unwrap_err()
}
