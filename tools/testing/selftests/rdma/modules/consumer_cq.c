// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues and shared receive queues of kernel consumers: completions of queue pairs that
 * are destroyed, notifications, contexts of the completion handler, and drains.
 */
#include <linux/delay.h>
#include <linux/slab.h>

#include "consumer.h"

/* More entries than the driver scans at a time. */
#define CQE 300

/* A queue pair in ERR: requests to its send queue have completed when the post returns. */
static struct ib_qp *create_flushing(struct ib_cq *send_cq, struct ib_cq *recv_cq)
{
	struct ib_qp_init_attr init = qp_init(IB_QPT_RC);
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT, .port_num = 1 };
	struct ib_qp *qp;
	int err;

	init.send_cq = send_cq;
	init.recv_cq = recv_cq;
	qp = make_qp(&a, a.pd, &init);
	if (IS_ERR(qp))
		return qp;
	err = ib_modify_qp(qp, &attr, TO_INIT);
	attr.qp_state = IB_QPS_ERR;
	err = err ?: ib_modify_qp(qp, &attr, IB_QP_STATE);
	if (err) {
		ib_destroy_qp(qp);
		return ERR_PTR(err);
	}
	return qp;
}

/* Returns the number of send requests that a queue pair takes. */
static u32 send_wrs(struct ib_qp *qp)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	return ib_query_qp(qp, &attr, IB_QP_CAP, &init) ? 0 : attr.cap.max_send_wr;
}

static int post(struct ib_qp *qp, u64 wr_id)
{
	struct ib_send_wr wr = { .wr_id = wr_id, .opcode = IB_WR_SEND };

	return TRY(ib_post_send(qp, &wr, NULL));
}

/* Posts requests up to the one with ID `end`, exclusive. */
static int post_range(struct ib_qp *qp, u64 wr_id, u64 end)
{
	int err = 0;

	for (; wr_id < end && !err; wr_id++)
		err = post(qp, wr_id);
	return err;
}

/* Posts `n` requests to each, in turn. */
static int post_both(struct ib_qp *x, struct ib_qp *y, u32 n)
{
	int err = 0;

	for (u32 i = 0; i < n && !err; i++)
		err = post(x, i) ?: post(y, i);
	return err;
}

/* Checks that all completions are of a queue pair, in the order of the requests, `n` in total. */
static int poll_all(struct ib_cq *cq, struct ib_qp *qp, u32 n)
{
	struct ib_wc wc;
	u32 others = 0;
	u32 count = 0;
	int err = 0;

	while (ib_poll_cq(cq, 1, &wc) > 0) {
		if (wc.qp != qp) {
			/* A consumer may look at it. If it was freed KASAN reports this. */
			if (!others++)
				pr_err("ferroce_consumer: completion of queue pair %u\n",
				       wc.qp->qp_num);
			continue;
		}
		if (wc.wr_id != count || wc.status != IB_WC_WR_FLUSH_ERR)
			err = EXPECT(wc.wr_id == count && wc.status == IB_WC_WR_FLUSH_ERR);
		count++;
	}
	if (others)
		pr_err("ferroce_consumer: %u completions of others\n", others);
	return err ?: EXPECT(!others) ?: EXPECT(count == n);
}

static void received(struct ib_cq *cq, void *done)
{
	complete(done);
}

/* A receive that was flushed, to a queue of its own. */
static int test_destroyed_recv(struct ib_cq *send_cq)
{
	DECLARE_COMPLETION_ONSTACK(done);
	struct ib_cq_init_attr init = { .cqe = 4 };
	struct ib_recv_wr wr = { .wr_id = 1 };
	struct ib_qp *x;
	struct ib_cq *cq;
	int err;

	err = TRY_PTR(cq = ib_create_cq(a.dev, received, NULL, &done, &init));
	if (err)
		return err;
	err = TRY_PTR(x = create_flushing(send_cq, cq));
	if (!err) {
		err = TRY(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP)) ?:
		      TRY(ib_post_recv(x, &wr, NULL)) ?:
		      EXPECT(wait_for_completion_timeout(&done, msecs_to_jiffies(WAIT_MS)));
		ib_destroy_qp(x);
		err = err ?: poll_all(cq, NULL, 0);
	}
	ib_destroy_cq(cq);
	return err;
}

