// SPDX-License-Identifier: GPL-2.0

//! Every recovery has a cause (RC).
//!
//! The network and the nodes count what they did to packets, and the nodes count what they did to
//! recover. Nothing is recovered that was not disturbed.

use crate::{
    net::Disturbances,
    node::{
        Recoveries,
        Violation, //
    },
    Node, //
};

/// How often one loss is found at most.
///
/// The acknowledgment of a duplicate names the last PSN that was executed. After progress, the
/// requester takes it for proof of another loss, although the response that is missing comes next.
const FALSE_PROOFS: u64 = 2;

/// What happened to the packets on both ways of a connection, as its requester sees it.
#[derive(Clone, Copy, Debug)]
struct Causes {
    /// Requests that were lost, or came late.
    requests: u64,
    /// NAKs that each of these may cause: a receiver that keeps no early packet has dropped those
    /// behind the missing one, and reports them once it has come alone.
    naks_per_request: u64,
    /// Responses that were lost, or came late.
    responses: u64,
    /// Requests that came twice.
    repeated: u64,
    /// Packets that came twice, habits of a foreign peer, and times that a stack made a half wait.
    others: u64,
}

/// Checks the totals of a run: `on_the_way[n]` is what happened to the packets that node `n` sent,
/// and a node did nothing for as long as `stalls` timeouts.
///
/// If requesters are hasty, and take a response for overdue that is on its way, only what the
/// receivers do needs a cause.
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
        let causes = Causes {
            requests: on_the_way[index].missing + theirs.overflows,
            naks_per_request: if peer.keeps_early() { 1 } else { 2 },
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
    // A copy may fill a gap, or find a receive request, ahead of what has to follow it.
    // If only the missing packet is sent again, and those after it were not kept, they are missing
    // next.
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
    let all = causes.requests + causes.responses;
    if own.naks + own.gaps + own.losses_found > all * FALSE_PROOFS + causes.others {
        return Err("found a loss without a cause");
    }
    // A peer in ERR is silent.
    if own.timeouts > all + causes.others && !peer_failed {
        return Err("a timeout without a cause");
    }
    Ok(())
}
