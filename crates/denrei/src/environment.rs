//! What the environment decides for programs whose code does not: secrets, and who drives a Node.
//!
//! Inputs → outputs: a [`Config`] and variables → the same with what was missing. The configuration
//! goes before the environment; a Node that is [`insecure`](Config::insecure) and has no key was
//! meant to have none, so nothing is read for it. Any other that is to have an identity and no key is refused:
//! it would speak plain to whoever comes.

use crate::BindError;
use crate::config::{Config, Drive};
use crate::key_file::{read_allow_list, read_cluster_key, read_identity};
use crate::shards::MAX_SHARDS;
use denrei_proto::ConfigError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Names the file with the cluster key.
pub const KEY_FILE: &str = "DENREI_KEY_FILE";
/// Names the file with this Node's identity.
pub const IDENTITY_FILE: &str = "DENREI_IDENTITY_FILE";
/// Names the file with the identities to speak with.
pub const ALLOW_FILE: &str = "DENREI_ALLOW_FILE";

/// Which thread drives a Node whose program leaves that at the default: inline, thread or pipelined.
pub const DRIVE: &str = "DENREI_DRIVE";

/// Over how many threads a pipelined Node, whose program leaves that at the default, spreads its peers.
pub const SHARDS: &str = "DENREI_SHARDS";

/// Names the directory where Nodes whose program says nothing of that tell [how they are](crate::status).
pub const STATUS_DIRECTORY: &str = "DENREI_STATUS_DIRECTORY";

/// Who drives Nodes whose program leaves that open: as [`DRIVE`] says, or `otherwise`; for bindings whose own default
/// is not that of [`Config`].
///
/// # Errors
/// If the variable names none.
pub fn drive_or(otherwise: Drive) -> Result<Drive, ConfigError> {
    Ok(named_drive(std::env::var_os)?.unwrap_or(otherwise))
}

