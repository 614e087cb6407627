// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mark FILE SECONDS: lets the plugin of the emulator count the instructions of that many seconds.
 * Prints the increase of the counter in FILE, and the time that it took in microseconds.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "mark.h"

static unsigned long long read_counter(int fd)
{
	char text[32] = "";

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0) {
		perror("mark: error: cannot read the counter");
		exit(1);
	}
	return strtoull(text, NULL, 10);
}

static long long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/*
 * Reads the counter and its time. The emulator may execute the other processors between the two:
 * then once more.
 */
static unsigned long long sample(int fd, long long *us)
{
	unsigned long long count;
	long long before;

	do {
		before = now_us();
		count = read_counter(fd);
		*us = now_us();
	} while (*us - before > 1000);
	return count;
}

int main(int argc, char **argv)
{
	unsigned long long before, after;
	long long began, ended;
	int fd;

	if (argc != 3) {
		fprintf(stderr, "usage: mark FILE SECONDS\n");
		return 2;
	}
	fd = open(argv[1], O_RDONLY);
	if (fd < 0) {
		perror(argv[1]);
		return 1;
	}
	before = sample(fd, &began);
	asm volatile("nopl %c0(%%rax, %%rax, 1)" : : "i"(MARK_START));
	usleep(atof(argv[2]) * 1e6);
	after = sample(fd, &ended);
	asm volatile("nopl %c0(%%rax, %%rax, 1)" : : "i"(MARK_STOP));
	printf("%llu %lld\n", after - before, ended - began);
	return 0;
}