/*
 * Completions name their queue pair, so none is left once it is destroyed, or in RESET. Those of
 * others stay in their order, and there is room again.
 */
static int test_destroyed(void)
{
	struct ib_qp_attr reset = { .qp_state = IB_QPS_RESET };
	struct ib_qp *x = NULL, *y = NULL;
	struct ib_cq *cq;
	int err;

	err = TRY_PTR(cq = ib_alloc_cq(a.dev, NULL, CQE, 0, IB_POLL_DIRECT));
	if (err)
		return err;
	err = TRY_PTR(y = create_flushing(cq, cq));
	/* Each round begins elsewhere in the queue. */
	for (int n = CQE / 2; n > 0 && !err; n -= 37) {
		err = TRY_PTR(x = create_flushing(cq, cq)) ?: post_both(x, y, n);
		if (!IS_ERR_OR_NULL(x))
			ib_destroy_qp(x);
		err = err ?: poll_all(cq, y, n);
	}
	err = err ?: TRY_PTR(x = create_flushing(cq, cq));
	if (!err) {
		err = post_both(x, y, 20) ?: TRY(ib_modify_qp(x, &reset, IB_QP_STATE)) ?:
		      poll_all(cq, y, 20);
		ib_destroy_qp(x);
	}
	err = err ?: TRY_PTR(x = create_flushing(cq, cq));
	if (!err) {
		u32 room = CQE + send_wrs(x) + send_wrs(y);

		err = post_range(x, 0, room);
		ib_destroy_qp(x);
		err = err ?: post_range(y, 0, room) ?: poll_all(cq, y, room);
	}
	err = err ?: test_destroyed_recv(cq);
	if (!IS_ERR_OR_NULL(y))
		ib_destroy_qp(y);
	ib_free_cq(cq);
	return err;
}

/* The calls of the handlers of a completion queue. */
struct notified {
	struct completion called, failed;
	atomic_t calls, errors;
};

static void on_completion(struct ib_cq *cq, void *context)
{
	struct notified *n = context;

	atomic_inc(&n->calls);
	complete(&n->called);
}

static void on_cq_event(struct ib_event *event, void *context)
{
	struct notified *n = context;

	if (event->event == IB_EVENT_CQ_ERR) {
		atomic_inc(&n->errors);
		complete(&n->failed);
	}
}

static int wait_for(struct completion *done)
{
	return EXPECT(wait_for_completion_timeout(done, msecs_to_jiffies(WAIT_MS)));
}

/* The handler has been called `n` times, and is not called again. */
static int not_called_again(struct notified *notified, int n)
{
	msleep(50);
	return EXPECT(atomic_read(&notified->calls) == n);
}

static struct ib_cq *create_notifying(struct side *s, struct notified *n, u32 cqe)
{
	struct ib_cq_init_attr init = { .cqe = cqe };

	init_completion(&n->called);
	init_completion(&n->failed);
	atomic_set(&n->calls, 0);
	atomic_set(&n->errors, 0);
	return ib_create_cq(s->dev, on_completion, on_cq_event, n, &init);
}

/*
 * A completion queue calls its handler once each time it is armed. Arming it reports completions
 * that are there already, if the consumer wants to know. One that is full raises an event: it holds
 * all send requests of a queue pair, which may be flushed, in addition to its own entries.
 */
