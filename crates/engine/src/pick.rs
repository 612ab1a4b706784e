//! Which GPUs of a node a pod gets.
