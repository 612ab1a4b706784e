//! Reasons of conditions and warnings.

use octavo_api::names::REASON_HOST_MANAGED;

/// A reason; the catalogue in `octavo-api` says what each means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// All nodes are ready.
    AllNodesReady,
    /// A claim on all channels, where each domain has one.
    AllNotWithChannels,
    /// The certificate of daemons ends soon.
    CertificateExpires,
    /// The certificate of daemons has no problem any more.
    CertificateGood,
    /// The Secret with the certificate is gone.
    CertificateLost,
    /// The Secret's name is taken.
    CertificateNameTaken,
    /// Another domain has the same channel.
    ChannelConflict,
    /// A clique has no free channel.
    ChannelsUsedUp,
    /// A clique has no free index.
    CliqueFull,
    /// The domain is deleted.
    Deleting,
    /// Fewer nodes have a channel than the spec asks for.
    FewerNodesThanNumNodes,
    /// A claim names a domain of another namespace.
    ForeignNamespace,
    /// A gang's minimum has no channels yet.
    GangIncomplete,
    /// The hosts run the services.
    HostManaged,
    /// No node has a channel.
    NoNodes,
    /// No other domain has nodes in the cliques.
    NoOtherDomain,
    /// Nodes are not ready.
    NodesNotReady,
    /// Another domain has nodes in a clique.
    OtherDomain,
    /// The template's name is taken.
    TemplateNameTaken,
}

impl Reason {
    /// The reason on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllNodesReady => "AllNodesReady",
            Self::AllNotWithChannels => "AllNotWithChannels",
            Self::CertificateExpires => "CertificateExpires",
            Self::CertificateGood => "CertificateGood",
            Self::CertificateLost => "CertificateLost",
            Self::CertificateNameTaken => "CertificateNameTaken",
            Self::ChannelConflict => "ChannelConflict",
            Self::ChannelsUsedUp => "ChannelsUsedUp",
            Self::CliqueFull => "CliqueFull",
            Self::Deleting => "Deleting",
            Self::FewerNodesThanNumNodes => "FewerNodesThanNumNodes",
            Self::ForeignNamespace => "ForeignNamespace",
            Self::GangIncomplete => "GangIncomplete",
            Self::HostManaged => REASON_HOST_MANAGED,
            Self::NoNodes => "NoNodes",
            Self::NoOtherDomain => "NoOtherDomain",
            Self::NodesNotReady => "NodesNotReady",
            Self::OtherDomain => "OtherDomain",
            Self::TemplateNameTaken => "TemplateNameTaken",
        }
    }
}
