/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints. They are called through rust/rdma/trace.rs.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ferroce

#if !defined(_FERROCE_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _FERROCE_TRACE_H

#include <linux/tracepoint.h>

#define show_opcode(opcode)				\
	__print_symbolic(opcode,			\
			 { 0x00, "RC_SEND_FIRST" },	\
			 { 0x01, "RC_SEND_MIDDLE" },	\
			 { 0x02, "RC_SEND_LAST" },	\
			 { 0x03, "RC_SEND_LAST_IMM" },	\
			 { 0x04, "RC_SEND_ONLY" },	\
			 { 0x05, "RC_SEND_ONLY_IMM" },	\
			 { 0x06, "RC_WRITE_FIRST" },	\
			 { 0x07, "RC_WRITE_MIDDLE" },	\
			 { 0x08, "RC_WRITE_LAST" },	\
			 { 0x09, "RC_WRITE_LAST_IMM" },	\
			 { 0x0a, "RC_WRITE_ONLY" },	\
			 { 0x0b, "RC_WRITE_ONLY_IMM" },	\
			 { 0x0c, "RC_READ_REQUEST" },	\
			 { 0x0d, "RC_READ_FIRST" },	\
			 { 0x0e, "RC_READ_MIDDLE" },	\
			 { 0x0f, "RC_READ_LAST" },	\
			 { 0x10, "RC_READ_ONLY" },	\
			 { 0x11, "RC_ACK" },		\
			 { 0x12, "RC_ATOMIC_ACK" },	\
			 { 0x13, "RC_COMPARE_SWAP" },	\
			 { 0x14, "RC_FETCH_ADD" },	\
			 { 0x16, "RC_SEND_LAST_INV" },	\
			 { 0x17, "RC_SEND_ONLY_INV" },	\
			 { 0x1c, "RC_FLUSH" },		\
			 { 0x1d, "RC_ATOMIC_WRITE" },	\
			 { 0x20, "UC_SEND_FIRST" },	\
			 { 0x21, "UC_SEND_MIDDLE" },	\
			 { 0x22, "UC_SEND_LAST" },	\
			 { 0x23, "UC_SEND_LAST_IMM" },	\
			 { 0x24, "UC_SEND_ONLY" },	\
			 { 0x25, "UC_SEND_ONLY_IMM" },	\
			 { 0x26, "UC_WRITE_FIRST" },	\
			 { 0x27, "UC_WRITE_MIDDLE" },	\
			 { 0x28, "UC_WRITE_LAST" },	\
			 { 0x29, "UC_WRITE_LAST_IMM" },	\
			 { 0x2a, "UC_WRITE_ONLY" },	\
			 { 0x2b, "UC_WRITE_ONLY_IMM" },	\
			 { 0x64, "UD_SEND_ONLY" },	\
			 { 0x65, "UD_SEND_ONLY_IMM" })

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

/* A packet of a queue pair was handed to IP, acknowledgments apart. Softirq or process. */
DEFINE_EVENT(ferroce_packet, ferroce_send,
	     TP_PROTO(const char *device, u32 qpn, u8 opcode, u32 psn, u32 len),
	     TP_ARGS(device, qpn, opcode, psn, len));

/* A packet with a right ICRC came for a queue pair. Softirq. */
DEFINE_EVENT(ferroce_packet, ferroce_receive,
	     TP_PROTO(const char *device, u32 qpn, u8 opcode, u32 psn, u32 len),
	     TP_ARGS(device, qpn, opcode, psn, len));

/* An acknowledgment, positive or not, was sent, or came. */
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

/* A packet was dropped: the reason is the name of the counter. No device: none was found. */
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
