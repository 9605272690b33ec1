//! Settings as keyword arguments.

use crate::error;
use denrei::key_file::{read_allow_list, read_cluster_key, read_identity};
use denrei::{Config, Drive, Setting, environment};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use std::path::PathBuf;

/// Names of settings, and what their values look like.
pub(crate) fn described<'py, T>(py: Python<'py>, settings: &[Setting<T>]) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for setting in settings {
        all.set_item(setting.name, setting.values)?;
    }
    Ok(all)
}

/// Sets each keyword argument by its name and its value as text.
pub(crate) fn set_by_keywords(
    keywords: Option<&Bound<'_, PyDict>>,
    mut set: impl FnMut(&str, &str) -> PyResult<()>,
) -> PyResult<()> {
    for (name, value) in keywords.into_iter().flatten() {
        set(&name.extract::<String>()?, &text(&value)?)?;
    }
    Ok(())
}

/// The settings that keyword arguments make.
pub(crate) fn from_keywords(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Config> {
    let mut config = Config::default();
    if !keywords.map_or(Ok(false), |keywords| keywords.contains("drive"))? {
        // A Python program goes away and computes.
        config.drive = environment::drive_or(Drive::Thread).map_err(error::config)?;
    }
    for (name, value) in keywords.into_iter().flatten() {
        let name: String = name.extract()?;
        match name.as_str() {
            "key_file" => config.cluster_key = Some(read_cluster_key(&path(&value)?).map_err(error::value)?),
            "identity_file" => config.identity = Some(read_identity(&path(&value)?).map_err(error::value)?),
            "allow_file" => config.allowed = read_allow_list(&path(&value)?).map_err(error::value)?,
            _ => config.set(&name, &text(&value)?).map_err(error::config)?,
        }
    }
    Ok(config)
}

fn path(value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    value.extract()
}

/// `True` is "on"; numbers are what they look like.
fn text(value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(switch) = value.cast::<PyBool>() {
        return Ok(if switch.is_true() { "on" } else { "off" }.to_owned());
    }
    Ok(value.str()?.to_str()?.to_owned())
}
