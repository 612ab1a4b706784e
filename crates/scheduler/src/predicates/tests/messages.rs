use octavo_kube_io::objects::{PodSpec, Spread};

use super::fixtures::{apart, pod};
use crate::predicates::{Unsupported, Volumes, unsupported};

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
