// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mark FILE SECONDS: lets the plugin of the emulator count the locked instructions of that many
 * seconds, and prints the increase of the counter in FILE.
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

int main(int argc, char **argv)
{
	struct timespec pause = { 0 };
	unsigned long long before, after;
	double seconds;
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
	seconds = atof(argv[2]);
	pause.tv_sec = seconds;
	pause.tv_nsec = (seconds - pause.tv_sec) * 1e9;

	before = read_counter(fd);
	asm volatile("nopl %c0(%%rax, %%rax, 1)" : : "i"(MARK_START));
	nanosleep(&pause, NULL);
	after = read_counter(fd);
	asm volatile("nopl %c0(%%rax, %%rax, 1)" : : "i"(MARK_STOP));
	printf("%llu\n", after - before);
	return 0;
}
