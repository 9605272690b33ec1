//! Why a cast, or one receiver's part of it, came to nothing.

use crate::manifest::ManifestError;
use crate::message::{FailureCode, harmless};
use denrei::LostReason;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a cast could not be sent or received. The text says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CastError {
    /// A file or directory.
    #[error("cannot {what} {}: {source}{}", shown(path), hint(what, source))]
    Storage {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// What would be sent or received may not be.
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    /// A thing that cannot be sent.
    #[error("{}: {problem}", shown(path))]
    Unsendable {
        /// Its path.
        path: PathBuf,
        /// Why, and what to do.
        problem: &'static str,
    },
    /// It was written to meanwhile.
    #[error("{} changed while it was sent: send a copy of it, or once nobody writes to it", shown(path))]
    Changed {
        /// Its path.
        path: PathBuf,
    },
    /// It was there when the cast began.
    #[error("{} was removed while it was sent: put it back, or leave it out, and send again", shown(path))]
    Removed {
        /// Its path.
        path: PathBuf,
    },
    /// What arrived is not what was sent, and, where it can be asked for again, not the second time either.
    #[error("{} differs from what was sent: the disk or the memory of a host is faulty", shown(path))]
    Damaged {
        /// Its path.
        path: PathBuf,
    },
    /// What is there is of another kind.
    #[error("{} is there and {problem}: move it away, or receive into another directory", shown(path))]
    InTheWay {
        /// Its path.
        path: PathBuf,
        /// What about it.
        problem: &'static str,
    },
    /// Another process receives the same into the same directory.
    #[error("another receiver uses {}: receive into another directory", shown(path))]
    InUse {
        /// What it uses.
        path: PathBuf,
    },
    /// Nobody to send to.
    #[error("{0}")]
    NoReceivers(String),
    /// The sender is gone, or has given up.
    #[error("{0}")]
    Sender(String),
    /// The other side does not keep to the protocol.
    #[error("the sender broke the protocol of a cast: {0}")]
    Protocol(&'static str),
    /// More than one file for a pipe.
    #[error(
        "only one file or a stream can be passed on as a stream, but this is {entries} entries: give a directory"
    )]
    NotOneFile {
        /// How many entries there are.
        entries: usize,
    },
    /// Its user broke it off.
    #[error("the cast was broken off; {}", after(*stream))]
    Cancelled {
        /// It was one of a stream.
        stream: bool,
    },
    /// The Node or its group.
    #[error("{0}")]
    Transport(String),
}

impl CastError {
    /// How the other side is told.
    pub fn code(&self) -> FailureCode {
        match self {
            Self::Storage { source, .. } if is_full(source) => FailureCode::Full,
            Self::Storage { .. } | Self::InTheWay { .. } | Self::InUse { .. } => FailureCode::Storage,
            Self::Manifest(_) | Self::Protocol(_) | Self::NotOneFile { .. } => FailureCode::Refused,
            Self::Damaged { .. } => FailureCode::Damaged,
            _ => FailureCode::Other,
        }
    }
}

/// A path for people.
pub(crate) fn shown(path: &Path) -> String {
    harmless(&path.to_string_lossy())
}

/// Makes a storage error of what was tried with a path.
pub fn storage(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> CastError {
    let path = path.into();
    move |source| CastError::Storage { what, path, source }
}

/// What a receiver does in its directory while that is found by its name.
pub const GO_ON: &str = "go on in the directory";

/// A time that somebody has set, as it was set.
pub fn in_seconds(time: std::time::Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// Why a session is over, for who knows options of a cast alone.
pub(crate) fn in_words(why: &LostReason) -> String {
    match why {
        LostReason::TimedOut => "it does not answer any more".into(),
        why => why.to_string(),
    }
}

/// Whether a side that has ended a session for this reason will not open another.
pub(crate) fn is_end(why: &LostReason) -> bool {
    !matches!(
        why,
        LostReason::TimedOut | LostReason::NoAnswer | LostReason::Forgotten | LostReason::Restarted
    )
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// What becomes of a cast that was broken off.
fn after(stream: bool) -> &'static str {
    match stream {
        true => "a stream does not go on from there: send it again from its beginning",
        false => "what receivers have is kept, and the same cast goes on from there",
    }
}

fn hint(what: &str, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound if what == GO_ON => {
            "; somebody has removed it, or moved it away: receive again"
        }
        _ if is_full(error) => {
            "; make room and receive again: what is here of files is kept and not sent again"
        }
        io::ErrorKind::FileTooLarge => {
            "; the file system, or this user's limit (ulimit -f), takes no files of that size: receive into another \
             directory, or raise the limit"
        }
        _ => "",
    }
}
