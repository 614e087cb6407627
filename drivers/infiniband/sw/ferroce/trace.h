/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints. The driver calls them through trace/ferroce_trace.rs.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ferroce

#if !defined(_FERROCE_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _FERROCE_TRACE_H

#include <linux/tracepoint.h>
#include <rdma/ib_pack.h>

#define FERROCE_OPCODES					\
	ib_opcode(RC_SEND_FIRST)			\
	ib_opcode(RC_SEND_MIDDLE)			\
	ib_opcode(RC_SEND_LAST)				\
	ib_opcode(RC_SEND_LAST_WITH_IMMEDIATE)		\
	ib_opcode(RC_SEND_ONLY)				\
	ib_opcode(RC_SEND_ONLY_WITH_IMMEDIATE)		\
	ib_opcode(RC_RDMA_WRITE_FIRST)			\
	ib_opcode(RC_RDMA_WRITE_MIDDLE)			\
	ib_opcode(RC_RDMA_WRITE_LAST)			\
	ib_opcode(RC_RDMA_WRITE_LAST_WITH_IMMEDIATE)	\
	ib_opcode(RC_RDMA_WRITE_ONLY)			\
	ib_opcode(RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE)	\
	ib_opcode(RC_RDMA_READ_REQUEST)			\
	ib_opcode(RC_RDMA_READ_RESPONSE_FIRST)		\
	ib_opcode(RC_RDMA_READ_RESPONSE_MIDDLE)		\
	ib_opcode(RC_RDMA_READ_RESPONSE_LAST)		\
	ib_opcode(RC_RDMA_READ_RESPONSE_ONLY)		\
	ib_opcode(RC_ACKNOWLEDGE)			\
	ib_opcode(RC_ATOMIC_ACKNOWLEDGE)		\
	ib_opcode(RC_COMPARE_SWAP)			\
	ib_opcode(RC_FETCH_ADD)				\
	ib_opcode(RC_SEND_LAST_WITH_INVALIDATE)		\
	ib_opcode(RC_SEND_ONLY_WITH_INVALIDATE)		\
	ib_opcode(RC_FLUSH)				\
	ib_opcode(RC_ATOMIC_WRITE)			\
	ib_opcode(UC_SEND_FIRST)			\
	ib_opcode(UC_SEND_MIDDLE)			\
	ib_opcode(UC_SEND_LAST)				\
	ib_opcode(UC_SEND_LAST_WITH_IMMEDIATE)		\
	ib_opcode(UC_SEND_ONLY)				\
	ib_opcode(UC_SEND_ONLY_WITH_IMMEDIATE)		\
	ib_opcode(UC_RDMA_WRITE_FIRST)			\
	ib_opcode(UC_RDMA_WRITE_MIDDLE)			\
	ib_opcode(UC_RDMA_WRITE_LAST)			\
	ib_opcode(UC_RDMA_WRITE_LAST_WITH_IMMEDIATE)	\
	ib_opcode(UC_RDMA_WRITE_ONLY)			\
	ib_opcode(UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE)	\
	ib_opcode(UD_SEND_ONLY)				\
	ib_opcode_end(UD_SEND_ONLY_WITH_IMMEDIATE)

#undef ib_opcode
#undef ib_opcode_end

/* Tools that format the events themselves need the values. */
#define ib_opcode(name)		TRACE_DEFINE_ENUM(IB_OPCODE_##name);
#define ib_opcode_end(name)	TRACE_DEFINE_ENUM(IB_OPCODE_##name);

FERROCE_OPCODES

#undef ib_opcode
#undef ib_opcode_end
#define ib_opcode(name)		{ IB_OPCODE_##name, #name },
#define ib_opcode_end(name)	{ IB_OPCODE_##name, #name }

#define show_opcode(value)	__print_symbolic(value, FERROCE_OPCODES)

/* The two bits above the value: IBTA, table 44. */
#define show_syndrome(syndrome)			\
	__print_symbolic((syndrome) >> 5,	\
			 { 0, "ACK" },		\
			 { 1, "RNR" },		\
			 { 3, "NAK" })

DECLARE_EVENT_CLASS(ferroce_packet,
		    TP_PROTO(const char *device, u32 qpn, u8 opcode, u32 psn, u32 len),
		    TP_ARGS(device, qpn, opcode, psn, len),
		    TP_STRUCT__entry(__string(device, device)
				     __field(u32, qpn)
				     __field(u8, opcode)
				     __field(u32, psn)
				     __field(u32, len)),
		    TP_fast_assign(__assign_str(device);
				   __entry->qpn = qpn;
				   __entry->opcode = opcode;
				   __entry->psn = psn;
				   __entry->len = len;),
		    TP_printk("device=%s qpn=%u opcode=%s psn=%u len=%u",
			      __get_str(device), __entry->qpn, show_opcode(__entry->opcode),
			      __entry->psn, __entry->len));

