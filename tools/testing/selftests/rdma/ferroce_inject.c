// SPDX-License-Identifier: GPL-2.0
/*
 * Fault injection. See ferroce_inject.h.
 */
#include <fcntl.h>
#include <limits.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ferroce_inject.h"
#include "kselftest.h"

#define DEBUG "/sys/kernel/debug/"
/* This attribute fails no allocation: it reallocates skbs. */
#define REALLOC "fail_skb_realloc"
/* More allocations than any call makes: a call that reaches this would never end. */
#define MAX_STEPS 20000
/* Allocations in a row that fail in the second round of inject_traffic(). */
#define IN_A_ROW 4
/* The longest period of inject_periodic(). */
#define MAX_PERIOD 7

/* The fault attributes, and the smallest amount that one allocation subtracts from "space". */
static const struct {
	const char *dir;
	unsigned int unit;
} kinds[] = {
	/* In pages. This is first, while the page pools of the driver are empty. */
	{ "fail_page_alloc", 1 },
	/* In bytes. */
	{ "failslab", 64 },
	{ "fail_usercopy", 0 },
};

#define DISARM \
	"for dir in fail_page_alloc failslab fail_usercopy " REALLOC "; do " \
	"echo 0 >" DEBUG "$dir/probability || exit; done"

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

static void set_number(const char *dir, const char *name, unsigned long long value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", value);
	set(dir, name, text);
}

static long get_number(const char *dir, const char *name)
{
	char path[160];
	FILE *in;
	long n;

	snprintf(path, sizeof(path), DEBUG "%s/%s", dir, name);
	in = fopen(path, "re");
	CHECK(in);
	CHECK_EQ(fscanf(in, "%ld", &n), 1);
	fclose(in);
	return n;
}

/* Resets the attributes of one kind of faults: no faults, and no messages by default. */
static void reset(const char *dir)
{
	set(dir, "probability", "0");
	set(dir, "interval", "1");
	set(dir, "times", "-1");
	set(dir, "space", "0");
	set(dir, "verbose", getenv("FERROCE_VERBOSE") ? "2" : "0");
	set(dir, "task-filter", "N");
}

/* Sets the filter "require" or "reject" of call chains to a range of addresses. */
static void set_range(const char *which, unsigned long long start, unsigned long long end)
{
	char name[32];

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		snprintf(name, sizeof(name), "%s-start", which);
		set_number(kinds[i].dir, name, start);
		snprintf(name, sizeof(name), "%s-end", which);
		set_number(kinds[i].dir, name, end);
	}
}

/* Calls found() for each function in kallsyms. */
static void each_function(void (*found)(const char *module, const char *name,
					unsigned long long addr))
{
	char line[512], name[256], module[64], type;
	FILE *in = fopen("/proc/kallsyms", "re");
	unsigned long long addr;

	CHECK(in);
	while (fgets(line, sizeof(line), in)) {
		module[0] = 0;
		if (sscanf(line, "%llx %c %255s [%63[^]]", &addr, &type, name, module) >= 3 &&
		    (type == 't' || type == 'T'))
			found(module, name, addr);
	}
	fclose(in);
}

/* Ranges of functions: those of the driver, and the one by which kmemleak allocates. */
static struct {
	unsigned long long start, end;
} driver, kmemleak;

static void find_ranges(const char *module, const char *name, unsigned long long addr)
{
	if (!strcmp(module, "ferroce")) {
		if (!driver.start || addr < driver.start)
			driver.start = addr;
		/* The end of the last function is not known, but it allocates nothing. */
		if (addr > driver.end)
			driver.end = addr;
		return;
	}
	/* kallsyms is sorted by address, except for modules. */
	if (!strcmp(name, "__alloc_object"))
		kmemleak.start = addr;
	else if (kmemleak.start && !kmemleak.end && addr > kmemleak.start)
		kmemleak.end = addr;
}

/* Clears the faults, also if the case fails until undo_last(); sets the filter of call chains. */
static void begin(bool driver_only)
{
	inject_arm(0);
	shell_undo(DISARM, DISARM);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		reset(kinds[i].dir);
	if (driver_only)
		set_range("require", driver.start, driver.end);
	else
		set_range("require", 0, ULONG_MAX);
}

