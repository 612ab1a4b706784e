//! The certificate of daemons that encrypt.
//!
//! Daemons read their certificate at their start, and trust its authority alone. So all daemons of an IMEX domain need the same:
//! another is issued only while none of them can have one.

use jiff::Timestamp;

use super::Write;
use super::conditions::Verdict;
use super::reasons::Reason;
use super::teardown::delete;
use crate::certificate::CertificateRequest;
use crate::config::Config;
use crate::view::{CertificateSecret, DaemonPod, Domain, OwnedObject, View};
use crate::wanted::{DaemonsOf, names_hash};

/// What is wrong with the certificate of a domain's daemons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// The Secret is another owner's, by `<namespace>/<name>`.
    NameTaken(String),
    /// The Secret is gone, and daemons have its certificate.
    Lost,
    /// The certificate ends soon, or has ended.
    Ends(Timestamp),
}

/// What must happen before daemons are made.
pub(super) enum Before<'a> {
    /// Nothing.
    Nothing,
    /// Others must do something.
    Waiting,
    /// This is deleted.
    Deletion(&'a OwnedObject),
}

/// What must happen before daemons are made. `set` is their `DaemonSet`.
pub(super) fn before_daemons<'a>(
    view: &'a View,
    set: Option<&OwnedObject>,
    config: &Config,
) -> Before<'a> {
    if !config.imex.encryption {
        return Before::Nothing;
    }
    match (&view.secret, set) {
        (Some(secret), _) if secret.is_foreign() => Before::Waiting,
        // It disappears with the daemons that had it.
        (Some(secret), None) => Before::Deletion(&secret.object),
        (None, None) if view.pods.iter().any(has_started) => Before::Waiting,
        _ => Before::Nothing,
    }
}

/// Issues the certificate, or removes one that is to be replaced. The pods of daemons wait for their Secret.
pub(super) fn issue(
    view: &View,
    daemons: DaemonsOf<'_>,
    set: Option<&OwnedObject>,
    config: &Config,
) -> Option<Write> {
    let set = set.filter(|set| config.imex.encryption && !set.is_deleting)?;
    let Some(secret) = &view.secret else {
        let is_held = view.pods.iter().any(|pod| pod.is_encrypted() && has_started(pod));
        return (!is_held).then(|| {
            Write::IssueCertificate(CertificateRequest {
                namespace: config.namespace.clone(),
                domain: view.uid.clone(),
                title: daemons.title(),
                owner: set.uid.clone(),
                slots: config.max_nodes_per_imex_domain,
            })
        });
    };
    let is_of_other = secret.owner.as_ref() != Some(&set.uid);
    let is_replaced = is_outdated(secret, view.now, config) || is_of_other;
    if is_replaced && is_idle(view) { delete(&secret.object) } else { None }
}

/// Whether the daemons that domains share must end, so that others start: with encryption or without, or with another
/// certificate.
pub(super) fn must_restart(view: &View, config: &Config) -> bool {
    let has_pods = !view.pods.iter().all(DaemonPod::is_gone);
    let secret = view.secret.as_ref().filter(|_| config.imex.encryption && has_pods);
    has_other_daemons(view, config)
        || secret.is_some_and(|it| !it.is_foreign() && is_outdated(it, view.now, config))
}

/// Whether daemons run that encrypt where they should not, or the other way round.
pub(super) fn has_other_daemons(view: &View, config: &Config) -> bool {
    view.pods.iter().any(|pod| !pod.is_gone() && pod.is_encrypted() != config.imex.encryption)
}

/// What is wrong with the certificate of a domain's daemons, its own or shared ones.
pub(super) fn problem(
    view: &View,
    domain: &Domain,
    is_shared: bool,
    config: &Config,
) -> Option<Problem> {
    if !config.imex.encryption || domain.is_deleting {
        return None;
    }
    let (secret, pods) = if is_shared {
        (&view.shared.secret, &view.shared.pods)
    } else {
        (&view.secret, &view.pods)
    };
    let Some(secret) = secret else {
        let mut held =
            pods.iter().filter(|pod| pod.is_encrypted() && has_started(pod) && !pod.is_deleting);
        return held.next().map(|_| Problem::Lost);
    };
    if secret.is_foreign() {
        let OwnedObject { namespace, name, .. } = &secret.object;
        return Some(Problem::NameTaken(format!("{namespace}/{name}")));
    }
    secret.near_end(view.now).map(Problem::Ends)
}

impl Problem {
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::NameTaken(_) => Reason::CertificateNameTaken,
            Self::Lost => Reason::CertificateLost,
            Self::Ends(_) => Reason::CertificateExpires,
        }
    }

    pub(super) fn note(&self) -> String {
        const REMEDY: &str = "Once no pod uses these daemons, which may serve other ComputeDomains, too, delete their DaemonSet in the driver's \
                              namespace: it is made again, with another certificate.";
        match self {
            Self::NameTaken(name) => format!(
                "The Secret {name} exists and is not the controller's, so no daemons are made. Delete it."
            ),
            Self::Lost => format!(
                "The Secret with the certificate of the domain's daemons is gone. They run on, and further ones wait. {REMEDY}"
            ),
            Self::Ends(end) => format!(
                "The certificate of the domain's daemons ends at {end}. Daemons that start later do not become ready. {REMEDY}"
            ),
        }
    }

    /// The condition of a domain that has it.
    pub(super) fn verdict(&self) -> Verdict {
        Verdict::yes(self.reason(), self.note())
    }

    /// Why the domain cannot be ready.
    pub(super) fn refusal(&self) -> Option<Verdict> {
        matches!(self, Self::NameTaken(_)).then(|| Verdict::no(self.reason(), self.note()))
    }
}

/// A pod gets its address once its volumes are there.
fn has_started(pod: &DaemonPod) -> bool {
    !pod.ip.is_empty() && !pod.is_gone()
}

fn is_outdated(secret: &CertificateSecret, now: Timestamp, config: &Config) -> bool {
    let names = names_hash(config.max_nodes_per_imex_domain);
    secret.object.hash.as_ref() != Some(&names) || secret.is_old(now)
}

/// Whether no daemon runs or is about to start.
fn is_idle(view: &View) -> bool {
    let has_label = view.nodes.values().any(|node| node.label.as_ref() == Some(&view.uid));
    view.pods.iter().all(DaemonPod::is_gone) && !has_label && view.members().is_empty()
}