static int test_notify(void)
{
	const enum ib_cq_notify_flags missed = IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS;
	static struct notified n;
	struct ib_qp *x = NULL;
	struct ib_cq *cq;
	struct ib_wc wc;
	u32 room = 4;
	int err;

	err = TRY_PTR(cq = create_notifying(&a, &n, room));
	if (err)
		return err;
	err = TRY_PTR(x = create_flushing(cq, cq));
	if (!err)
		room += send_wrs(x);
	err = err ?: EXPECT(room > 4) ?:
	      EXPECT(rdma_set_cq_moderation(cq, 8, 100) == -EOPNOTSUPP) ?:
	      EXPECT(ib_req_notify_cq(cq, missed) == 0) ?:
	      post(x, 0) ?: wait_for(&n.called) ?:
	      /* It is not armed. */
	      post(x, 1) ?: not_called_again(&n, 1) ?:
	      EXPECT(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP) == 0) ?:
	      EXPECT(ib_req_notify_cq(cq, missed) == 1) ?: not_called_again(&n, 1) ?:
	      post(x, 2) ?: wait_for(&n.called) ?: not_called_again(&n, 2) ?:
	      poll_all(cq, x, 3) ?:
	      EXPECT(ib_req_notify_cq(cq, missed) == 0) ?:
	      post(x, 0) ?: wait_for(&n.called) ?:
	      post_range(x, 1, room) ?: EXPECT(!atomic_read(&n.errors)) ?:
	      post(x, room) ?: wait_for(&n.failed) ?:
	      /* The event is raised once, and nothing but the last completion is lost. */
	      post(x, room + 1) ?: not_called_again(&n, 3) ?:
	      EXPECT(atomic_read(&n.errors) == 1) ?: poll_all(cq, x, room) ?:
	      EXPECT(ib_poll_cq(cq, 1, &wc) == 0);
	if (!IS_ERR_OR_NULL(x))
		ib_destroy_qp(x);
	ib_destroy_cq(cq);
	return err;
}

/* A queue that is armed for solicited events calls its handler for these, and for errors. */
static int test_solicited(void)
{
	struct ib_qp_init_attr init = qp_init(IB_QPT_RC);
	static struct notified n;
	struct ib_recv_wr recv = {};
	struct pair p = {};
	struct ib_cq *cq;
	int err;

	err = TRY_PTR(cq = create_notifying(&b, &n, 8));
	if (err)
		return err;
	err = TRY_PTR(p.a = make_qp(&a, a.pd, &init));
	init.recv_cq = cq;
	err = err ?: TRY_PTR(p.b = make_qp(&b, b.pd, &init)) ?: connect_pair(&p);
	for (int i = 0; i < 4 && !err; i++)
		err = TRY(ib_post_recv(p.b, &recv, NULL));
	err = err ?: EXPECT(ib_req_notify_cq(cq, IB_CQ_SOLICITED) == 0) ?:
	      post_send(p.a, 0, 0, 0, 0) ?: finish(&a, IB_WC_SUCCESS) ?:
	      expect_wc(cq, 0, IB_WC_SUCCESS) ?: not_called_again(&n, 0) ?:
	      post_send(p.a, 0, 0, 0, IB_SEND_SOLICITED) ?: finish(&a, IB_WC_SUCCESS) ?:
	      wait_for(&n.called) ?: expect_wc(cq, 0, IB_WC_SUCCESS) ?:
	      /* A receive without room for the byte fails. */
	      EXPECT(ib_req_notify_cq(cq, IB_CQ_SOLICITED) == 0) ?:
	      post_send(p.a, 0, 0, 1, 0) ?: finish(&a, IB_WC_REM_INV_REQ_ERR) ?:
	      wait_for(&n.called) ?: expect_wc(cq, 0, IB_WC_LOC_LEN_ERR) ?:
	      expect_wc(cq, 0, IB_WC_WR_FLUSH_ERR);
	close_pair(&p);
	ib_destroy_cq(cq);
	return err;
}

/* A request, and the status that its handler was called with. */
struct op {
	struct ib_cqe cqe;
	struct completion done;
	atomic_t calls;
	enum ib_wc_status status;
};

#define OPS 16

static void op_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct op *op = container_of(wc->wr_cqe, struct op, cqe);

	op->status = wc->status;
	atomic_inc(&op->calls);
	complete(&op->done);
}

static void init_ops(struct op *ops, int n)
{
	for (int i = 0; i < n; i++) {
		ops[i].cqe.done = op_done;
		init_completion(&ops[i].done);
		atomic_set(&ops[i].calls, 0);
	}
}

