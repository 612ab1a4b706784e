use super::fixtures::*;
use crate::*;

const NO: &str = "the node's free devices do not serve all claims";

fn tainted(name: &str, effects: &[TaintEffect]) -> Device {
    let taint = |(index, effect): (usize, &TaintEffect)| DeviceTaint {
        key: format!("example.com/t{index}"),
        value: "sick".to_owned(),
        effect: *effect,
    };
    Device { taints: effects.iter().enumerate().map(taint).collect(), ..device(name) }
}

fn tolerating(tolerations: &[(Option<&str>, Option<&str>, Option<TaintEffect>)]) -> Claim {
    let toleration = |&(key, value, effect): &(Option<&str>, Option<&str>, _)| Toleration {
        key: key.map(str::to_owned),
        value: value.map(str::to_owned),
        effect,
        seconds: None,
    };
    let tolerations = tolerations.iter().map(toleration).collect();
    one("c1", DeviceRequest { tolerations, ..ask(1) })
}

#[test]
fn a_tainted_device_is_passed_over() {
    use TaintEffect::{NoExecute, NoSchedule, None};
    for (effect, given) in [(NoSchedule, "r=b"), (NoExecute, "r=b"), (None, "r=a")] {
        let world = World::new(vec![slice("n1", vec![tainted("a", &[effect]), device("b")])]);
        assert_eq!(world.try_claim(&gpus("c1", 1)), given);
        assert_eq!(world.try_claim(&one("c1", admin(ask(1)))), given, "administration too");
    }
}

#[test]
fn every_taint_must_be_tolerated() {
    use TaintEffect::{NoExecute, NoSchedule};
    let world = World::new(vec![slice("n1", vec![tainted("a", &[NoSchedule, NoExecute])])]);
    let (first, second) = (Some("example.com/t0"), Some("example.com/t1"));
    for (tolerations, expected) in [
        (&[(None, None, None)][..], "r=a"),
        (&[(first, None, None)], NO),
        (&[(first, None, None), (second, None, None)], "r=a"),
        (&[(first, None, None), (second, Some("sick"), Some(NoExecute))], "r=a"),
        (&[(first, None, None), (second, Some("well"), None)], NO),
        (&[(None, None, Some(NoExecute))], NO),
        (&[(None, Some("sick"), None)], "r=a"),
    ] {
        assert_eq!(world.try_claim(&tolerating(tolerations)), expected, "{tolerations:?}");
    }
}

#[test]
fn without_the_feature_taints_say_nothing() {
    let mut world = World::new(vec![slice("n1", vec![tainted("a", &[TaintEffect::NoSchedule])])]);
    world.features = world.features.without(Feature::DeviceTaints);
    assert_eq!(world.try_claim(&gpus("c1", 1)), "r=a");
}
