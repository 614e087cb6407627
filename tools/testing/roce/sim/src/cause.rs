// SPDX-License-Identifier: GPL-2.0

//! Check that every recovery has a cause (RC).
//!
//! The network and the nodes count the packets that they lose, delay, duplicate or drop, and the
//! nodes count their recoveries. There must not be more recoveries than such causes.

use crate::{
    net::Disturbances,
    node::{
        Recoveries,
        Violation, //
    },
    Node, //
};

/// The most times that a requester finds one lost request.
const PROOFS: u64 = 2;

/// The same if the receiver keeps no early packets: the requester sends 1, 4 and 16 packets again,
/// and then the rest.
const RUNS: u64 = 4;

/// The causes of recoveries of a requester, in both directions of its connection.
#[derive(Clone, Copy, Debug)]
struct Causes {
    /// Requests that were lost or late.
    requests: u64,
    /// The NAKs that each of these may cause. A receiver that keeps no early packets drops those
    /// after the missing one, and reports them when that has arrived alone.
    naks_per_request: u64,
    /// The times that the requester may find each of these missing.
    proofs_per_request: u64,
    /// Responses that were lost or late.
    responses: u64,
    /// Requests that arrived twice.
    repeated: u64,
    /// Packets that arrived twice, peculiarities of a foreign peer, and refusals of the stacks.
    others: u64,
}

/// Checks the totals of a run.
///
/// `on_the_way[n]` has the disturbances of the packets that node `n` sent, and a node did nothing
/// for the time of `stalls` timeouts. If `is_hasty`, requesters take responses for overdue that are
/// still on the way. Then only the recoveries of the receivers need a cause.
pub(crate) fn check(
    nodes: &[Node; 2],
    on_the_way: [Disturbances; 2],
    stalls: u64,
    is_hasty: bool,
) -> Result<(), Violation> {
    for index in 0..2 {
        let (node, peer) = (&nodes[index], &nodes[1 - index]);
        let (own, theirs) = (node.recoveries(), peer.recoveries());
        let counters = peer.counters();
        let refusals = |tx: &crate::node::TxCounters| tx.refused_trains + tx.refused_packets;
        let (naks_per_request, proofs_per_request) = match peer.keeps_early() {
            true => (1, PROOFS),
            false => (2, RUNS),
        };
        let causes = Causes {
            requests: on_the_way[index].missing + theirs.overflows,
            naks_per_request,
            proofs_per_request,
            responses: on_the_way[1 - index].missing,
            repeated: on_the_way[index].repeated,
            others: stalls
                + on_the_way[index].repeated
                + on_the_way[1 - index].repeated
                + peer.oddities().duplicates
                + peer.oddities().dropped_reads
                + refusals(&counters.read_responses)
                + refusals(&node.counters().requests),
        };
        check_one(&own, &theirs, &causes, (peer.failed(), is_hasty))
            .map_err(|what| format!("node {index}: {what}: {own:?} {theirs:?} {causes:?}"))?;
    }
    Ok(())
}

fn check_one(
    own: &Recoveries,
    theirs: &Recoveries,
    causes: &Causes,
    (peer_failed, is_hasty): (bool, bool),
) -> Result<(), &'static str> {
    // A duplicate may fill a gap, or find a receive request, before the packets that follow it are
    // sent again.
    let missing = causes.requests * causes.naks_per_request;
    if theirs.sent_naks > missing + causes.repeated + own.losses_found {
        return Err("a NAK without a cause");
    }
    if is_hasty {
        return Ok(());
    }
    if own.naks > theirs.sent_naks + causes.others {
        return Err("sent again without a NAK");
    }
    if own.rnrs > theirs.sent_rnrs + causes.others {
        return Err("waited without an RNR NAK");
    }
    // The acknowledgment of a duplicate carries the last executed PSN. After progress, the
    // requester takes it for proof of another loss, although the missing response comes next.
    let responses = causes.responses + theirs.duplicate_acks;
    let proofs = causes.requests * causes.proofs_per_request + responses;
    if own.naks + own.gaps + own.losses_found > proofs + causes.others {
        return Err("found a loss without a cause");
    }
    // A peer in ERR does not respond.
    let all = causes.requests + causes.responses;
    if own.timeouts > all + causes.others && !peer_failed {
        return Err("a timeout without a cause");
    }
    Ok(())
}
