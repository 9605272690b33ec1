//! What stands in for ssh between the hosts of a lab, for launchers of MPI programs and their like.
//!
//! Inputs → outputs: a [`Lab`] → a script that is called as ssh is (`[options] ADDRESS command…`) and runs
//! the command on the host that has the address, under a host name of its own.

use crate::Lab;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

impl Lab {
    /// Writes the script to `path`, executable.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_remote_shell(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.remote_shell())?;
        fs::set_permissions(path, Permissions::from_mode(0o755))
    }

    fn remote_shell(&self) -> String {
        let hosts: String =
            self.hosts().map(|host| format!("    {}) n={};;\n", host.ip(), host.namespace())).collect();
        format!(
            "#!/bin/sh\n\
             while :; do case \"$1\" in -o|-p|-l|-F|-i) shift 2;; -*) shift;; *) break;; esac; done\n\
             h=$1; shift\n\
             case \"$h\" in\n{hosts}    *) echo \"no such host: $h\" >&2; exit 1;;\nesac\n\
             exec ip netns exec \"$n\" unshare -u /bin/sh -c 'hostname '\"$n\"'; exec /bin/sh -c \"$0\"' \"$*\"\n"
        )
    }
}
