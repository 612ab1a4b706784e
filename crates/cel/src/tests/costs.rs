//! Costs equal those of Kubernetes 1.36.3. The numbers are from its evaluator, for the whole GPU.

use super::devices::samples;
use crate::eval::eval;
use crate::{DeviceView, Selector};

#[test]
fn costs_are_those_of_kubernetes() {
    let costs = [
        (
            r#"device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu""#,
            9,
        ),
        (
            r#"device.attributes["gpu.nvidia.com"].productName.lowerAscii().matches("^.*h100.*$")"#,
            16,
        ),
        (r#"device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("10Gi")) >= 0"#, 7),
        (
            r#"device.attributes["gpu.nvidia.com"].driverVersion.isGreaterThan(semver("580.0.0"))"#,
            6,
        ),
        (r#"device.attributes["gpu.nvidia.com"].productName.split("A").size() >= 2"#, 11),
        (r#"cel.bind(g, device.attributes["gpu.nvidia.com"], g.healthy && g.index > 2)"#, 8),
        ("[3, 1, 2].sort() == [1, 2, 3]", 30),
        ("lists.range(1000).all(x, x >= 0)", 6012),
        ("lists.range(1000).map(x, x + 1).size() == 1000", 15014),
        ("lists.range(1000).filter(x, x % 2 == 0).size() == 500", 10514),
        ("sets.contains([1, 2, 3], [2, 3])", 7),
        (r#""aaaaaaaaaaaaaaaaaaaa".contains("aaaaaaaaaaaaaaaaaaaa")"#, 4),
        (r#"cidr("192.168.0.0/16").containsCIDR("192.168.0.0/16")"#, 7),
    ];
    let [_, gpu, _] = samples();
    let view = DeviceView { driver: gpu.driver, device: &gpu.device };
    for (expression, cost) in costs {
        let selector = Selector::compile(expression).unwrap();
        let (_, budget) = eval(&selector.checked.node, &selector.checked.patterns, view);
        assert_eq!(budget.cost(), cost, "{expression}");
    }
}
