//! What the differential test with kube-scheduler does not show: names, sums that come and go, keys.

mod keys;
mod kit;
mod neighbours;
mod room;
mod words;
