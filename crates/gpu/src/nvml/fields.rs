//! Values by their numbers (`nvmlDeviceGetFieldValues`): many with one call.

use nvml_wrapper_sys::bindings as sys;

use super::call::{self, call};
use super::device::Device;
use crate::DriverError;

/// A field, and what it is about: the number of a link, or 0.
pub(super) type Field = (u32, u32);

/// The values of fields, each with its own error. A field that the driver does not know is [`DriverError::NotSupported`].
pub(super) fn fields<const N: usize>(
    device: Device<'_>,
    wanted: [Field; N],
) -> Result<[Result<u64, DriverError>; N], DriverError> {
    let call = call!(device.library(), nvmlDeviceGetFieldValues)?;
    let mut values = wanted.map(|(field, scope)| sys::nvmlFieldValue_t {
        fieldId: field,
        scopeId: scope,
        timestamp: 0,
        latencyUsec: 0,
        valueType: sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT,
        nvmlReturn: sys::nvmlReturn_enum_NVML_ERROR_UNKNOWN,
        value: sys::nvmlValue_t { ullVal: 0 },
    });
    let code = call::field_values(call, device.handle(), &mut values);
    device.library().check(call.name, code)?;
    Ok(values.map(|field| {
        // A driver older than the field rejects its number. The call succeeds even if a field does not.
        if field.nvmlReturn == sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT {
            return Err(DriverError::NotSupported { call: "nvmlDeviceGetFieldValues" });
        }
        device.library().check("nvmlDeviceGetFieldValues", field.nvmlReturn)?;
        Ok(number(&field))
    }))
}

/// The value as a number without a sign. None of the fields asked for is negative or a fraction.
fn number(field: &sys::nvmlFieldValue_t) -> u64 {
    // JUSTIFICATION: NVML hands the values of fields over in a union.
    // SAFETY: every member of the union is a number, and all its bytes were initialised above.
    let whole = unsafe { field.value.ullVal };
    // The machines are little-endian: a shorter number is in the first bytes.
    match field.valueType {
        sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT
        | sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT => whole & u64::from(u32::MAX),
        sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_SHORT => whole & u64::from(u16::MAX),
        _ => whole,
    }
}
