//! Reasons why a claim was not prepared or unprepared. Condition, event, metric label and text are views of one value.

mod reason;

use crate::ConfigError;

/// A refusal of a kubelet call, with its data.
///
/// [`Refusal::reason`] is stable CamelCase for conditions, events and metric labels. The text says what happened, why,
/// and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The kubelet sent an invalid claim UID.
    #[error(
        "claim UID {uid:?} is refused because it is not made of letters, digits and dashes; the kubelet's call is broken"
    )]
    BadClaimUid {
        /// The UID as sent.
        uid: String,
    },
    /// The claim does not exist.
    #[error(
        "claim {claim} was not found because it has been deleted; create it again if a pod still needs it"
    )]
    ClaimNotFound {
        /// Namespace and name.
        claim: String,
    },
    /// The name belongs to another claim.
    #[error(
        "claim {claim} was not prepared because the kubelet asked for UID {asked} and the name now belongs to UID {found}; delete the pod that refers to the old claim"
    )]
    ClaimReplaced {
        /// Namespace and name.
        claim: String,
        /// UID requested by the kubelet.
        asked: String,
        /// UID in the API server.
        found: String,
    },
    /// The claim has no allocation.
    #[error(
        "claim {claim} was not prepared because it is not allocated; wait for the scheduler, or see its events for why it does not allocate"
    )]
    NotAllocated {
        /// Namespace and name.
        claim: String,
    },
    /// The claim's allocation has no device of this driver.
    #[error(
        "claim {claim} was not prepared because its allocation holds no device of driver {driver}; another driver must prepare it"
    )]
    NothingForDriver {
        /// Namespace and name.
        claim: String,
        /// This driver.
        driver: String,
    },
    /// The allocation is in another node's pool.
    #[error(
        "device {device} of pool {pool} was not prepared because this is node {node}; delete the pod so that it is scheduled again"
    )]
    OtherNode {
        /// Pool of the allocation.
        pool: String,
        /// Device of the allocation.
        device: String,
        /// This node.
        node: String,
    },
    /// The node has no such device.
    #[error(
        "device {device} was not prepared because node {node} has no such GPU now; see `octavo top` for the GPUs that it has, and delete the pod so that it is scheduled again"
    )]
    UnknownDevice {
        /// Device of the allocation.
        device: String,
        /// This node.
        node: String,
    },
    /// Another claim holds the device.
    #[error(
        "device {device} was not prepared because claim {holder} holds it: two claims were allocated the same device; delete the pod of one of them, and let one scheduler own the node"
    )]
    DeviceInUse {
        /// The device.
        device: String,
        /// The holding claim: namespace, name and UID as far as known.
        holder: String,
    },
    /// The holding claim no longer exists, but the kubelet did not unprepare it.
    #[error(
        "device {device} was not prepared because claim {holder}, which no longer exists, held it and its containers may still run; the kubelet retries, and the GPU is free after {seconds} s, or sooner if the kubelet unprepares that claim"
    )]
    DeviceNotFreed {
        /// The device.
        device: String,
        /// The former claim: namespace, name and UID as far as known.
        holder: String,
        /// Grace period of its containers, in seconds.
        seconds: u64,
    },
    /// A damaged record may hold the device.
    #[error(
        "device {device} was not prepared because the damaged checkpoint of claim UID {holder} may hold it; delete that claim's pod, or if no container uses the GPU delete {file} and restart the agent"
    )]
    DeviceMayBeInUse {
        /// The device.
        device: String,
        /// UID of the claim whose record is damaged.
        holder: String,
        /// The record, and the claim's CDI spec if it exists.
        file: String,
    },
    /// The allocation of a share is invalid.
    #[error(
        "the share of device {device} for request {request} was not prepared because {problem}; delete the pod so that it is scheduled again, and check that scheduler and agent have compatible versions if this recurs"
    )]
    InvalidShare {
        /// Request in the claim.
        request: String,
        /// The device.
        device: String,
        /// The error.
        problem: String,
    },
    /// Other claims' shares of the GPU leave too little of it.
    #[error(
        "{wanted} of device {device} was not prepared because only {free} of it is left besides {holders}: the GPU is overallocated; delete the pod of one of them, and let one scheduler own the node"
    )]
    ShareDoesNotFit {
        /// The device.
        device: String,
        /// Sum of the claim's shares.
        wanted: String,
        /// The free part.
        free: String,
        /// The other claims with their shares.
        holders: String,
    },
    /// Memory enforcement is not available for the share.
    #[error(
        "the share of device {device} was not prepared because its limit cannot be enforced: {problem}; the kubelet retries, check `memoryEnforcement` in the agent's settings on node {node} if this lasts"
    )]
    EnforcementNotReady {
        /// The device.
        device: String,
        /// The obstacle.
        problem: String,
        /// This node.
        node: String,
    },
    /// A GPU did not get the time slice or the compute mode that a claim asks for.
    #[error(
        "device {device} was not prepared because {problem}; the kubelet retries, run `nvidia-smi` on node {node} if this lasts"
    )]
    SharingNotSet {
        /// The device.
        device: String,
        /// The obstacle.
        problem: String,
        /// This node.
        node: String,
    },
    /// A GPU did not get back its time slice or its compute mode.
    #[error(
        "device {device} was not released because {problem}; the kubelet retries, run `nvidia-smi` on node {node} if this lasts"
    )]
    SharingNotReset {
        /// The device.
        device: String,
        /// The obstacle.
        problem: String,
        /// This node.
        node: String,
    },
    /// The MPS daemon of a claim does not run, or does not end.
    #[error(
        "claim {claim} waits for its MPS daemon on node {node}: {problem}; the kubelet retries, see the pod of the DaemonSet `mps-daemon` on that node if this lasts"
    )]
    MpsNotReady {
        /// Namespace and name.
        claim: String,
        /// The obstacle.
        problem: String,
        /// This node.
        node: String,
    },
    /// A foreign instance occupies the placement.
    #[error(
        "MIG instance {device} was not created because GPU instance {gpu_instance} (profile id {profile_id}, memory slices {start} to {end}), which no claim holds, occupies its placement; destroy it with `nvidia-smi mig -dci` and `-dgi`, and do not partition GPUs by hand that are under dynamic MIG"
    )]
    MigPlacementTaken {
        /// The device.
        device: String,
        /// Id of the foreign instance.
        gpu_instance: u32,
        /// The driver's id of that instance's profile.
        profile_id: u32,
        /// Its first memory slice.
        start: u32,
        /// Its last memory slice.
        end: u32,
    },
    /// The GPU lacks the profile or placement.
    #[error(
        "MIG instance {device} was not created because the GPU has no profile {profile} at memory slice {start}; delete the pod so that it is scheduled again, and see `nvidia-smi mig -lgipp` for what the GPU has"
    )]
    MigProfileMissing {
        /// The device.
        device: String,
        /// Name of the profile.
        profile: String,
        /// First memory slice of the placement.
        start: u32,
    },
    /// The GPU's MIG mode could not be changed.
    #[error(
        "device {device} was not prepared because MIG mode of its GPU could not be turned {mode}: {error}; the kubelet retries, end processes that use the GPU outside of claims if this lasts"
    )]
    MigModeNotChanged {
        /// The device.
        device: String,
        /// `on` or `off`.
        mode: &'static str,
        /// Error of the driver.
        error: String,
    },
    /// The GPU's MIG mode changes only with a reset.
    #[error(
        "device {device} was not prepared because MIG mode of its GPU can only be turned {mode} with a reset of the GPU; drain the node, run `octavo driver release` for it, `nvidia-smi -i <GPU> -mig {switch}`, reset the GPU, and run `octavo driver resume`; or reboot, or take the GPU out of dynamic MIG"
    )]
    MigModeNeedsReset {
        /// The device.
        device: String,
        /// `on` or `off`.
        mode: &'static str,
        /// The mode as `1` or `0`.
        switch: u8,
    },
    /// The GPU is needed without MIG but has foreign instances.
    #[error(
        "device {device} was not prepared because its GPU has {instances} MIG instances that no claim holds; destroy them with `nvidia-smi mig -dci` and `-dgi`, and do not partition GPUs by hand that are under dynamic MIG"
    )]
    MigInstancesInTheWay {
        /// The device.
        device: String,
        /// Their number.
        instances: usize,
    },
    /// The driver failed to create an instance.
    #[error(
        "MIG instance {device} was not created: {error}; the kubelet retries, see the agent's log and the GPU's health if this lasts"
    )]
    MigNotCreated {
        /// The device.
        device: String,
        /// Error of the driver.
        error: String,
    },
    /// The driver failed to destroy an instance.
    #[error(
        "MIG instance {device} was not destroyed: {error}; the kubelet retries, end the processes that still use it if this lasts"
    )]
    MigNotDestroyed {
        /// The device.
        device: String,
        /// Error of the driver.
        error: String,
    },
    /// The instance is not usable by containers.
    #[error(
        "MIG instance {device} was not prepared because {problem}; the kubelet retries, see `nvidia-smi mig -lgi` and `-lci` on node {node} if this lasts"
    )]
    MigNotUsable {
        /// The device.
        device: String,
        /// The error.
        problem: String,
        /// This node.
        node: String,
    },
    /// The driver is not open.
    #[error(
        "claim {claim} has to wait because the driver of node {node} is released or does not answer, for example during an upgrade; the kubelet retries, see the node's labels and the agent's log if this lasts"
    )]
    DriverClosed {
        /// Namespace and name.
        claim: String,
        /// This node.
        node: String,
    },
    /// The device plugin has the node's GPUs.
    #[error(
        "claim {claim} was not prepared because node {node} offers its GPUs by its device plugin now; delete the pod so that it is scheduled to another node; in the mode dra, see the node's events ModeWaits for what is waited for"
    )]
    LentToPlugin {
        /// Namespace and name.
        claim: String,
        /// This node.
        node: String,
    },
    /// The MIG devices of the GPU are about to change.
    #[error(
        "claim {claim} was not prepared because the MIG layout of the GPU of device {device} changes; delete the pod so that it is scheduled again"
    )]
    LayoutChanges {
        /// Name of the device.
        device: String,
        /// Namespace and name.
        claim: String,
    },
    /// An opaque config is invalid.
    #[error(
        "the {source_name} config for the claim is refused because {error}; correct the manifest and create the claim again"
    )]
    InvalidConfig {
        /// `DeviceClass` or `ResourceClaim`.
        source_name: &'static str,
        /// The error, with its field.
        error: ConfigError,
    },
    /// A config does not fit the device type.
    #[error(
        "request {request} was not prepared because a {kind} was given for a device of type {device_type}; give it a config of the device's type, or none"
    )]
    ConfigMismatch {
        /// Request in the claim.
        request: String,
        /// Kind of the config.
        kind: &'static str,
        /// Type of the device.
        device_type: &'static str,
    },
    /// The claim needs an unsupported feature.
    #[error(
        "{what} for request {request} is not yet supported by this version of Octavo; remove it from the claim or its class"
    )]
    NotYetSupported {
        /// Request in the claim.
        request: String,
        /// The feature, with its field.
        what: String,
    },
    /// A kernel module is not loaded, of the driver or of device nodes that a class adds.
    #[error(
        "claim {claim} was not prepared because the kernel module {module} is not loaded on node {node}, or found no hardware: the node has no {device}; load it with `modprobe {module}`, the kubelet retries"
    )]
    KernelModuleMissing {
        /// Namespace and name.
        claim: String,
        /// The module.
        module: &'static str,
        /// What the module registers, as in `/proc/devices` or below `/dev`.
        device: &'static str,
        /// This node.
        node: String,
    },
    /// The claim is no claim of its domain.
    #[error(
        "claim {claim} was not prepared because {problem}; create it from the template that the ComputeDomain names, in the domain's namespace"
    )]
    NotInComputeDomain {
        /// Namespace and name.
        claim: String,
        /// What does not fit.
        problem: String,
    },
    /// Daemons of the claim's domain are not ready.
    #[error(
        "claim {claim} has to wait for ComputeDomain {domain}: {problem}; the kubelet retries, see `octavo explain computedomain` if this lasts"
    )]
    ComputeDomainNotReady {
        /// Namespace and name.
        claim: String,
        /// Namespace and name of the domain.
        domain: String,
        /// Which daemons, and why.
        problem: String,
    },
    /// The node's NVLink fabric is not up.
    #[error(
        "claim {claim} has to wait because {problem}; the kubelet retries, see the health of the GPUs of node {node} if this lasts"
    )]
    FabricNotReady {
        /// Namespace and name.
        claim: String,
        /// The state of the fabric.
        problem: String,
        /// This node.
        node: String,
    },
    /// The program of CDI hooks does not run on the node.
    #[error(
        "claim {claim} was not prepared because the program of its containers' hooks does not run on node {node}: {problem}; the kubelet retries, check `hookDir` in the agent's settings"
    )]
    HookNotReady {
        /// Namespace and name.
        claim: String,
        /// The obstacle.
        problem: String,
        /// This node.
        node: String,
    },
    /// The node's GPUs are not read yet.
    #[error(
        "claim {claim} was not prepared because the GPUs of node {node} were not read yet; the kubelet retries, see the agent's log if this lasts"
    )]
    NotReady {
        /// Namespace and name.
        claim: String,
        /// This node.
        node: String,
    },
    /// The API server did not answer.
    #[error(
        "claim {claim} could not be read from the API server: {error}; the kubelet retries, see whether the node reaches the API server if this lasts"
    )]
    ApiUnavailable {
        /// Namespace and name.
        claim: String,
        /// Error of the request.
        error: String,
    },
    /// A file of the node could not be written or removed.
    #[error(
        "could not {action} {path}: {error}; the kubelet retries, see the disk and its rights if this lasts"
    )]
    Storage {
        /// The attempted operation, as a verb.
        action: &'static str,
        /// The file.
        path: String,
        /// Error of the system.
        error: String,
    },
    /// The node is passing from one agent to another.
    #[error(
        "claim {claim} was not handled because node {node} is being handed over to another agent; the kubelet retries, see the logs of the node's agents if this lasts"
    )]
    HandedOver {
        /// Namespace and name.
        claim: String,
        /// This node.
        node: String,
    },
    /// The work on the claim ended without a result.
    #[error("work on claim {claim} ended without a result: {error}; the kubelet retries")]
    Interrupted {
        /// Namespace and name.
        claim: String,
        /// The known cause.
        error: String,
    },
}
