// SPDX-License-Identifier: GPL-2.0
#include <stdarg.h>
#include "ferroce_look.h"

char seen[1 << 20];

static void run(const char *format, va_list args)
{
	char command[512];
	size_t len;
	FILE *out;

	vsnprintf(command, sizeof(command), format, args);
	out = popen(command, "r");
	CHECK(out);
	len = fread(seen, 1, sizeof(seen) - 1, out);
	CHECK_EQ(pclose(out), 0);
	CHECK(len > 0 && len < sizeof(seen) - 1);
	seen[len] = 0;
}

void read_all(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	run(format, args);
	va_end(args);
}

void look(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	run(format, args);
	va_end(args);
	for (char *at = seen; *at; at++)
		if (*at == '\n' || *at == '\t')
			*at = ' ';
}

const char *behind(const char *word)
{
	size_t len = strlen(word);

	for (const char *at = seen; (at = strstr(at, word)); at += len)
		if ((at == seen || at[-1] == ' ') && at[len] == ' ')
			return at + len + 1;
	printf("# no '%s' in: %s\n", word, seen);
	CHECK(!"the word is there");
	return NULL;
}

bool says(const char *word, const char *value)
{
	const char *at = behind(word);
	size_t len = strlen(value);

	if (!strncmp(at, value, len) && at[len] == ' ')
		return true;
	printf("# %s is not '%s' but '%.20s'\n", word, value, at);
	return false;
}

long long number(const char *word)
{
	const char *at = behind(word);
	long long value;
	char *end;

	value = strtoll(at, &end, 0);
	CHECK(end != at && *end == ' ');
	return value;
}

bool has(const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (strstr(seen, text))
		return true;
	printf("# '%s' is not in:\n# %s\n", text, seen);
	return false;
}

void look_at(const struct end *e)
{
	look("rdma -dd resource show qp link %s/1 lqpn %u",
	     ibv_get_device_name(e->dev->ctx->device), e->qp->qp_num);
}

static bool is_window_open(const struct end *e)
{
	look_at(e);
	return number("drv_sq_window") >= 120;
}

void open_windows(struct end *a, struct end *b)
{
	wait_begin();
	while (!is_window_open(a) || !is_window_open(b)) {
		post_send(a, b, IBV_WR_RDMA_WRITE, 1, 0, LEN, IBV_SEND_SIGNALED);
		expect(a, 1, IBV_WC_SUCCESS);
		post_send(b, a, IBV_WR_RDMA_WRITE, 2, 0, LEN, IBV_SEND_SIGNALED);
		expect(b, 2, IBV_WC_SUCCESS);
		wait_more_program("wide windows");
	}
}

void open_pair(struct end *a, struct end *b)
{
	end_init(a, &r1, IBV_QPT_RC, LEN);
	end_init(b, &r2, IBV_QPT_RC, LEN);
	a->psn = PSN_A;
	b->psn = PSN_B;
}

int count(const char *format, ...)
{
	char text[512];
	va_list args;
	int n = 0;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	for (const char *at = seen; (at = strstr(at, text)); at++)
		n++;
	return n;
}
