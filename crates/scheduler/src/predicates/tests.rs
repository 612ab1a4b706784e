//! What the differential test with kube-scheduler does not cover: messages, removals, keys.

mod fixtures;
mod neighbours;
mod node_filter_key;
mod resource_fit;
