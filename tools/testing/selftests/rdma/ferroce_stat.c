// SPDX-License-Identifier: GPL-2.0
/*
 * The counters of a device. See ferroce_stat.h.
 */
#include "ferroce_look.h"
#include "ferroce_stat.h"

char *stats_text(const char *what)
{
	/* There may be nothing to show. */
	read_all("rdma statistic %s && echo", what);
	return seen;
}

void stats_read(struct stats *stats, const char *what)
{
	char *text = stats_text(what), *word, *end, *save;

	*stats = (struct stats){ .what = what };
	/* Words, each name before its value. A word that is no number is a name. */
	for (word = strtok_r(text, " \t\n", &save); word; word = strtok_r(NULL, " \t\n", &save)) {
		struct stat_value *last = &stats->values[stats->n];
		long long value = strtoll(word, &end, 10);

		CHECK(stats->n < MAX_STATS);
		if (*end) {
			snprintf(last->name, sizeof(last->name), "%s", word);
		} else if (last->name[0]) {
			last->value = value;
			stats->n++;
		}
	}
	CHECK(stats->n > 0);
}

long long port_file(const char *dev, const char *dir, const char *name)
{
	char path[128];
	long long value;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/%s/%s", dev, dir, name);
	file = fopen(path, "r");
	CHECK(file);
	CHECK_EQ(fscanf(file, "%lld", &value), 1);
	fclose(file);
	return value;
}

long long stats_get(const struct stats *stats, const char *name)
{
	for (size_t i = 0; i < stats->n; i++)
		if (!strcmp(stats->values[i].name, name))
			return stats->values[i].value;
	printf("# no counter %s in \"%s\"\n", name, stats->what);
	CHECK(false);
	return 0;
}

static long long growth_of(const struct growth *growth, const char *name)
{
	for (; growth->name; growth++)
		if (!strcmp(growth->name, name))
			return growth->by;
	return 0;
}

static void compare(struct stats *stats, const struct growth *growth, bool others)
{
	struct stats before = *stats;
	const struct growth *g;
	bool same = true;

	wait_begin();
	for (;;) {
		stats_read(stats, before.what);
		for (g = growth; g->name; g++)
			if (stats_get(stats, g->name) - stats_get(&before, g->name) < g->by)
				break;
		if (!g->name)
			break;
		wait_more_program(g->name);
	}
	CHECK_EQ(stats->n, before.n);
	for (size_t i = 0; i < stats->n; i++) {
		const char *name = stats->values[i].name;
		long long by = stats->values[i].value - stats_get(&before, name);
		long long wanted = growth_of(growth, name);

		for (g = growth; g->name && strcmp(g->name, name); g++)
			;
		/* The numbers of objects in use are no counters: others use objects, too. */
		if (by == wanted || (others && !g->name) || !strncmp(name, "pool_", 5))
			continue;
		printf("# %s: %s grew by %lld, not %lld\n", stats->what, name, by, wanted);
		same = false;
	}
	CHECK(same);
}

void stats_grew(struct stats *stats, const struct growth *growth)
{
	compare(stats, growth, false);
}

void stats_grew_among(struct stats *stats, const struct growth *growth)
{
	compare(stats, growth, true);
}
