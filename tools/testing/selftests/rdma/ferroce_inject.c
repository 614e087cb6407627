// SPDX-License-Identifier: GPL-2.0
/*
 * Fault injection. See ferroce_inject.h.
 */
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ferroce_inject.h"
#include "kselftest.h"

#define DEBUG "/sys/kernel/debug/"
/* No call makes as many allocations: one that seems to never comes to its end. */
#define MAX_STEPS 20000

unsigned long injected;

static int nth = -1;

static bool try_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = write(fd, text, strlen(text));
	close(fd);
	return n == (ssize_t)strlen(text);
}

static void set(const char *dir, const char *name, const char *value)
{
	char path[160];

	snprintf(path, sizeof(path), DEBUG "%s/%s", dir, name);
	if (!try_write(path, value)) {
		printf("# cannot write %s to %s\n", value, path);
		CHECK(false);
	}
}

/* The attributes of one kind of faults: none but those that are asked for, and no messages. */
static void reset(const char *dir)
{
	set(dir, "probability", "0");
	set(dir, "interval", "1");
	set(dir, "times", "-1");
	set(dir, "space", "0");
	set(dir, "verbose", getenv("FERROCE_VERBOSE") ? "2" : "0");
	set(dir, "task-filter", "N");
}

void inject_open(void)
{
	struct stat st;

	if (stat(DEBUG "failslab", &st))
		mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	if (stat(DEBUG "failslab", &st) || stat(DEBUG "fail_page_alloc", &st) ||
	    access("/proc/thread-self/fail-nth", W_OK))
		ksft_exit_skip("the kernel injects no faults\n");
	nth = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	CHECK(nth >= 0);
	reset("failslab");
	set("failslab", "ignore-gfp-wait", "N");
	set("failslab", "cache-filter", "N");
	reset("fail_page_alloc");
	set("fail_page_alloc", "ignore-gfp-wait", "N");
	set("fail_page_alloc", "ignore-gfp-highmem", "N");
	set("fail_page_alloc", "min-order", "0");
	if (!stat(DEBUG "fail_usercopy", &st))
		reset("fail_usercopy");
}

void inject_arm(unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	/* To write it is a copy from user memory, which may be the one that fails: once. */
	if (pwrite(nth, text, len, 0) != len)
		CHECK_EQ(pwrite(nth, text, len, 0), len);
}

unsigned int inject_disarm(void)
{
	char text[16] = {};

	/*
	 * To read it is a copy to user memory, which counts, and may be the one that fails: but the
	 * number was taken before.
	 */
	if (pread(nth, text, sizeof(text) - 1, 0) <= 0) {
		inject_arm(0);
		return 1;
	}
	inject_arm(0);
	return strtoul(text, NULL, 10);
}

/* The objects that exist, of every device and process. */
static void count_objects(char *text, size_t len)
{
	FILE *out = popen("rdma resource show", "r");
	size_t n;

	CHECK(out);
	n = fread(text, 1, len - 1, out);
	text[n] = 0;
	CHECK_EQ(pclose(out), 0);
	CHECK(n > 0 && n < len - 1);
}

static const char *error_name(int err)
{
	return err ? strerrorname_np(err) ?: "?" : "success";
}

void inject(const struct call *call)
{
	static char before[4096], after[4096];
	int seen[16], times[16], kinds = 0, err, i;
	unsigned int n, left;

	count_objects(before, sizeof(before));
	for (n = 1; ; n++) {
		CHECK(n < MAX_STEPS);
		if (call->prepare)
			call->prepare();
		inject_arm(n);
		err = call->attempt();
		left = inject_disarm();
		if (left && err)
			printf("# %s: %s without a fault\n", call->name, error_name(err));
		CHECK(!left || !err);
		if (!err && call->undo)
			call->undo();
		if (call->tidy)
			call->tidy();
		if (left)
			break;
		for (i = 0; i < kinds && seen[i] != err; i++)
			;
		if (i == kinds && kinds < (int)ARRAY_LEN(seen)) {
			seen[kinds] = err;
			times[kinds++] = 0;
		}
		if (i < kinds)
			times[i]++;
	}
	count_objects(after, sizeof(after));
	if (strcmp(before, after))
		printf("# %s: before:\n%safter:\n%s", call->name, before, after);
	CHECK(!strcmp(before, after));
	injected += n - 1;
	printf("# %s: %u faults:", call->name, n - 1);
	for (i = 0; i < kinds; i++)
		printf(" %s %d", error_name(seen[i]), times[i]);
	printf("\n");
	fflush(stdout);
}
