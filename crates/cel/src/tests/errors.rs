//! Errors name the expression, the position and the device.

use super::devices::Device;
use super::matches;
use crate::{AttributeValue, CelError, DeviceView, Selector};

#[test]
fn a_syntax_error_names_expression_and_place() {
    let error = Selector::compile("device.driver == = 1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "selector \"device.driver == = 1\" is invalid at character 18: \
         character '=' is not expected here"
    );
}

#[test]
fn places_are_counted_in_characters() {
    let error = Selector::compile("\"größe\" == nothing").unwrap_err();
    assert!(matches!(error, CelError::Compile { at: 12, .. }), "{error}");
}

#[test]
fn an_unknown_device_field_lists_the_known_ones() {
    let error = Selector::compile("device.name == \"x\"").unwrap_err();
    assert!(error.to_string().contains("a device has driver, attributes, capacity"), "{error}");
}

#[test]
fn a_missing_attribute_names_the_device() {
    let error = matches("device.attributes['a.com'].x == 1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "selector \"device.attributes['a.com'].x == 1\" failed for device bare: no such key: x"
    );
}

#[test]
fn a_result_that_is_not_bool_is_an_error() {
    let device = Device {
        name: "gpu-0".to_owned(),
        attributes: [("index".to_owned(), AttributeValue::Int(1))].into(),
        ..Device::default()
    };
    let selector = Selector::compile("device.attributes['a.com'].index").unwrap();
    let error = selector.matches(DeviceView { driver: "a.com", device: &device }).unwrap_err();
    assert!(matches!(error, CelError::NotBool { found: "int", .. }), "{error}");
}

#[test]
fn an_expression_that_can_never_be_a_bool_does_not_compile() {
    let error = Selector::compile("device.driver").unwrap_err();
    assert!(error.to_string().contains("the result must be a bool, not of type string"), "{error}");
}

#[test]
fn an_expression_beyond_the_apis_length_is_refused() {
    let longest = format!("true{}", " ".repeat(10 * 1024 - 4));
    assert_eq!(matches(&longest), Ok(true));
    let error = Selector::compile(&format!("{longest} ")).unwrap_err();
    assert!(matches!(error, CelError::TooLong { length: 10_241, .. }));
    assert!(error.to_string().len() < 400, "only the beginning is shown");
}

#[test]
fn a_device_with_a_version_that_is_none_fails_every_expression() {
    let device = Device {
        attributes: [("version".to_owned(), AttributeValue::Version("13.0".to_owned()))].into(),
        ..Device::default()
    };
    let selector = Selector::compile("true").unwrap();
    let error = selector.matches(DeviceView { driver: "a.com", device: &device }).unwrap_err();
    assert!(error.to_string().contains("attribute version has version \"13.0\""), "{error}");
}

#[test]
fn a_wrong_pattern_is_found_when_the_expression_is_compiled() {
    let error = Selector::compile("device.driver.matches('(')").unwrap_err();
    assert!(error.to_string().contains("is not a regular expression: unclosed group"), "{error}");
}

#[test]
fn selectors_can_be_shared_among_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Selector>();
    shared::<crate::SelectorCache>();
}
