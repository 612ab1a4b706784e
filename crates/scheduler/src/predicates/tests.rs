//! What the differential test with kube-scheduler does not cover: messages, removals, keys.

mod anti_affinity;
mod fixtures;
mod messages;
mod node_filter_key;
mod resource_fit;
