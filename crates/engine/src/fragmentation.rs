//! Fragmentation: what typical pods cannot use of a node's free GPUs (Weng et al., USENIX ATC 2023).
