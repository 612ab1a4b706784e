/// The first thing in a log that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {event}{}: {fault}", pod.as_deref().map(|pod| format!(", pod `{pod}`")).unwrap_or_default())]
pub struct Violation {
    /// Index of the event in the log, from 0; the log's length where its end shows it.
    pub event: usize,
    /// The pod that arrived or left.
    pub pod: Option<String>,
    /// The fault.
    #[source]
    pub fault: Fault,
}

/// A fault in a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Two nodes have the same name.
    #[error("node `{node}` is listed twice")]
    TwoNodes {
        /// The name.
        node: String,
    },
    /// A placed pod arrives again.
    #[error("arrives, but it runs already")]
    RunsAlready,
    /// A pod leaves without being placed.
    #[error("leaves, but it does not run")]
    DoesNotRun,
    /// The cluster lacks the node.
    #[error("placed on `{node}`, which is not in the cluster")]
    UnknownNode {
        /// The name.
        node: String,
    },
    /// The node's GPUs are of a model that the pod does not want.
    #[error("placed on `{node}` with {model} GPUs; it accepts {allowed}")]
    ModelNotAllowed {
        /// The node.
        node: String,
        /// Its model.
        model: String,
        /// The pod's models, with | between.
        allowed: String,
    },
    /// More or fewer GPUs than the pod asks for.
    #[error("got {got} GPUs; it requests {wanted}")]
    WrongNumberOfGpus {
        /// GPUs given.
        got: usize,
        /// GPUs asked for.
        wanted: u32,
    },
    /// The node has no GPU with this index.
    #[error("got GPU {gpu} of `{node}`, which has {has}, counted from 0")]
    UnknownGpu {
        /// The node.
        node: String,
        /// The index.
        gpu: u32,
        /// GPUs that the node has.
        has: usize,
    },
    /// One GPU counted as two.
    #[error("got GPU {gpu} of `{node}` twice; its GPUs must differ")]
    SameGpuTwice {
        /// The node.
        node: String,
        /// The index.
        gpu: u32,
    },
    /// More or less of a GPU than the pod asks for.
    #[error("got {got} milli of GPU {gpu}; it requests {wanted} of each")]
    WrongShare {
        /// The GPU's index.
        gpu: u32,
        /// Thousandths given.
        got: u32,
        /// Thousandths asked for.
        wanted: u32,
    },
    /// A GPU is overcommitted.
    #[error("takes GPU {gpu} of `{node}` to {milli} of 1000 milli")]
    GpuOverfull {
        /// The node.
        node: String,
        /// The index.
        gpu: u32,
        /// Thousandths that would be taken.
        milli: u64,
    },
    /// The CPU of a node is overcommitted.
    #[error("takes the CPU of `{node}` to {cpu_milli} of {has} milli")]
    CpuOverfull {
        /// The node.
        node: String,
        /// Thousandths of a core that would be taken.
        cpu_milli: u64,
        /// Its capacity.
        has: u64,
    },
    /// The memory of a node is overcommitted.
    #[error("takes the memory of `{node}` to {memory_mib} of {has} MiB")]
    MemoryOverfull {
        /// The node.
        node: String,
        /// MiB that would be taken.
        memory_mib: u64,
        /// Its capacity.
        has: u64,
    },
    /// Some members of a gang are placed, but too few.
    #[error(
        "gang `{gang}` is partly placed: {running} members run, {finished} finished; it needs \
         {min_members} or none"
    )]
    GangInPart {
        /// The gang.
        gang: String,
        /// Members with a place.
        running: u32,
        /// Members that ran to their end.
        finished: u32,
        /// Members that must be placed if any is.
        min_members: u32,
    },
    /// Members disagree about the minimum.
    #[error("gang `{gang}` needs {before} members by an earlier pod and {now} by this one")]
    MinMembersDiffer {
        /// The gang.
        gang: String,
        /// By an earlier member.
        before: u32,
        /// The minimum of this pod.
        now: u32,
    },
    /// The node's account differs from the sum of its pods: a defect of the validator.
    #[error("the account of `{node}` differs from the sum of its pods")]
    Unbalanced {
        /// The node.
        node: String,
    },
}
