/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The counters of a device, as "rdma statistic" shows them.
 */
#ifndef FERROCE_STAT_H
#define FERROCE_STAT_H

#include "ferroce_util.h"

#define MAX_STATS 128

struct stats {
	/* The arguments of "rdma statistic" that show them. */
	const char *what;
	size_t n;
	struct stat_value {
		char name[32];
		long long value;
	} values[MAX_STATS];
};

/* The growth of a counter. A list ends with an entry that has no name. */
struct growth {
	const char *name;
	long long by;
};

/* Returns the output of "rdma statistic WHAT", which is valid until the next call. */
char *stats_text(const char *what);
/* Returns the number in a file of the port of a device: in "counters" or "hw_counters". */
long long port_file(const char *dev, const char *dir, const char *name);

/* Reads the counters that "rdma statistic WHAT" shows, say "show link r1/1". */
void stats_read(struct stats *stats, const char *what);
long long stats_get(const struct stats *stats, const char *name);
/*
 * Waits until the counters have grown by these values since `stats` was read, checks that they have
 * not grown more, and that no other has changed. Updates `stats`.
 */
void stats_grew(struct stats *stats, const struct growth *growth);
/* The same for the named ones only; others may be anything. */
void stats_grew_among(struct stats *stats, const struct growth *growth);

#define STATS_GREW(stats, ...) stats_grew(stats, (struct growth[]){ __VA_ARGS__, {} })

/* Bytes of a packet with these headers behind the UDP header and this payload, from IPv4 on. */
#define WIRE(headers, payload) (20 + 8 + (headers) + (((payload) + 3) & ~3) + 4)
#define BTH 12
#define AETH 4
#define DETH 8
#define RETH 16

#endif
