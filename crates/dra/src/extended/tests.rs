use super::*;
use crate::claim::Class;

const GPU: &str = "nvidia.com/gpu";

fn class(name: &str, resource: Option<&str>) -> Class {
    Class {
        name: name.to_owned(),
        extended_resource: resource.map(str::to_owned),
        ..Class::default()
    }
}

fn classes() -> Classes {
    let classes = [class("gpu", Some(GPU)), class("mig", Some("nvidia.com/mig-1g.10gb"))];
    classes.into_iter().collect()
}

fn container(name: &str, kind: ContainerKind, requests: &[(&str, i64)]) -> Container {
    let requests =
        requests.iter().map(|(name, amount)| ((*name).to_owned(), Quantity::decimal(*amount)));
    Container { name: name.to_owned(), kind, requests: requests.collect() }
}

/// `request=class*count` of all requests, then `container:request` of all mappings.
fn asked(containers: &[Container]) -> (String, String) {
    let Some(claim) = extended_claim(containers, &classes(), &BTreeMap::new()).unwrap() else {
        return (String::new(), String::new());
    };
    let request = |request: &Request| {
        let Ask::Exactly(ask) = &request.ask else { panic!("a list") };
        let Count::Exactly(count) = ask.count else { panic!("all") };
        let name = request.name.replace("container-", "c").replace("-request-", "r");
        format!("{name}={}*{count}", ask.class)
    };
    let mapping = |mapping: &RequestMapping| {
        let name = mapping.request.replace("container-", "c").replace("-request-", "r");
        format!("{}:{name}", mapping.container)
    };
    let requests: Vec<String> = claim.requests.iter().map(request).collect();
    let mappings: Vec<String> = claim.mappings.iter().map(mapping).collect();
    (requests.join(" "), mappings.join(" "))
}

fn expected(requests: &str, mappings: &str) -> (String, String) {
    (requests.to_owned(), mappings.to_owned())
}

#[test]
fn requests_are_named_by_container_and_place_of_the_resource() {
    let main = [
        container("a", ContainerKind::Main, &[("cpu", 1), ("memory", 1), (GPU, 2)]),
        container("b", ContainerKind::Main, &[("cpu", 1)]),
        container("c", ContainerKind::Main, &[(GPU, 1), ("nvidia.com/mig-1g.10gb", 1)]),
    ];
    let mappings = "a:c0r2 c:c2r0 c:c2r1";
    assert_eq!(asked(&main), expected("c0r2=gpu*2 c2r0=gpu*1 c2r1=mig*1", mappings));
}

#[test]
fn an_init_container_uses_what_later_containers_have() {
    let with = |init: i64| {
        [
            container("init", ContainerKind::Init, &[(GPU, init)]),
            container("a", ContainerKind::Main, &[(GPU, 2)]),
            container("b", ContainerKind::Main, &[(GPU, 1)]),
        ]
    };
    let (two, all) = ("c1r0=gpu*2 c2r0=gpu*1", "a:c1r0 b:c2r0 init:c1r0");
    assert_eq!(asked(&with(2)), expected(two, all));
    assert_eq!(asked(&with(3)), expected(two, &format!("{all} init:c2r0")));
    let more = format!("{all} init:c2r0 init:c0r0");
    assert_eq!(asked(&with(5)), expected(&format!("c0r0=gpu*2 {two}"), &more));
}

#[test]
fn of_several_init_containers_the_greediest_asks_for_all() {
    let all = [
        container("i0", ContainerKind::Init, &[(GPU, 3)]),
        container("i1", ContainerKind::Init, &[(GPU, 4)]),
        container("a", ContainerKind::Main, &[(GPU, 1)]),
    ];
    let mappings = "a:c2r0 i0:c2r0 i0:c1r0 i1:c2r0 i1:c1r0";
    assert_eq!(asked(&all), expected("c1r0=gpu*3 c2r0=gpu*1", mappings));
}

#[test]
fn a_sidecar_keeps_its_own_and_lends_only_to_those_before_it() {
    let all = [
        container("side", ContainerKind::Sidecar, &[(GPU, 1)]),
        container("init", ContainerKind::Init, &[(GPU, 1)]),
        container("a", ContainerKind::Main, &[]),
    ];
    assert_eq!(asked(&all), expected("c0r0=gpu*1 c1r0=gpu*1", "side:c0r0 init:c1r0"));
    let before = [
        container("init", ContainerKind::Init, &[(GPU, 1)]),
        container("side", ContainerKind::Sidecar, &[(GPU, 1)]),
    ];
    assert_eq!(asked(&before), expected("c1r0=gpu*1", "side:c1r0 init:c1r0"));
}

