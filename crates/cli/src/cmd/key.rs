//! The options of every command that opens a Node: which key protects it, or that none does.

use super::wrong_arguments;
use anyhow::{Result, bail};
use clap::Args;
use denrei::{Config, environment, key_file};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What protects the Nodes of a command.
#[derive(Args, Clone, Debug, Default)]
pub struct KeyArgs {
    /// Seal everything with the cluster key of this file, which `denrei keygen` writes; where it is
    /// not given, DENREI_KEY_FILE names one
    #[arg(long, alias = "key", value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// This node's secret identity, which `denrei keygen --identity` writes, or DENREI_IDENTITY_FILE
    #[arg(long, value_name = "FILE")]
    pub identity_file: Option<PathBuf>,

    /// The public identities to speak with, one a line, or DENREI_ALLOW_FILE
    #[arg(long, value_name = "FILE")]
    pub allow_file: Option<PathBuf>,

    /// Go without a key on any address, not on loopback only: whoever reaches it can read and inject
    /// messages
    #[arg(long)]
    pub insecure: bool,
}

impl KeyArgs {
    /// Whether what is named is of use.
    ///
    /// # Errors
    /// An identity without a key, or without those to speak with, or these without an identity.
    pub fn check(&self) -> Result<()> {
        let named = self.identity_file.is_some() || self.allow_file.is_some();
        if named && self.key_file.is_none() {
            return Err(wrong_arguments(
                "--identity-file and --allow-file take a key: identities are shown to those alone who have the \
                 cluster key, which --key-file or DENREI_KEY_FILE names",
            ));
        }
        if self.identity_file.is_some() != self.allow_file.is_some() {
            return Err(wrong_arguments(
                "--identity-file takes --allow-file, and that the other: a node with an identity speaks with those \
                 alone that are listed",
            ));
        }
        Ok(())
    }

    /// Whether what is given is of use for Nodes on loopback alone.
    ///
    /// # Errors
    /// That they go without a key.
    pub fn check_on_loopback(&self) -> Result<()> {
        if !self.insecure {
            return Ok(());
        }
        Err(wrong_arguments(
            "--insecure has no effect here: on loopback the row without a key needs none; it takes sides on other \
             addresses",
        ))
    }

    /// Whether sides on two machines have one key.
    ///
    /// # Errors
    /// None is named.
    pub fn check_between_machines(&self) -> Result<()> {
        if self.name_a_key() {
            return Ok(());
        }
        Err(wrong_arguments("between two machines --sealed needs --key-file FILE, on both"))
    }

    /// Whether a row without a key can be measured with the machine at `addr`.
    ///
    /// # Errors
    /// That has to be allowed beyond loopback.
    pub fn check_plain_with(&self, addr: SocketAddr) -> Result<()> {
        if self.insecure || addr.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        Err(wrong_arguments(
            "the row denrei goes without a key, whichever is named: between two machines it takes --insecure, on both, \
             or is left out by --transports, such as denrei-sealed,tcp,udp",
        ))
    }

    /// The default configuration of a Node with these secrets.
    ///
    /// # Errors
    /// If a file cannot be used, or is of no use; says what to do.
    pub fn config(&self) -> Result<Config> {
        self.check()?;
        Ok(Config {
            cluster_key: read(&self.key_file, environment::KEY_FILE, key_file::read_cluster_key)?,
            identity: read(&self.identity_file, environment::IDENTITY_FILE, key_file::read_identity)?,
            allowed: read(&self.allow_file, environment::ALLOW_FILE, key_file::read_allow_list)?
                .unwrap_or_default(),
            insecure: self.insecure,
            ..Config::default()
        })
    }

    /// The default configuration of a Node of this process, with what the environment names where nothing is given; and
    /// without where it was told to go without a key, as [`Node::bind`](denrei::Node::bind) does it.
    ///
    /// # Errors
    /// As [`config`](Self::config).
    pub fn own_config(self) -> Result<Config> {
        let is_plain = self.insecure && self.key_file.is_none();
        if is_plain { self.config() } else { self.or_environment().config() }
    }

    /// The same with the files that the environment names where none is given.
    pub fn or_environment(mut self) -> Self {
        self.key_file = self.key_file.or_else(|| named_by(environment::KEY_FILE));
        self.identity_file = self.identity_file.or_else(|| named_by(environment::IDENTITY_FILE));
        self.allow_file = self.allow_file.or_else(|| named_by(environment::ALLOW_FILE));
        self
    }

    /// Whether a key is named, here or by the environment.
    pub fn name_a_key(&self) -> bool {
        self.clone().or_environment().key_file.is_some()
    }

    /// The same options for a process that this one starts.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args = Vec::new();
        let files = [
            ("--key-file", &self.key_file),
            ("--identity-file", &self.identity_file),
            ("--allow-file", &self.allow_file),
        ];
        for (option, file) in files {
            args.extend(file.iter().flat_map(|file| [option.into(), file.clone().into()]));
        }
        args.extend(self.insecure.then(|| "--insecure".into()));
        args
    }
}

/// The file that a variable of the environment names.
fn named_by(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// What the file holds, if one is named; the error says so if it was `variable` that may have named it.
fn read<T>(
    path: &Option<PathBuf>,
    variable: &str,
    read: impl Fn(&Path) -> Result<T, key_file::KeyFileError>,
) -> Result<Option<T>> {
    let Some(path) = path else { return Ok(None) };
    match read(path) {
        Ok(held) => Ok(Some(held)),
        Err(error) if named_by(variable).as_ref() == Some(path) => {
            bail!("{error} ({variable} names this file)")
        }
        Err(error) => Err(error.into()),
    }
}