static int wait_op(struct ib_cq *cq, struct op *op)
{
	for (int ms = 0; ms < WAIT_MS && cq->poll_ctx == IB_POLL_DIRECT; ms++) {
		ib_process_cq_direct(cq, -1);
		if (try_wait_for_completion(&op->done))
			return 0;
		usleep_range(1000, 2000);
	}
	return wait_for(&op->done);
}

/* `n` requests have completed with this status, each once. */
static int completed(struct op *ops, int n, enum ib_wc_status status)
{
	int err = 0;

	for (int i = 0; i < n && !err; i++)
		err = EXPECT(atomic_read(&ops[i].calls) == 1) ?: EXPECT(ops[i].status == status);
	return err;
}

/* Posts WRITEs of byte i of the region, of which only the last one is signalled. */
static int post_writes(struct ib_qp *qp, struct op *ops, int n, u32 rkey_of_first)
{
	struct ib_rdma_wr *wr = kcalloc(n, sizeof(*wr), GFP_KERNEL);
	struct ib_sge *sges = kcalloc(n, sizeof(*sges), GFP_KERNEL);
	int err = EXPECT(wr && sges);

	for (int i = 0; i < n && !err; i++) {
		wr[i].wr = (struct ib_send_wr){
			.next = i < n - 1 ? &wr[i + 1].wr : NULL,
			.wr_cqe = &ops[i].cqe,
			.opcode = IB_WR_RDMA_WRITE,
			.sg_list = &sges[i],
			.num_sge = 1,
			.send_flags = i == n - 1 ? IB_SEND_SIGNALED : 0,
		};
		wr[i].remote_addr = b.mr->iova + i;
		wr[i].rkey = i ? b.mr->rkey : rkey_of_first;
		sges[i] = in_region(&a, i, 1);
	}
	err = err ?: TRY(ib_post_send(qp, &wr[0].wr, NULL));
	kfree(sges);
	kfree(wr);
	return err;
}

/* The handler is called for signalled requests and for errors. Any request leaves room. */
static int unsignalled(struct pair *p, struct op *ops, int max)
{
	int err = 0;

	for (int round = 1; round <= 5 && !err; round++) {
		init_ops(ops, max);
		for (int i = 0; i < max; i++)
			*byte(&a, i) = round;
		err = post_writes(p->a, ops, max, b.mr->rkey) ?:
		      wait_op(p->a->send_cq, &ops[max - 1]) ?:
		      completed(&ops[max - 1], 1, IB_WC_SUCCESS);
		for (int i = 0; i < max && !err; i++)
			err = EXPECT(*byte(&b, i) == round) ?:
			      EXPECT(atomic_read(&ops[i].calls) == (i == max - 1));
	}
	return err;
}

/* Drains a queue pair. When this returns, all of its requests have completed. */
static int drain(struct pair *p, struct op *ops, struct op *recv)
{
	struct ib_recv_wr recv_wr = { .wr_cqe = &recv->cqe };
	struct ib_send_wr send[2] = {
		{ .next = &send[1], .wr_cqe = &ops[0].cqe, .opcode = IB_WR_SEND },
		{ .wr_cqe = &ops[1].cqe, .opcode = IB_WR_SEND, .send_flags = IB_SEND_SIGNALED },
	};
	int err;

	init_ops(ops, 3);
	init_ops(recv, 1);
	err = TRY(ib_post_recv(p->a, &recv_wr, NULL)) ?: post_writes(p->a, ops, 3, 0) ?:
	      wait_op(p->a->send_cq, &ops[0]);
	if (err)
		return err;
	ib_drain_qp(p->a);
	err = completed(&ops[0], 1, IB_WC_REM_ACCESS_ERR) ?:
	      completed(&ops[1], 2, IB_WC_WR_FLUSH_ERR) ?:
	      completed(recv, 1, IB_WC_WR_FLUSH_ERR) ?: reset_pair(p) ?: connect_pair(p);
	if (err)
		return err;
	/* Requests that wait for a receive of the peer. */
	init_ops(ops, 2);
	init_ops(recv, 1);
	err = TRY(ib_post_recv(p->a, &recv_wr, NULL)) ?: TRY(ib_post_send(p->a, send, NULL));
	if (err)
		return err;
	ib_drain_qp(p->a);
	err = completed(ops, 2, IB_WC_WR_FLUSH_ERR) ?: completed(recv, 1, IB_WC_WR_FLUSH_ERR);
	/* Draining it again does nothing. */
	ib_drain_qp(p->a);
	ib_drain_sq(p->a);
	return err ?: EXPECT(atomic_read(&ops[1].calls) == 1);
}