#[test]
fn requests_are_in_order_of_name_as_text() {
    let containers: Vec<Container> = (0..11)
        .map(|index| {
            let gpus = i64::from(index == 2 || index == 10);
            container(&format!("c{index}"), ContainerKind::Main, &[(GPU, gpus)])
        })
        .collect();
    assert_eq!(asked(&containers).0, "c10r0=gpu*1 c2r0=gpu*1");
}

#[test]
fn what_is_not_extended_or_not_asked_needs_no_claim() {
    let none = [container("a", ContainerKind::Main, &[("cpu", 1), ("hugepages-2Mi", 1), (GPU, 0)])];
    assert_eq!(extended_claim(&none, &classes(), &BTreeMap::new()), Ok(None));
}

#[test]
fn a_device_plugin_comes_first() {
    let wants = [container("a", ContainerKind::Main, &[(GPU, 1)])];
    let claims = |plugin: &[(&str, i64)]| {
        let plugin = plugin.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        extended_claim(&wants, &classes(), &plugin)
    };
    assert_eq!(claims(&[(GPU, 8)]), Ok(None));
    assert!(claims(&[(GPU, 0)]).unwrap().is_some());
}

#[test]
fn an_unserved_resource_is_an_error() {
    let wants = [container("a", ContainerKind::Main, &[("example.com/tpu", 1)])];
    let refusal = extended_claim(&wants, &classes(), &BTreeMap::new()).unwrap_err();
    let expected = "neither a device plugin of the node nor a device class serves example.com/tpu";
    assert_eq!(refusal.to_string(), expected);
    let plugin = [("example.com/tpu".to_owned(), 0)].into();
    assert_eq!(extended_claim(&wants, &classes(), &plugin), Ok(None));
}

#[test]
fn every_class_serves_a_resource_of_its_own_name() {
    let name = "deviceclass.resource.kubernetes.io/mig";
    let wants = [container("a", ContainerKind::Main, &[(name, 1)])];
    assert_eq!(asked(&wants).0, "c0r0=mig*1");
}

#[test]
fn of_classes_for_one_resource_the_youngest_serves_it() {
    let mut classes = Classes::default();
    classes.insert(class("b", Some(GPU)), 1);
    classes.insert(class("a", Some(GPU)), 1);
    assert_eq!(classes.for_resource(GPU).unwrap().name, "a");
    classes.insert(class("c", Some(GPU)), 2);
    assert_eq!(classes.for_resource(GPU).unwrap().name, "c");
    assert_eq!(classes.for_resource("example.com/tpu"), None);
}

#[test]
fn the_claim_is_an_ordinary_one() {
    let wants = [container("a", ContainerKind::Main, &[(GPU, 2)])];
    let claim = extended_claim(&wants, &classes(), &BTreeMap::new()).unwrap().unwrap();
    let claim = claim.claim("team");
    assert_eq!((claim.namespace.as_str(), claim.name.as_str()), ("team", EXTENDED_CLAIM_NAME));
    assert_eq!(claim.requests.len(), 1);
}

#[test]
fn names_of_extended_resources_are_known() {
    for name in [GPU, "example.com/a.b_c-d", "deviceclass.resource.kubernetes.io/x"] {
        assert!(is_extended_resource(name), "{name}");
    }
    for name in [
        "cpu",
        "kubernetes.io/x",
        "a.kubernetes.io/x",
        "requests.nvidia.com/gpu",
        "Nvidia.com/gpu",
        "nvidia.com/",
        "a/b/c",
        "-a.com/x",
    ] {
        assert!(!is_extended_resource(name), "{name}");
    }
}

#[test]
fn amounts_that_cannot_be_summed_up_are_reused_all_the_same() {
    let most: Quantity = "18446744073709551615".parse().unwrap();
    let mut containers = [
        container("warm", ContainerKind::Init, &[(GPU, 1)]),
        container("a", ContainerKind::Main, &[(GPU, 1)]),
        container("b", ContainerKind::Main, &[(GPU, 1)]),
    ];
    for index in [0, 2] {
        containers[index].requests.insert(GPU.to_owned(), most);
    }
    let requests = "c1r0=gpu*1 c2r0=gpu*18446744073709551615";
    assert_eq!(asked(&containers).0, requests);
}
