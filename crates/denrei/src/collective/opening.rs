//! How a set of Nodes is made.
//!
//! Inputs → outputs: the addresses of all, a group's → the set, at each of them, or an error that says who is missing.

use super::patience::Patience;
use super::{COLLECTIVE_CHANNEL, Collective, CollectiveError, Tie};
use crate::group::{GroupListener, Membership, OPENING_GRACE};
use crate::shards::deadline_of;
use crate::{GroupOptions, Node};
use denrei_proto::group::Invited;
use std::net::SocketAddr;
use std::time::Duration;

impl Collective {
    /// Makes a set of the Nodes at `addresses` (the same list everywhere, with this Node's own address
    /// in it) that speaks to all by a group at `group`, and to rank 0 on [`COLLECTIVE_CHANNEL`]. All of them
    /// have to call this within `timeout`.
    ///
    /// # Errors
    /// At rank 0: who did not answer is named. At the others: rank 0 is not there, or, at once when it gives up
    /// and some time after `timeout` if it does not, [`CollectiveError::NotOpened`].
    pub fn new(
        node: &Node,
        addresses: &[SocketAddr],
        group: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, CollectiveError> {
        Self::on_channel(node, addresses, group, COLLECTIVE_CHANNEL, timeout)
    }

    /// Like [`new`](Self::new), with what goes to one Node on `channel`, which nothing else uses with the
    /// Nodes of the set: the same everywhere. Two sets of the same Nodes need two channels and two groups.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn on_channel(
        node: &Node,
        addresses: &[SocketAddr],
        group: SocketAddr,
        channel: u16,
        timeout: Duration,
    ) -> Result<Self, CollectiveError> {
        Self::interruptible(node, addresses, group, channel, timeout, || false)
    }

    /// Like [`on_channel`](Self::on_channel), with somebody who is asked twenty times a second, here and while operations
    /// wait, whether to give up: then it ends with [`CollectiveError::Interrupted`], and otherwise as if time were up.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn interruptible(
        node: &Node,
        addresses: &[SocketAddr],
        group: SocketAddr,
        channel: u16,
        timeout: Duration,
        interrupted: impl FnMut() -> bool + Send + 'static,
    ) -> Result<Self, CollectiveError> {
        let patience = Patience::new(interrupted);
        let own = node.local_addr();
        let rank = addresses.iter().position(|addr| *addr == own);
        let rank = rank.ok_or_else(|| CollectiveError::BadSet(format!("{own} is not in {addresses:?}")))?;
        let distinct: std::collections::BTreeSet<_> = addresses.iter().collect();
        if distinct.len() != addresses.len() {
            return Err(CollectiveError::BadSet(format!("an address is given twice in {addresses:?}")));
        }
        let tie = match rank {
            _ if addresses.len() == 1 => Tie::Alone,
            0 => {
                let options = GroupOptions { open_timeout: timeout, ..GroupOptions::default() };
                let over = || patience.is_over();
                Tie::Root(node.open_group_unless(group, &addresses[1..], options, over)?)
            }
            _ => {
                let listener = node.join_group(group)?;
                Tie::Other(accept(&listener, timeout, &patience)?, listener)
            }
        };
        let connect = |(other, addr): (usize, &SocketAddr)| match other == rank {
            true => Ok(None),
            false => node.connect(*addr).map(Some),
        };
        let peers = addresses.iter().enumerate().map(connect).collect::<Result<Vec<_>, _>>()?;
        let (early, lost) = (vec![None; peers.len()], vec![None; peers.len()]);
        Ok(Self {
            node: node.clone(),
            rank,
            peers,
            tie,
            channel,
            round: 0,
            collected: 0,
            early,
            untold: None,
            lost,
            patience,
        })
    }
}

/// Waits for rank 0 to open the set; somewhat longer than it waits for the others, if it is there.
fn accept(
    listener: &GroupListener,
    timeout: Duration,
    patience: &Patience,
) -> Result<Membership, CollectiveError> {
    let mut invited = Invited::No;
    let mut within = |timeout| {
        let accepted =
            patience.wait(deadline_of(timeout), |moment| match listener.accept_unless_given_up(moment) {
                Ok(membership) => Ok(Some(membership)),
                Err(Invited::GivenUp) => Err(CollectiveError::NotOpened { gave_up: true }),
                Err(how_far) => {
                    invited = how_far;
                    Ok(None)
                }
            });
        accepted.map(|accepted| accepted.ok_or(invited))
    };
    let accepted = match within(timeout)? {
        Err(Invited::Yes) => within(OPENING_GRACE)?,
        outcome => outcome,
    };
    accepted.map_err(|invited| match invited {
        Invited::No => CollectiveError::TimedOut { operation: "opening", missing: vec![0] },
        _ => CollectiveError::NotOpened { gave_up: false },
    })
}
