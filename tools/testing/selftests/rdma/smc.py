#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""smc.py add-eid | echo PORT | check ADDRESS PORT BYTES

add-eid gives this host an enterprise ID, without which SMC-Rv2 is not negotiated. echo sends back the data of one connection
after another. check sends data to it, and compares the reply.
"""

import os
import socket
import struct
import sys
import threading

IPPROTO_SMC = 256

# linux/netlink.h, linux/genetlink.h, linux/smc.h
NETLINK_GENERIC = 16
NLM_F_REQUEST, NLM_F_ACK, NLMSG_ERROR = 1, 4, 2
GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 16, 3, 1, 2
SMC_NETLINK_ADD_UEID, SMC_NLA_EID_TABLE_ENTRY, SMC_MAX_EID_LEN = 10, 1, 32


def add_eid():
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
    name = attribute(CTRL_ATTR_FAMILY_NAME, b"SMC_GEN_NETLINK\0")
    family = request(netlink, GENL_ID_CTRL, NLM_F_REQUEST, CTRL_CMD_GETFAMILY, name)
    family_id = struct.unpack("=H", attributes(family)[CTRL_ATTR_FAMILY_ID])[0]
    eid = attribute(SMC_NLA_EID_TABLE_ENTRY, b"FERROCE".ljust(SMC_MAX_EID_LEN) + b"\0")
    request(netlink, family_id, NLM_F_REQUEST | NLM_F_ACK, SMC_NETLINK_ADD_UEID, eid)


def attribute(kind, data):
    length = 4 + len(data)
    return struct.pack("=HH", length, kind) + data + bytes(-length % 4)


def attributes(data):
    found = {}
    while data:
        length, kind = struct.unpack_from("=HH", data)
        found[kind] = data[4:length]
        data = data[length + -length % 4:]
    return found


def request(netlink, family, flags, command, attrs):
    """Sends a request, and returns the attributes of the reply."""
    body = struct.pack("=BBH", command, 1, 0) + attrs
    netlink.send(struct.pack("=IHHII", 16 + len(body), family, flags, 1, 0) + body)
    reply = netlink.recv(65536)
    if struct.unpack_from("=IH", reply)[1] == NLMSG_ERROR:
        error = -struct.unpack_from("=i", reply, 16)[0]
        if error:
            raise OSError(error, os.strerror(error))
    return reply[20:]


def echo(port):
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SMC)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("", port))
    listener.listen()
    print("listening", flush=True)
    while True:
        threading.Thread(target=send_back, args=(listener.accept()[0],), daemon=True).start()


def send_back(connection):
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)


def check(address, port, length):
    sent = os.urandom(length)
    received = bytearray()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SMC) as connection:
        connection.connect((address, port))
        sender = threading.Thread(target=connection.sendall, args=(sent,))
        sender.start()
        while len(received) < length and (data := connection.recv(1 << 16)):
            received += data
        sender.join()
    if received != sent:
        sys.exit(f"{len(received)} bytes came back, not the {length} that were sent, or others")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["add-eid"]:
            add_eid()
        case ["echo", port]:
            echo(int(port))
        case ["check", address, port, length]:
            check(address, int(port), int(length))
        case _:
            sys.exit(__doc__)