/*
 * A packet of a queue pair, other than an acknowledgment, was handed to IP or added to a train.
 * Softirq or process context.
 */
DEFINE_EVENT(ferroce_packet, ferroce_send,
	     TP_PROTO(const char *device, u32 qpn, u8 opcode, u32 psn, u32 len),
	     TP_ARGS(device, qpn, opcode, psn, len));

/* A packet with a correct ICRC arrived for a queue pair. Softirq or process context. */
DEFINE_EVENT(ferroce_packet, ferroce_receive,
	     TP_PROTO(const char *device, u32 qpn, u8 opcode, u32 psn, u32 len),
	     TP_ARGS(device, qpn, opcode, psn, len));

/* An ACK or NAK was sent or received. */
TRACE_EVENT(ferroce_ack,
	    TP_PROTO(const char *device, u32 qpn, bool sent, u32 psn, u8 syndrome, u32 msn),
	    TP_ARGS(device, qpn, sent, psn, syndrome, msn),
	    TP_STRUCT__entry(__string(device, device)
			     __field(u32, qpn)
			     __field(bool, sent)
			     __field(u32, psn)
			     __field(u8, syndrome)
			     __field(u32, msn)),
	    TP_fast_assign(__assign_str(device);
			   __entry->qpn = qpn;
			   __entry->sent = sent;
			   __entry->psn = psn;
			   __entry->syndrome = syndrome;
			   __entry->msn = msn;),
	    TP_printk("device=%s qpn=%u %s psn=%u syndrome=%s value=%u msn=%u",
		      __get_str(device), __entry->qpn, __entry->sent ? "sent" : "received",
		      __entry->psn, show_syndrome(__entry->syndrome), __entry->syndrome & 0x1f,
		      __entry->msn));

/* A send half goes back to a PSN that was sent before, or gives up. */
TRACE_EVENT(ferroce_retry,
	    TP_PROTO(const char *device, u32 qpn, u32 psn, u8 left, const char *reason),
	    TP_ARGS(device, qpn, psn, left, reason),
	    TP_STRUCT__entry(__string(device, device)
			     __field(u32, qpn)
			     __field(u32, psn)
			     __field(u8, left)
			     __string(reason, reason)),
	    TP_fast_assign(__assign_str(device);
			   __entry->qpn = qpn;
			   __entry->psn = psn;
			   __entry->left = left;
			   __assign_str(reason);),
	    TP_printk("device=%s qpn=%u psn=%u left=%u reason=%s",
		      __get_str(device), __entry->qpn, __entry->psn, __entry->left,
		      __get_str(reason)));

/* A half handed packets to IP together. Softirq or process. */
TRACE_EVENT(ferroce_train,
	    TP_PROTO(const char *device, u32 qpn, bool receive, u16 packets, u32 bytes,
		     const char *result),
	    TP_ARGS(device, qpn, receive, packets, bytes, result),
	    TP_STRUCT__entry(__string(device, device)
			     __field(u32, qpn)
			     __field(bool, receive)
			     __field(u16, packets)
			     __field(u32, bytes)
			     __string(result, result)),
	    TP_fast_assign(__assign_str(device);
			   __entry->qpn = qpn;
			   __entry->receive = receive;
			   __entry->packets = packets;
			   __entry->bytes = bytes;
			   __assign_str(result);),
	    TP_printk("device=%s qpn=%u half=%s packets=%u bytes=%u result=%s",
		      __get_str(device), __entry->qpn, __entry->receive ? "receive" : "send",
		      __entry->packets, __entry->bytes, __get_str(result)));

/*
 * A packet was dropped: the reason is the name of the counter. The name of the device is empty if
 * none was found.
 */
TRACE_EVENT(ferroce_drop,
	    TP_PROTO(const char *device, u32 qpn, u8 opcode, u32 psn, u32 len, const char *reason),
	    TP_ARGS(device, qpn, opcode, psn, len, reason),
	    TP_STRUCT__entry(__string(device, device)
			     __field(u32, qpn)
			     __field(u8, opcode)
			     __field(u32, psn)
			     __field(u32, len)
			     __string(reason, reason)),
	    TP_fast_assign(__assign_str(device);
			   __entry->qpn = qpn;
			   __entry->opcode = opcode;
			   __entry->psn = psn;
			   __entry->len = len;
			   __assign_str(reason);),
	    TP_printk("device=%s qpn=%u opcode=%s psn=%u len=%u reason=%s",
		      __get_str(device), __entry->qpn, show_opcode(__entry->opcode),
		      __entry->psn, __entry->len, __get_str(reason)));

#endif /* _FERROCE_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace

/* This part must be outside of the guard. */
#include <trace/define_trace.h>
