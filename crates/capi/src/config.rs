//! Settings.

use crate::error::{Failure, borrow, call, denrei_code, free, text};
use denrei::key_file::{read_allow_list, read_cluster_key, read_identity};
use denrei::{Config, SETTINGS, Setting};
use std::ffi::{CString, c_char};
use std::path::Path;
use std::sync::OnceLock;

/// Settings of a node, made by denrei_config_new.
pub struct denrei_config {
    pub(crate) config: Config,
}

/// Settings that are right for a LAN and safe on the internet.
#[unsafe(no_mangle)]
pub extern "C" fn denrei_config_new() -> *mut denrei_config {
    Box::into_raw(Box::new(denrei_config { config: Config::default() }))
}

/// # Safety
/// `config` is null or settings, used by one thread at a time.
unsafe fn writable<'a>(config: *mut denrei_config) -> Result<&'a mut denrei_config, Failure> {
    // SAFETY: by the contract.
    unsafe { config.as_mut() }.ok_or_else(|| Failure::null("config"))
}

/// Gives settings back. Nodes made with them keep theirs.
///
/// # Safety
/// `config` is NULL or comes from denrei_config_new, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_config_free(config: *mut denrei_config) {
    // SAFETY: by the contract.
    unsafe { free(config) };
}

/// Sets one setting by its name, such as "failure_timeout" to "5s", "channel_credit_bytes" to
/// "1MiB", "drive" to "thread". An unknown name and an impossible value are refused with
/// DENREI_CONFIG and a message that lists what is possible.
///
/// # Safety
/// `config` comes from denrei_config_new; `name` and `value` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_config_set(
    config: *mut denrei_config,
    name: *const c_char,
    value: *const c_char,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let (name, value) = unsafe { (text("name", name)?, text("value", value)?) };
        // SAFETY: by the contract.
        Ok(unsafe { writable(config)? }.config.set(name, value)?)
    })
}

/// Takes the cluster key from a file that `denrei keygen` has made. Without this a node takes the one
/// that DENREI_KEY_FILE names, if it is set.
///
/// # Safety
/// `config` comes from denrei_config_new, `path` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_config_key_file(
    config: *mut denrei_config,
    path: *const c_char,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let (config, path) = unsafe { (writable(config)?, text("path", path)?) };
        config.config.cluster_key = Some(read_cluster_key(Path::new(path))?);
        Ok(())
    })
}

/// Takes this node's identity from a file that `denrei keygen --identity` has made, and the public
/// identities to speak with from a list, one a line.
///
/// # Safety
/// `config` comes from denrei_config_new, `identity` and `allow_list` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_config_identity(
    config: *mut denrei_config,
    identity: *const c_char,
    allow_list: *const c_char,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let config = unsafe { writable(config)? };
        // SAFETY: by the contract.
        let (identity, list) = unsafe { (text("identity", identity)?, text("allow_list", allow_list)?) };
        config.config.identity = Some(read_identity(Path::new(identity))?);
        config.config.allowed = read_allow_list(Path::new(list))?;
        Ok(())
    })
}

/// Whether a node could be made with these settings; if not, the message says what to change.
///
/// # Safety
/// `config` comes from denrei_config_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_config_check(config: *const denrei_config) -> denrei_code {
    // SAFETY: by the contract.
    call(|| Ok(unsafe { borrow("config", config) }?.config.validate()?))
}

/// One of the names of settings, which `kept` keeps as strings of C.
pub(crate) fn name_of<T>(
    kept: &'static OnceLock<Vec<CString>>,
    settings: &[Setting<T>],
    index: usize,
) -> *const c_char {
    let strings = || settings.iter().filter_map(|setting| CString::new(setting.name).ok()).collect();
    kept.get_or_init(strings).get(index).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// Names of all settings, in turn from index 0; NULL after the last.
#[unsafe(no_mangle)]
pub extern "C" fn denrei_setting_name(index: usize) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    name_of(&NAMES, SETTINGS, index)
}
