//! Numbers that callers give: one that its type does not hold is refused as any other value that cannot be.
//!
//! Inputs → outputs: a Python object → a number, or numbers; or `ValueError` with what they may be, to which the
//! caller of [`numbers`] adds the argument's name.

use crate::peer::Peer;
use crate::wait::listed;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

/// What is or has numbers of one type.
pub(crate) trait Numbers {
    /// The least and the largest of that type.
    const LIMITS: (i128, i128);
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Numbers for $number {
            const LIMITS: (i128, i128) = (<$number>::MIN as i128, <$number>::MAX as i128);
        })*
    };
}

numbers!(u8, u16, u32, u64, usize, i32);

impl<T: Numbers> Numbers for Option<T> {
    const LIMITS: (i128, i128) = T::LIMITS;
}

impl<T: Numbers> Numbers for (Bound<'_, Peer>, T) {
    const LIMITS: (i128, i128) = T::LIMITS;
}

/// Takes an argument that is or has numbers; for `from_py_with`.
pub(crate) fn numbers<'a, 'py, T>(value: &'a Bound<'py, PyAny>) -> PyResult<T>
where
    T: Numbers + FromPyObject<'a, 'py>,
{
    value.extract::<T>().map_err(|error| in_words(value, error.into(), T::LIMITS))
}

/// As [`numbers`], for a sequence of what is or has them.
pub(crate) fn several_numbers<'py, T>(value: &Bound<'py, PyAny>) -> PyResult<Vec<T>>
where
    T: Numbers + FromPyObjectOwned<'py>,
{
    listed(value).map_err(|error| in_words(value, error, T::LIMITS))
}

/// As [`several_numbers`], where there may be `None` instead.
pub(crate) fn several_numbers_or_none<'py, T>(value: &Bound<'py, PyAny>) -> PyResult<Option<Vec<T>>>
where
    T: Numbers + FromPyObjectOwned<'py>,
{
    if value.is_none() { Ok(None) } else { several_numbers(value).map(Some) }
}

/// As [`numbers`], for what may be `LEAST` to `MOST` alone; that a number of the type is none of those, who is
/// given it says.
pub(crate) fn numbers_in<'a, 'py, T, const LEAST: i128, const MOST: i128>(
    value: &'a Bound<'py, PyAny>,
) -> PyResult<T>
where
    T: Numbers + FromPyObject<'a, 'py>,
{
    value.extract::<T>().map_err(|error| in_words(value, error.into(), (LEAST, MOST)))
}

/// Says of a number that does not fit what would.
fn in_words(value: &Bound<'_, PyAny>, error: PyErr, (least, most): (i128, i128)) -> PyErr {
    if !error.is_instance_of::<PyOverflowError>(value.py()) {
        return error;
    }
    // Python does not write numbers of thousands of digits.
    let given = value.repr().map_or_else(|_| "a number that long".to_owned(), |text| text.to_string());
    PyValueError::new_err(format!("{given}: it takes whole numbers from {least} to {most}"))
}