void inject_open(void)
{
	char path[64];
	struct stat st;

	if (stat(DEBUG "failslab", &st))
		mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		snprintf(path, sizeof(path), DEBUG "%s/require-start", kinds[i].dir);
		if (stat(path, &st))
			ksft_exit_skip("the kernel does not inject what is needed: no %s\n", path);
	}
	nth = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	CHECK(nth >= 0);
	each_function(find_ranges);
	CHECK(driver.start < driver.end);
	/* kmemleak allocates an object for each allocation, and copes if that fails. */
	set_range("reject", kmemleak.start, kmemleak.end);
	set("failslab", "ignore-gfp-wait", "N");
	set("failslab", "cache-filter", "N");
	set("fail_page_alloc", "ignore-gfp-wait", "N");
	set("fail_page_alloc", "ignore-gfp-highmem", "N");
	set("fail_page_alloc", "min-order", "0");
}

void inject_arm(unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	/* The write copies from user memory, which may be the call that fails: once. */
	if (pwrite(nth, text, len, 0) != len)
		CHECK_EQ(pwrite(nth, text, len, 0), len);
}

unsigned int inject_disarm(void)
{
	char text[16] = {};

	/*
	 * The read copies to user memory, which counts, and may be the call that fails; but the
	 * number was taken before.
	 */
	if (pread(nth, text, sizeof(text) - 1, 0) <= 0) {
		inject_arm(0);
		return 1;
	}
	inject_arm(0);
	return strtoul(text, NULL, 10);
}

/* Reads the numbers of existing objects, of every device and process. */
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

/* Runs the traffic with a fault attribute set; returns the number of faults. */
static long run_with(size_t kind, unsigned long space, unsigned long interval, long times,
		     const struct traffic_call *call)
{
	const char *dir = kinds[kind].dir;
	long left;

	set_number(dir, "space", space);
	set_number(dir, "interval", interval);
	set_number(dir, "times", times);
	set_number(dir, "probability", 100);
	call->run();
	left = get_number(dir, "times");
	reset(dir);
	if (call->settle)
		call->settle();
	return times - left;
}

void inject_traffic(const struct traffic_call *call)
{
	static const int rows[] = { 1, IN_A_ROW };
	unsigned long passed, n, faults = 0;

	begin(true);
	for (size_t i = 0; kinds[i].unit; i++) {
		for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
			/* With several faults in a row, a longer step skips no allocation. */
			for (passed = 0, n = 0; run_with(i, passed, 1, rows[r], call); n++) {
				CHECK(n < MAX_STEPS);
				passed += kinds[i].unit * rows[r];
			}
			faults += n;
			printf("# %s: %s, %d in a row: %lu runs\n", call->name, kinds[i].dir,
			       rows[r], n);
			fflush(stdout);
		}
	}
	CHECK(faults > 0);
	undo_last();
}

void inject_periodic(const struct traffic_call *call)
{
	unsigned long period;
	long faults;

	begin(true);
	for (size_t i = 0; kinds[i].unit; i++) {
		for (period = 1, faults = 0; period <= MAX_PERIOD; period++)
			faults += run_with(i, 0, period, MAX_STEPS, call);
		printf("# %s: %s: %ld faults\n", call->name, kinds[i].dir, faults);
		fflush(stdout);
		CHECK(faults > 0);
	}
	undo_last();
}

void inject_realloc(const struct traffic_call *call)
{
	long left;

	begin(true);
	reset(REALLOC);
	set_number(REALLOC, "times", INT_MAX);
	set(REALLOC, "probability", "100");
	call->run();
	set(REALLOC, "probability", "0");
	left = get_number(REALLOC, "times");
	printf("# %s: %ld skbs reallocated\n", call->name, INT_MAX - left);
	CHECK(left < INT_MAX);
	if (call->settle)
		call->settle();
	undo_last();
}

static const char *error_name(int err)
{
	return err ? strerrorname_np(err) ?: "?" : "success";
}

void inject(const struct call *call)
{
	static char before[4096], after[4096];
	int seen[16], times[16], errors = 0, err, i;
	unsigned int n, left;

	begin(call->driver_only);
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
		for (i = 0; i < errors && seen[i] != err; i++)
			;
		if (i == errors && errors < (int)ARRAY_LEN(seen)) {
			seen[errors] = err;
			times[errors++] = 0;
		}
		if (i < errors)
			times[i]++;
	}
	count_objects(after, sizeof(after));
	if (strcmp(before, after))
		printf("# %s: before:\n%safter:\n%s", call->name, before, after);
	CHECK(!strcmp(before, after));
	CHECK(n > 1);
	printf("# %s: %u faults:", call->name, n - 1);
	for (i = 0; i < errors; i++)
		printf(" %s %d", error_name(seen[i]), times[i]);
	printf("\n");
	fflush(stdout);
	undo_last();
}
