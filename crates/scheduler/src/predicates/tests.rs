//! What the differential test with kube-scheduler does not show: names, sums that come and go, keys.

mod anti_affinity;
mod fixtures;
mod messages;
mod node_filter_key;
mod resource_fit;