static int test_context(enum ib_poll_context context)
{
	struct ib_qp_init_attr init = qp_init(IB_QPT_RC);
	static struct op ops[OPS], recv;
	struct ib_qp_attr attr;
	struct pair p = {};
	struct ib_cq *cq;
	int err;

	err = TRY_PTR(cq = ib_alloc_cq(a.dev, NULL, 64, 0, context));
	if (err)
		return err;
	err = TRY_PTR(p.b = make_qp(&b, b.pd, &init));
	init.sq_sig_type = IB_SIGNAL_REQ_WR;
	init.send_cq = cq;
	init.recv_cq = cq;
	err = err ?: TRY_PTR(p.a = make_qp(&a, a.pd, &init)) ?: connect_pair(&p) ?:
	      TRY(ib_query_qp(p.a, &attr, IB_QP_CAP, &init)) ?:
	      EXPECT(init.sq_sig_type == IB_SIGNAL_REQ_WR) ?:
	      EXPECT(attr.cap.max_send_wr <= OPS) ?:
	      unsignalled(&p, ops, attr.cap.max_send_wr) ?: drain(&p, ops, &recv);
	close_pair(&p);
	ib_free_cq(cq);
	return err;
}

/* Queues that the core polls in each of its contexts. */
static int test_contexts(void)
{
	return test_context(IB_POLL_DIRECT) ?: test_context(IB_POLL_SOFTIRQ) ?:
	       test_context(IB_POLL_WORKQUEUE) ?: test_context(IB_POLL_UNBOUND_WORKQUEUE);
}

/* The limit events of a shared receive queue. */
struct limit {
	struct completion reached;
	atomic_t events;
};

static void on_srq_event(struct ib_event *event, void *context)
{
	struct limit *limit = context;

	if (event->event == IB_EVENT_SRQ_LIMIT_REACHED) {
		atomic_inc(&limit->events);
		complete(&limit->reached);
	}
}

/* Sends `n` messages, which the receives from `first` on take. */
static int take(struct pair *p, int first, int n)
{
	struct ib_wc wc;
	int err = 0;

	for (int i = first; i < first + n && !err; i++) {
		*(u64 *)byte(&a, 0) = 1000 + i;
		err = post_send(p->a, 0, 0, 8, 0) ?: finish(&a, IB_WC_SUCCESS) ?:
		      wait_wc(b.cq, &wc) ?: EXPECT(wc.status == IB_WC_SUCCESS) ?:
		      EXPECT(wc.wr_id == i && wc.qp == p->b && wc.byte_len == 8) ?:
		      EXPECT(*(u64 *)byte(&b, 8 * i) == 1000 + i);
	}
	return err;
}

/* The event is raised once, as soon as fewer receives than the limit are left. */
static int srq_limit(struct pair *p, struct ib_srq *srq, struct limit *limit, int posted)
{
	struct ib_srq_attr attr = { .srq_limit = posted - 3 };
	struct ib_srq_attr now = {};
	int err;

	err = TRY(ib_modify_srq(srq, &attr, IB_SRQ_LIMIT)) ?: TRY(ib_query_srq(srq, &now)) ?:
	      EXPECT(now.srq_limit == posted - 3) ?: take(p, 0, 3);
	msleep(50);
	err = err ?: EXPECT(!atomic_read(&limit->events)) ?: take(p, 3, 1) ?:
	      wait_for(&limit->reached) ?: TRY(ib_query_srq(srq, &now)) ?:
	      EXPECT(!now.srq_limit) ?: take(p, 4, 2) ?:
	      /* A limit that is reached already. */
	      EXPECT(atomic_read(&limit->events) == 1) ?:
	      TRY(ib_modify_srq(srq, &attr, IB_SRQ_LIMIT)) ?: wait_for(&limit->reached) ?:
	      EXPECT(atomic_read(&limit->events) == 2);
	attr.srq_limit = now.max_wr + 1;
	return err ?: EXPECT(ib_modify_srq(srq, &attr, IB_SRQ_LIMIT) == -EINVAL);
}

