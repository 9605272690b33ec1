//! Groups for collective operations where the network carries no multicast.

use crate::launch::lab;
use crate::{OverGroups, assert_says};
use denrei_netlab::Host;

/// What comes to the host by multicast is lost.
fn drop_multicast(host: &Host<'_>) {
    for rule in [
        "add table ip reach",
        "add chain ip reach in { type filter hook prerouting priority -300; }",
        "add rule ip reach in ip daddr 224.0.0.0/4 meta l4proto udp drop",
    ] {
        assert!(host.command("nft").arg(rule).status().unwrap().success(), "{rule}");
    }
}

/// Else each new communicator would wait to find it out, and what its groups carry by unicast the MPI does better itself.
#[test]
fn groups_are_left_alone_where_multicast_does_not_reach() {
    const NAME: &str = "groups_are_left_alone_where_multicast_does_not_reach";
    let Some(mpi) = OverGroups::find(NAME, "communicators") else { return };
    let Some(lab) = lab(NAME, 3, &mpi.shell()) else { return };
    let all_hear = || {};
    let one_is_deaf = || drop_multicast(&lab.host(2));
    let all_are_deaf = || lab.multicast(false).unwrap();
    let cases: [(&dyn Fn(), usize); 3] = [(&all_hear, 0), (&one_is_deaf, 3), (&all_are_deaf, 3)];
    for (change, left_alone) in cases {
        change();
        let mut command = mpi.run_on_hosts(&lab);
        let output = command.env("DENREI_MPI_VERBOSE", "1").arg(&mpi.groups.program).output().unwrap();
        assert_says(NAME, &output, "3 ranks: nothing is seen");
        let said = String::from_utf8_lossy(&output.stderr);
        let idle = said.matches("groups carried 0 ").count();
        assert_eq!(idle, left_alone, "{said}");
        assert_eq!(said.matches("groups carried").count(), 3, "{said}");
    }
}
