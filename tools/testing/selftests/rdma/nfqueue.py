#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""nfqueue.py GROUP DEVICE

Joins a multicast group on a net device, holds the first packet of NFQUEUE 0 until SIGTERM, and accepts it then.
"""

import signal
import socket
import struct
import sys

# linux/netlink.h, linux/netfilter/nfnetlink.h, linux/netfilter/nfnetlink_queue.h
NETLINK_NETFILTER = 12
NLM_F_REQUEST, NLM_F_ACK, NLMSG_ERROR = 1, 4, 2
NFNL_SUBSYS_QUEUE = 3
NFQNL_MSG_PACKET, NFQNL_MSG_VERDICT, NFQNL_MSG_CONFIG = 0, 1, 2
NFQA_CFG_CMD, NFQA_CFG_PARAMS, NFQA_PACKET_HDR, NFQA_VERDICT_HDR = 1, 2, 1, 2
NFQNL_CFG_CMD_BIND, NFQNL_COPY_META, NF_ACCEPT = 1, 1, 1
HEADERS = 16 + 4


def main():
    group, device = sys.argv[1:]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    member = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    mreqn = socket.inet_aton(group) + bytes(4) + struct.pack("=i", socket.if_nametoindex(device))
    member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, mreqn)

    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    request(netlink, NFQNL_MSG_CONFIG, NFQA_CFG_CMD, struct.pack(">BxH", NFQNL_CFG_CMD_BIND, 0))
    request(netlink, NFQNL_MSG_CONFIG, NFQA_CFG_PARAMS, struct.pack(">IB", 0, NFQNL_COPY_META))
    print("bound", flush=True)

    packet = netlink.recv(65536)
    kind = struct.unpack_from("=4xH", packet)[0]
    if kind != NFNL_SUBSYS_QUEUE << 8 | NFQNL_MSG_PACKET:
        sys.exit(f"not a packet: {packet.hex()}")
    attribute, packet_id = struct.unpack_from("=2xH", packet, HEADERS)[0], packet[HEADERS + 4:HEADERS + 8]
    if attribute != NFQA_PACKET_HDR:
        sys.exit(f"no header: {packet.hex()}")
    print("held", flush=True)
    signal.sigwait([signal.SIGTERM])
    request(netlink, NFQNL_MSG_VERDICT, NFQA_VERDICT_HDR, struct.pack(">I", NF_ACCEPT) + packet_id)
    print("accepted", flush=True)


def request(netlink, message, kind, data):
    length = 4 + len(data)
    attribute = struct.pack("=HH", length, kind) + data + bytes(-length % 4)
    kind, flags = NFNL_SUBSYS_QUEUE << 8 | message, NLM_F_REQUEST | NLM_F_ACK
    netlink.send(struct.pack("=IHHIIBBH", HEADERS + len(attribute), kind, flags, 0, 0, socket.AF_UNSPEC, 0, 0) + attribute)
    answer = netlink.recv(65536)
    kind, error = struct.unpack_from("=4xH10xi", answer)
    if kind != NLMSG_ERROR or error != 0:
        sys.exit(f"netlink error {error}")


main()
