/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A peer that goes on writing, even if the memory is gone, which UC does not report. And calls that
 * change a region meanwhile.
 */
#ifndef FERROCE_TRAFFIC_H
#define FERROCE_TRAFFIC_H

#include "ferroce_util.h"

/* Bytes of one WRITE. */
#define TRAFFIC_PIECE 1024

struct traffic {
	/* `a` writes; its buffer holds bytes of 0x11. */
	struct end a, b;
	/* These may change meanwhile. */
	uint32_t rkey;
	uint64_t va;
	/* The number of pieces, which are written one after the other, again and again. */
	unsigned int places;
	int stop;
	unsigned long done;
};

/* Writes until `stop` is set or a WRITE fails: the body of a thread. */
void *traffic_run(void *arg);

/* Returns whether a peer has written all of a piece, which UC does not report. */
bool traffic_arrived(const unsigned char *p);

/* Replaces ibv_rereg_mr(), which the provider lacks; returns 0 or the error. */
int mr_rereg(struct ibv_mr *mr, int flags, void *start, size_t len, uint64_t va,
	     struct ibv_pd *pd, int access);

/* Replaces ibv_advise_mr(); returns 0 or the error. */
int advise_mr(struct ibv_pd *pd, int advice, uint32_t flags, struct ibv_sge *sges, int n);

#endif
