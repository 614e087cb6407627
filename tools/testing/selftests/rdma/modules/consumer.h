/* SPDX-License-Identifier: GPL-2.0 */
/* The two sides of ferroce_consumer, and helpers for the tests. */
#ifndef FERROCE_CONSUMER_H
#define FERROCE_CONSUMER_H

#include <linux/scatterlist.h>
#include <rdma/ib_verbs.h>

#define PAGES 512
#define LEN (PAGES * PAGE_SIZE)
#define WAIT_MS 20000

#define TO_INIT (IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS)

/* The Q_Key of datagram queue pairs. */
#define QKEY 0x1234

/* One side: a queue pair, and pages in no order that can be registered as one region. */
struct side {
	struct ib_device *dev;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct ib_mr *mr;
	u32 gid_index;
	union ib_gid gid;
	struct page *pages[PAGES + 1];
	struct scatterlist sgl[PAGES + 1];
};

extern struct side a, b;

/* Two more queue pairs: one of each side. */
struct pair {
	struct ib_qp *a, *b;
};

/* 0, or an error, which is logged. */
#define TRY(expr) try_result(expr, #expr, kbasename(__FILE__), __LINE__)
#define TRY_PTR(expr) try_result(PTR_ERR_OR_ZERO(expr), #expr, kbasename(__FILE__), __LINE__)
#define EXPECT(cond) try_result((cond) ? 0 : -EINVAL, #cond, kbasename(__FILE__), __LINE__)

int try_result(int ret, const char *what, const char *file, int line);

/* Attributes of a queue pair with room for 8 requests in each queue, all signalled. */
struct ib_qp_init_attr qp_init(enum ib_qp_type type);

/* Creates a queue pair. It uses the completion queue of the side if the attributes name none. */
struct ib_qp *make_qp(struct side *s, struct ib_pd *pd, const struct ib_qp_init_attr *from);

/* The functions below return 0 or an error, unless they say otherwise. */

/* Moves both queue pairs from RESET to RTS, connected to each other unless they are of type UD. */
int connect_pair(struct pair *p);
int reset_pair(struct pair *p);
int open_pair(struct pair *p, const struct ib_qp_init_attr *init);
void close_pair(struct pair *p);

/* Connects the queue pairs of the sides again after an error. */
int reconnect(void);

/* Waits for the next completion. */
int wait_wc(struct ib_cq *cq, struct ib_wc *wc);
/* The same, and checks it. */
int expect_wc(struct ib_cq *cq, u64 wr_id, enum ib_wc_status status);
int finish(struct side *s, enum ib_wc_status status);
/* The same for a request that succeeds. */
int finish_op(struct side *s, enum ib_wc_opcode opcode);

/* Posts a request and waits for its completion. */
int rdma(struct ib_qp *qp, enum ib_wr_opcode op, struct ib_sge sge, u64 remote_addr, u32 rkey,
	 enum ib_wc_status status);
/* The same between bytes `at` of both regions. */
int transfer(enum ib_wr_opcode op, u64 at, u32 len, enum ib_wc_status status);

/* Posts a SEND of `len` bytes from byte `at` of the pages of a. */
int post_send(struct ib_qp *qp, u64 wr_id, u64 at, u32 len, int flags);

/*
 * Posts a chain of `n` receives of eight bytes, numbered from `first`, to the receive queue of `qp`
 * or its shared one. The one `at` has `num_sge` SGEs, at most 64. Returns the error of the verb,
 * and the number of the receive that it refused.
 */
int post_recvs(struct ib_qp *qp, int first, int n, int at, int num_sge, int *refused);

/* Allocates the regions of both sides and registers all pages. */
int make_regions(void);

/* Byte `at` of a region. */
u8 *byte(struct side *s, u64 at);

/* Bytes of the region. */
static inline struct ib_sge in_region(struct side *s, u64 at, u32 len)
{
	return (struct ib_sge){ .addr = s->mr->iova + at, .length = len, .lkey = s->mr->lkey };
}

/* Bytes of one page, by the key for all memory. */
static inline struct ib_sge in_page(struct side *s, u64 at, u32 len)
{
	return (struct ib_sge){
		.addr = sg_dma_address(&s->sgl[at / PAGE_SIZE]) + at % PAGE_SIZE,
		.length = len,
		.lkey = s->pd->local_dma_lkey,
	};
}

int test_mr(void);
int test_mr_brief(void);
int test_qp(void);
int test_cq(void);

#endif