/// What `variable` says of the setting `name`, which is made in `alone`; whether it says anything.
///
/// # Errors
/// If that is no value of the setting; the variable is named.
fn named(
    variable: impl Fn(&'static str) -> Option<OsString>,
    in_variable: &'static str,
    name: &str,
    alone: &mut Config,
) -> Result<bool, ConfigError> {
    let Some(text) = variable(in_variable).filter(|text| !text.is_empty()) else { return Ok(false) };
    let set = alone.set(name, &text.to_string_lossy());
    set.map_err(|error| ConfigError { setting: in_variable, ..error })?;
    Ok(true)
}

fn named_drive(variable: impl Fn(&'static str) -> Option<OsString>) -> Result<Option<Drive>, ConfigError> {
    let mut alone = Config::default();
    Ok(named(variable, DRIVE, "drive", &mut alone)?.then_some(alone.drive))
}

fn named_shards(variable: impl Fn(&'static str) -> Option<OsString>) -> Result<Option<usize>, ConfigError> {
    let mut alone = Config::default();
    let expected = || format!("a whole number from 1 to {MAX_SHARDS}");
    let is_named = named(variable, SHARDS, "shards", &mut alone)
        .map_err(|error| ConfigError { expected: expected(), ..error })?;
    if (1..=MAX_SHARDS).contains(&alone.shards) {
        return Ok(is_named.then_some(alone.shards));
    }
    Err(ConfigError { setting: SHARDS, value: alone.shards.to_string(), expected: expected() })
}

/// Fills in what `config` leaves open from the files that `variable` names.
pub(crate) fn complete(
    mut config: Config,
    variable: impl Fn(&'static str) -> Option<OsString>,
) -> Result<Config, BindError> {
    let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let refused = |variable| move |source| BindError::KeyFile { variable, source };
    // Both are read whoever drives the Node: a slip of the pen shows at once, not with the next drive.
    let drive = named_drive(&variable)?;
    let shards = named_shards(&variable)?;
    if config.drive == Drive::default() {
        config.drive = drive.unwrap_or_default();
    }
    if config.drive == Drive::Pipelined && config.shards == 1 {
        config.shards = shards.unwrap_or(1);
    }
    config.status_directory = config.status_directory.or_else(|| path(STATUS_DIRECTORY));
    if !config.has_key()
        && !config.insecure
        && let Some(path) = path(KEY_FILE)
    {
        config.cluster_key = Some(read_cluster_key(&path).map_err(refused(KEY_FILE))?);
    }
    if !config.has_key() {
        let named = [IDENTITY_FILE, ALLOW_FILE].into_iter().find_map(|name| Some((name, path(name)?)));
        return match named.filter(|_| !config.insecure) {
            Some((name, path)) => Err(without_key(name, &path).into()),
            None => Ok(config),
        };
    }
    if config.identity.is_none()
        && config.protocol.identity.is_none()
        && let Some(path) = path(IDENTITY_FILE)
    {
        config.identity = Some(read_identity(&path).map_err(refused(IDENTITY_FILE))?);
    }
    if config.allowed.is_empty()
        && config.protocol.allowed.is_empty()
        && let Some(path) = path(ALLOW_FILE)
    {
        config.allowed = read_allow_list(&path).map_err(refused(ALLOW_FILE))?;
    }
    Ok(config)
}

fn without_key(variable: &'static str, path: &Path) -> ConfigError {
    ConfigError {
        setting: variable,
        value: path.display().to_string(),
        expected: format!(
            "unset where there is no cluster key, which {KEY_FILE} can name: identities are shown to those alone \
             who have it"
        ),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::key_file::{cluster_key_line, identity_line, public_identity_line, write_new};
    use denrei_proto::seal::{ClusterKey, Identity};

    #[test]
    fn the_configuration_goes_before_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let (key, identity) = (ClusterKey::from_bytes([1; 32]), Identity::from_bytes([2; 32]));
        write_new(&dir.path().join(KEY_FILE), &cluster_key_line(&key)).unwrap();
        write_new(&dir.path().join(IDENTITY_FILE), &identity_line(&identity)).unwrap();
        write_new(&dir.path().join(ALLOW_FILE), &public_identity_line(&identity.public())).unwrap();
        let variable = |name| (![DRIVE, SHARDS].contains(&name)).then(|| dir.path().join(name).into());
        let all = complete(Config::default(), variable).unwrap();
        assert_eq!((all.cluster_key, all.identity), (Some(key), Some(identity.clone())));
        assert_eq!(all.allowed, [identity.public()]);
        let own = Some(ClusterKey::from_bytes([3; 32]));
        let config = Config { cluster_key: own.clone(), ..Config::default() };
        assert_eq!(complete(config, variable).unwrap().cluster_key, own);
        let plain = complete(Config { insecure: true, ..Config::default() }, variable).unwrap();
        assert!(!plain.has_key() && plain.identity.is_none() && plain.allowed.is_empty());
        assert!(!complete(Config::default(), |_| Some(OsString::new())).unwrap().has_key());
        let piped = complete(Config::default(), |name| (name == DRIVE).then(|| "pipelined".into())).unwrap();
        assert_eq!((piped.drive, piped.shards), (Drive::Pipelined, 1));
        let shards = |drive| {
            let config = Config { drive, ..Config::default() };
            complete(config, |name| (name == SHARDS).then(|| "3".into())).unwrap().shards
        };
        assert_eq!([Drive::Inline, Drive::Thread, Drive::Pipelined].map(shards), [1, 1, 3]);
        let set = Config { drive: Drive::Thread, ..Config::default() };
        let kept = complete(set, |name| (name == DRIVE).then(|| "pipelined".into())).unwrap();
        assert_eq!(kept.drive, Drive::Thread, "the configuration goes before the environment");
        let unknown = complete(Config::default(), |name| (name == DRIVE).then(|| "fast".into()));
        assert!(unknown.unwrap_err().to_string().contains("inline, thread or pipelined"));
        let missing =
            complete(Config::default(), |name| (![DRIVE, SHARDS].contains(&name)).then(|| "/nowhere".into()))
                .unwrap_err()
                .to_string();
        assert!(missing.contains("/nowhere") && missing.contains(KEY_FILE), "{missing}");
    }

    #[test]
    fn what_cannot_be_read_is_refused_whoever_drives_the_node() {
        for (name, wrong, possible) in [
            (DRIVE, "fast", "inline, thread or pipelined"),
            (SHARDS, "x", "a whole number from 1 to 128"),
            (SHARDS, "0", "a whole number from 1 to 128"),
            (SHARDS, "129", "a whole number from 1 to 128"),
            (SHARDS, "-1", "a whole number from 1 to 128"),
        ] {
            for drive in [Drive::Inline, Drive::Thread, Drive::Pipelined] {
                let config = Config { drive, insecure: true, ..Config::default() };
                let text =
                    complete(config, |asked| (asked == name).then(|| wrong.into())).unwrap_err().to_string();
                assert!(text.starts_with(name) && text.contains(wrong) && text.ends_with(possible), "{text}");
            }
        }
        let no_text = || std::os::unix::ffi::OsStringExt::from_vec(vec![0xff]);
        for name in [DRIVE, SHARDS] {
            assert!(complete(Config::default(), |asked| (asked == name).then(no_text)).is_err(), "{name}");
        }
    }

    #[test]
    fn an_identity_without_a_key_is_refused_as_it_is_where_it_is_a_setting() {
        for name in [IDENTITY_FILE, ALLOW_FILE] {
            let variable = |asked| (asked == name).then(|| "/a/file".into());
            let error = complete(Config::default(), variable).unwrap_err();
            assert!(matches!(error, BindError::Config(_)), "{error:?}");
            let text = error.to_string();
            assert!(text.starts_with(&format!("{name} is /a/file, but has to be unset")), "{text}");
            assert!(text.contains(KEY_FILE), "{text}");
            assert!(complete(Config { insecure: true, ..Config::default() }, variable).is_ok());
        }
    }
}
