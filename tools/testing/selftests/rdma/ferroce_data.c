// SPDX-License-Identifier: GPL-2.0
/*
 * Bytes that depend on a seed and their position, so that a wrong, misplaced or missing one shows.
 */
#include "ferroce_util.h"

static uint64_t word(uint32_t seed, size_t at)
{
	uint64_t x = ((uint64_t)seed << 32 | (at & 0xffffffff)) * 0x9e3779b97f4a7c15;

	return x ^ x >> 29;
}

void fill(void *buf, size_t len, uint32_t seed)
{
	unsigned char *p = buf;
	uint64_t w;

	for (size_t i = 0; i < len; i += 8) {
		w = word(seed, i);
		memcpy(p + i, &w, len - i < 8 ? len - i : 8);
	}
}

bool filled(const void *buf, size_t len, uint32_t seed)
{
	const unsigned char *p = buf;
	uint64_t w;

	for (size_t i = 0; i < len; i += 8) {
		w = word(seed, i);
		if (memcmp(p + i, &w, len - i < 8 ? len - i : 8)) {
			printf("# wrong data in the eight bytes at %zu of %zu\n", i, len);
			return false;
		}
	}
	return true;
}

bool all_bytes(const void *buf, size_t len, unsigned char byte)
{
	const unsigned char *p = buf;

	for (size_t i = 0; i < len; i++) {
		if (p[i] != byte) {
			printf("# byte %zu of %zu is %#x, not %#x\n", i, len, p[i], byte);
			return false;
		}
	}
	return true;
}

uint32_t rnd(uint64_t *state)
{
	*state = *state * 6364136223846793005 + 1442695040888963407;
	return *state >> 32;
}
