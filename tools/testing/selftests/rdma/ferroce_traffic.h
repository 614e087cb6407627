/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A peer that goes on writing, whatever becomes of the memory: nobody tells it on UC. And what
 * changes a region meanwhile.
 */
#ifndef FERROCE_TRAFFIC_H
#define FERROCE_TRAFFIC_H

#include "ferroce_util.h"

/* Bytes of one WRITE. */
#define TRAFFIC_PIECE 1024

struct traffic {
	/* `a` writes; its buffer holds bytes of 0x11. */
	struct end a, b;
	/* May change meanwhile. */
	uint32_t rkey;
	uint64_t va;
	/* How many pieces are written, one after the other, again and again. */
	unsigned int places;
	int stop;
	unsigned long done;
};

/* Writes until it shall stop or something fails: the body of a thread. */
void *traffic_run(void *arg);

/* Whether a peer has written all of a piece, which nobody is told of on UC. */
bool traffic_arrived(const unsigned char *p);

/* What ibv_rereg_mr() would do if the provider had it. */
int mr_rereg(struct ibv_mr *mr, int flags, void *start, size_t len, uint64_t va,
	     struct ibv_pd *pd, int access);

/* What ibv_advise_mr() would do; returns 0 or the error. */
int advise_mr(struct ibv_pd *pd, int advice, uint32_t flags, struct ibv_sge *sges, int n);

#endif
