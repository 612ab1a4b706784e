//! Reasons about `ComputeDomains`.

use super::{Reason, row};

/// The conditions whether all nodes are ready.
const BOTH: &str = "ComputeDomain: conditions `Ready` and `MembersReady` are `False`";
/// The condition `Ready`.
const READY: &str = "ComputeDomain: condition `Ready` is `False`";
/// The condition about certificates, and an event.
const CERTIFICATE: &str = "ComputeDomain: condition `CertificateProblem` is `True`, event";
/// The condition `Ready`, and an event.
const READY_AND_EVENT: &str = "ComputeDomain: condition `Ready` is `False`, event";

/// Reasons on domains and their claims.
pub(super) const DOMAINS: &[Reason] = &[
    row(
        "AllNodesReady",
        "ComputeDomain: conditions `Ready` and `MembersReady` are `True`",
        "The IMEX daemons of all nodes with a pod of the domain are ready.",
        "",
    ),
    row(
        "AllNotWithChannels",
        BOTH,
        "The domain asks for all channels, and each domain has one (`imex.isolation: channel`).",
        "Create the domain with `allocationMode: Single`.",
    ),
    row(
        "CertificateExpires",
        CERTIFICATE,
        "The certificate of the domain's daemons ends within 90 days, or has ended. Daemons that start after its end do not become ready.",
        "Once no pod uses these daemons, delete their DaemonSet. It is made again, with another certificate.",
    ),
    row(
        "CertificateGood",
        "ComputeDomain: condition `CertificateProblem` is `False`",
        "The certificate of the domain's daemons had a problem, and has none any more.",
        "",
    ),
    row(
        "CertificateLost",
        CERTIFICATE,
        "The Secret with the certificate of the domain's daemons was deleted while daemons run with it. They run on. Further daemons wait: they would not trust each other with another certificate.",
        "Once no pod uses these daemons, delete their DaemonSet. It is made again, with another certificate.",
    ),
    row(
        "CertificateNameTaken",
        "ComputeDomain: condition `CertificateProblem` is `True`, condition `Ready` is `False`, event",
        "A Secret with the name of that of the domain's daemons exists, and is not the controller's. It is left as it is, and no daemons are made.",
        "Delete the Secret.",
    ),
    row(
        "ChannelConflict",
        BOTH,
        "Pods of an older domain run with the same channel in the NVLink clique of the message. New pods of this domain wait there.",
        "Delete the pods of one of the domains.",
    ),
    row(
        "ChannelsUsedUp",
        BOTH,
        "All channels of an NVLink clique are used by other domains.",
        "Wait until other domains leave the clique.",
    ),
    row(
        "CliqueFull",
        READY_AND_EVENT,
        "More nodes of one NVLink clique have pods of the domain than an IMEX domain can have.",
        "Use several domains, or fewer nodes.",
    ),
    row(
        "Deleting",
        READY,
        "The domain is deleted, and claims of its pods are still allocated, or its daemons are being removed.",
        "Delete the pods, if the domain is to disappear.",
    ),
    row(
        "FewerNodesThanNumNodes",
        READY,
        "Fewer nodes than `spec.numNodes` have a pod of the domain.",
        "Create the other pods. The pods that exist do not wait for this.",
    ),
    row(
        "ForeignNamespace",
        "ResourceClaim: event",
        "The claim names a domain of another namespace. Its node does not join, and its pods do not start.",
        "Create a ComputeDomain in the claim's namespace.",
    ),
    row(
        "GangIncomplete",
        "ComputeDomain: condition `MembersReady` is `False`",
        "Fewer pods of a gang than its minimum have a channel. Pods of the domain wait for the others, at most 38 s by default.",
        "See why the other pods of the gang are not scheduled. The annotation `octavo.dev/ready-when` says whether pods wait longer.",
    ),
    row(
        "HostManaged",
        "ComputeDomain: conditions `Ready` and `MembersReady` are `True`",
        "The hosts run the IMEX services (`imex.mode: hostManaged`). The agents ask them when pods start.",
        "",
    ),
    row(
        "NoNodes",
        BOTH,
        "No pod of the domain has an allocated claim.",
        "Create pods with a claim from the domain's template.",
    ),
    row(
        "NoOtherDomain",
        "ComputeDomain: condition `SharedClique` is `False`",
        "Another domain had nodes in a clique of this one, and has none any more.",
        "",
    ),
    row(
        "NodesNotReady",
        BOTH,
        "The IMEX daemons of the nodes in the message are not ready.",
        "See the daemons' pods on these nodes, and the node label `nvidia.com/gpu.clique`.",
    ),
    row(
        "OtherDomain",
        "ComputeDomain: condition `SharedClique` is `True`",
        "The domains in the message have nodes in the same NVLink clique.",
        "",
    ),
    row(
        "TemplateNameTaken",
        READY_AND_EVENT,
        "A ResourceClaimTemplate with the name in the domain's spec exists, and is not of this domain. It is left as it is.",
        "Delete the template, or create the domain with another name in its spec.",
    ),
];

/// A pod that the webhook refuses, and the metric of refusals.
const TRANSLATED: &str = "pod of HAMi or KAI Scheduler: its creation is refused; label `reason` of the controller's metric of refusals";

/// Reasons for which a pod of HAMi or KAI Scheduler gets no claim template. Refused fields have the reasons of `octavo migrate manifests`.
pub(super) const TEMPLATES: &[Reason] = &[
    row(
        "NameTaken",
        TRANSLATED,
        "A ResourceClaimTemplate with the name of the pod's template has another spec or another owner.",
        "Delete that template, or the pod that uses it.",
    ),
    row(
        "NotStored",
        TRANSLATED,
        "The API server does not store all fields of the template, so the pod would get a whole GPU.",
        "Upgrade the API server to 1.36, or turn on the feature gates of shares.",
    ),
    row(
        "TemplateRefused",
        TRANSLATED,
        "The API server refuses the template, by a policy, a quota or a rule.",
        "See the message.",
    ),
    row(
        "TooManyTemplates",
        TRANSLATED,
        "The namespace has as many templates of translated pods as the webhook makes.",
        "Delete those that no pod uses, or give pods equal demands.",
    ),
];
