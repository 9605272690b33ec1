//! `denrei keygen`: makes the secrets that Nodes are given.
//!
//! Inputs → outputs: the system's random generator → a file that its owner alone can read, or
//! standard output, which is made such a file if it is one.

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use denrei::{ClusterKey, Identity, SecretOctets, key_file};
use denrei_output::{self as output, tell};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Permissions of a secret file.
const SECRET_MODE: u32 = 0o600;

/// What to do with a cluster key.
const KEY_ADVICE: &str = "copy it to every node over a channel you trust, and name it there by --key-file or \
                          DENREI_KEY_FILE";

/// What to do with an identity.
const IDENTITY_ADVICE: &str = "keep it on its node alone, and name it there by --identity-file or \
                               DENREI_IDENTITY_FILE; its public half goes into the allow-list of the others";

/// Make a cluster key, or a node's identity.
///
/// Whoever has the cluster key may take part in the cluster; its nodes seal every packet with keys
/// that come of it. An identity tells one node from the others: a node that has one speaks only with
/// those whose public half is in its allow-list.
///
/// A secret is one line of text. Its file is made readable by its owner alone (0600), and files that
/// others can read are not loaded. Nothing is overwritten.
#[derive(Args, Debug)]
pub struct KeygenCommand {
    /// Make an identity rather than a cluster key; the public half is printed
    #[arg(long)]
    identity: bool,

    /// Write into this new file rather than to standard output, which `-` names, too
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Print the public half of the identity in this file, and make nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["identity", "out"])]
    public: Option<PathBuf>,
}

impl KeygenCommand {
    /// Runs it.
    pub fn run(&self) -> Result<()> {
        if let Some(path) = &self.public {
            let identity = key_file::read_identity(path)?;
            output::text(&key_file::public_identity_line(&identity.public()));
            return Ok(());
        }
        if !self.identity {
            return self.write(&key_file::cluster_key_line(&new_cluster_key()?), "cluster key", KEY_ADVICE);
        }
        let identity = random_octets().map(|octets| Identity::copy_of(&octets))?;
        self.write(&key_file::identity_line(&identity), "secret identity", IDENTITY_ADVICE)?;
        let public = key_file::public_identity_line(&identity.public());
        if self.file().is_some() {
            output::text(&public);
            return Ok(());
        }
        let mut aside = io::stderr().lock();
        aside.write_all(public.as_bytes()).context("cannot write the public identity to standard error")
    }

    /// The file to write into; none for standard output.
    fn file(&self) -> Option<&Path> {
        self.out.as_deref().filter(|path| *path != Path::new("-"))
    }

    fn write(&self, line: &str, what: &str, advice: &str) -> Result<()> {
        if let Some(path) = self.file() {
            key_file::write_new(path, line)?;
            tell!("wrote a {what} to {} (0600): {advice}", path.display());
            return Ok(());
        }
        let stdout = io::stdout();
        let file = File::from(stdout.as_fd().try_clone_to_owned()?);
        let is_file = protect(&file)?;
        output::text(line);
        if is_file {
            tell!("wrote a {what}, in a file that its owner alone can read now (0600): {advice}");
        } else if stdout.is_terminal() {
            tell!(
                "this is a secret, and now on a screen: `denrei keygen --out FILE` keeps the next one in a file"
            );
        }
        Ok(())
    }
}

/// A cluster key nobody has.
pub fn new_cluster_key() -> Result<ClusterKey> {
    random_octets().map(|octets| ClusterKey::copy_of(&octets))
}

fn random_octets() -> Result<SecretOctets> {
    let mut octets = SecretOctets::default();
    getrandom::fill(&mut *octets).map_err(|error| anyhow!("the system gives no random octets: {error}"))?;
    Ok(octets)
}

/// Makes the file that standard output was redirected to a secret one, before there is a secret in
/// it; whether it is a file.
fn protect(stdout: &File) -> Result<bool> {
    let about = stdout.metadata().context("cannot look at standard output")?;
    if is_closed(stdout, &about) {
        bail!(
            "standard output is closed, and the key would be lost: let it go to a new file, or name one by --out FILE"
        );
    }
    if !about.is_file() {
        return Ok(false);
    }
    if about.len() > 0 {
        bail!(
            "the file that standard output goes to is not empty, and a key file holds one key: name a new file"
        );
    }
    stdout
        .set_permissions(Permissions::from_mode(SECRET_MODE))
        .context("cannot make the file that standard output goes to a secret: use --out FILE")?;
    Ok(true)
}

/// Whether the command was started without standard output. The null device was put into its place as it began, which can
/// be read there too, as it cannot where somebody has named it (`>/dev/null`).
fn is_closed(mut stdout: &File, about: &Metadata) -> bool {
    let is_null = std::fs::metadata("/dev/null").is_ok_and(|null| null.rdev() == about.rdev());
    about.file_type().is_char_device() && is_null && stdout.read(&mut [0]).is_ok()
}
