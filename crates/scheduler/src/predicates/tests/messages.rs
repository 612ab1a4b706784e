use octavo_kube_io::objects::{NodeTaint, ObjectName, PodSpec, Spread, TaintEffect};

use super::fixtures::{apart, pod};
use crate::predicates::{ReasonCounts, Unfit, Unsupported, Volumes, unsupported};

fn insufficient(resource: &str) -> Unfit {
    Unfit::Insufficient { resource: resource.into(), requested: 1, used: 0, capacity: 0 }
}

#[test]
fn reason_counts_read_like_kube_scheduler() {
    let taint = NodeTaint {
        key: "team".to_owned(),
        value: "red".to_owned(),
        effect: TaintEffect::NoSchedule,
    };
    let mut tally = ReasonCounts::new(5);
    for _ in 0..3 {
        tally.add(&[insufficient("cpu")]);
    }
    tally.add(&[Unfit::Taint { taint: taint.clone() }]);
    tally.add(&[Unfit::Taint { taint }, insufficient("memory"), insufficient("memory")]);
    assert_eq!(
        tally.to_string(),
        "0/5 nodes are available: 1 Insufficient memory, 2 node(s) had untolerated taint {team: red}, \
         3 Insufficient cpu."
    );
}

#[test]
fn pod_level_reason_appears_once() {
    let claim = ObjectName::new("team", "data");
    let mut tally = ReasonCounts::new(2);
    for _ in 0..2 {
        tally.add(&[Unfit::MissingClaim { claim: claim.clone() }]);
    }
    assert_eq!(
        tally.to_string(),
        "0/2 nodes are available: persistentvolumeclaim \"data\" not found."
    );
    assert_eq!(ReasonCounts::new(0).to_string(), "0/0 nodes are available.");
}

#[test]
fn required_rules_are_unsupported_and_preferred_ones_are_ignored() {
    let refused = |spec: PodSpec| unsupported(&pod("p", spec), &Volumes::default());
    let spread = |is_hard| vec![Spread { topology_key: "zone".to_owned(), is_hard }];
    let topology_key = "zone".to_owned();
    assert_eq!(
        refused(PodSpec { spread: spread(true), ..PodSpec::default() }),
        Some(Unsupported::Spread { topology_key: topology_key.clone() })
    );
    assert_eq!(refused(PodSpec { spread: spread(false), ..PodSpec::default() }), None);
    assert_eq!(refused(PodSpec { has_preferred_affinity: true, ..PodSpec::default() }), None);
    let terms = vec![apart("app", "web", "zone")];
    assert_eq!(
        refused(PodSpec { affinity: terms.clone(), ..PodSpec::default() }),
        Some(Unsupported::Affinity { topology_key: topology_key.clone() })
    );
    let refused = refused(PodSpec { anti_affinity: terms, ..PodSpec::default() });
    assert_eq!(refused, Some(Unsupported::AntiAffinity { topology_key }));
    assert_eq!(refused.map(|refused| refused.reason()), Some("UnsupportedPodAntiAffinity"));
}
