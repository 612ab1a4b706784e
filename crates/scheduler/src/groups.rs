//! Whose pods belong together: gangs as pod groups, workloads and labels announce them.