/* The receives stay in their order when the queue is resized. */
static int srq_resize(struct pair *p, struct ib_srq *srq, int first, int posted)
{
	struct ib_srq_attr attr = { .max_wr = posted - 1 };
	struct ib_srq_attr now;
	int refused, err;

	/* A capacity is one less than a power of two. */
	err = EXPECT(is_power_of_2(posted)) ?:
	      EXPECT(ib_modify_srq(srq, &attr, IB_SRQ_MAX_WR) == -EINVAL);
	attr.max_wr = 100;
	return err ?: TRY(ib_modify_srq(srq, &attr, IB_SRQ_MAX_WR)) ?:
	       TRY(ib_query_srq(srq, &now)) ?: EXPECT(now.max_wr >= 100) ?:
	       TRY(post_recvs(p->b, first + posted, 50, 0, 1, &refused)) ?:
	       take(p, first, posted + 1);
}

static int use_srq(struct pair *p, struct ib_srq *srq, struct limit *limit)
{
	const struct ib_recv_wr wr = {}, *bad = NULL;
	struct ib_srq_attr attr;
	unsigned long start;
	int refused, max, err;

	err = TRY(ib_query_srq(srq, &attr)) ?:
	      EXPECT(attr.max_wr >= 10 && attr.max_sge >= 2 && !attr.srq_limit) ?:
	      EXPECT(attr.max_sge < 64) ?:
	      /* The queue pair has no receive queue of its own. */
	      EXPECT(ib_post_recv(p->b, &wr, &bad) == -EINVAL) ?: EXPECT(bad == &wr);
	if (err)
		return err;
	max = attr.max_wr;
	err = EXPECT(post_recvs(p->b, 0, 3, 2, attr.max_sge + 1, &refused) == -EINVAL) ?:
	      EXPECT(refused == 2) ?:
	      EXPECT(post_recvs(p->b, 2, max, 0, 1, &refused) == -ENOMEM) ?:
	      EXPECT(refused == max - 2) ?: srq_limit(p, srq, limit, max) ?:
	      /* Six have been taken. */
	      take(p, 6, max - 6 - 4) ?: srq_resize(p, srq, max - 4, 4);
	if (err)
		return err;
	/* The core waits a minute for the event that the queue pair takes no more receives. */
	start = jiffies;
	ib_drain_qp(p->b);
	return EXPECT(time_before(jiffies, start + 50 * HZ));
}

/* A shared receive queue. */
static int test_srq(void)
{
	static struct limit limit;
	struct ib_srq_init_attr srq_init = {
		.event_handler = on_srq_event,
		.srq_context = &limit,
		.attr = { .max_wr = 10, .max_sge = 2 },
		.srq_type = IB_SRQT_BASIC,
	};
	struct ib_qp_init_attr init = qp_init(IB_QPT_RC);
	struct pair p = {};
	struct ib_srq *srq;
	int err;

	init_completion(&limit.reached);
	atomic_set(&limit.events, 0);
	err = TRY_PTR(srq = ib_create_srq(b.pd, &srq_init));
	if (err)
		return err;
	err = TRY_PTR(p.a = make_qp(&a, a.pd, &init));
	init.srq = srq;
	err = err ?: TRY_PTR(p.b = make_qp(&b, b.pd, &init)) ?: connect_pair(&p) ?:
	      use_srq(&p, srq, &limit);
	close_pair(&p);
	ib_destroy_srq(srq);
	return err;
}

int test_cq(void)
{
	return TRY(test_destroyed()) ?: TRY(test_notify()) ?: TRY(test_solicited()) ?:
	       TRY(test_contexts()) ?: TRY(test_srq());
}
