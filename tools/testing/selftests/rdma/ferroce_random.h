/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A thread of ferroce_random, and the choices that all its calls make.
 */
#ifndef FERROCE_RANDOM_H
#define FERROCE_RANDOM_H

#include <pthread.h>
#include <stdatomic.h>
#include "ferroce_util.h"

#define PAGE 4096
#define LEN (64 * PAGE)

struct thread {
	pthread_t id;
	uint64_t seed;
	unsigned long steps;
	/* Completions without an error. */
	unsigned long good;
	struct ibv_qp *qps[6];
	struct ibv_mr *mrs[6];
	struct ibv_mw *mws[4];
	/* On r1 and on r2. */
	struct {
		struct ibv_cq *cqs[3];
		struct ibv_srq *srq;
		struct ibv_ah *ah;
	} on[2];
	unsigned char *plain, *on_demand;
};

extern struct dev *const devs[2];
/* The numbers of queue pairs of each device, which may be gone. */
extern atomic_uint qpns[2][64];
extern atomic_int gid_index[2];
/* A device has been removed. */
extern atomic_bool gone;

static inline uint32_t below(struct thread *t, uint32_t n)
{
	return rnd(&t->seed) % n;
}

static inline bool one_in(struct thread *t, uint32_t n)
{
	return !below(t, n);
}

/*
 * Takes note of the error that all calls return once the device is gone. The rings that librxe
 * could not map again after this error must not be used.
 */
static inline bool ok(int err)
{
	if (err == EIO)
		gone = true;
	return !err;
}

static inline int side(const struct ibv_context *ctx)
{
	return ctx == r2.ctx;
}

static inline struct ibv_qp **any_qp(struct thread *t)
{
	return &t->qps[below(t, ARRAY_LEN(t->qps))];
}

static inline struct ibv_cq **any_cq(struct thread *t)
{
	int on = below(t, 2);

	return &t->on[on].cqs[below(t, ARRAY_LEN(t->on[on].cqs))];
}

static inline uint32_t any_qpn(struct thread *t, int on)
{
	return qpns[on][below(t, ARRAY_LEN(qpns[on]))];
}

struct ibv_ah_attr path(struct thread *t, int from, int to);

/* Requests, completions and memory: ferroce_random_data.c. */
void post_sends(struct thread *t);
void post_recvs(struct thread *t);
void poll_cq(struct thread *t);
void change_mr(struct thread *t);
void change_mw(struct thread *t);
void change_memory(struct thread *t);

#endif
