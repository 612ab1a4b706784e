//! Slices, classes and claims of the cluster, by node; what the claims of a pod ask for, and what they
//! get on a node.
