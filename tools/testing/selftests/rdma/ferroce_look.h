/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The output of programs, and pairs of queue pairs with known PSNs.
 */
#ifndef FERROCE_LOOK_H
#define FERROCE_LOOK_H

#include "ferroce_util.h"

#define LEN 65536
#define PSN_A 1000
#define PSN_B 2000

/* The output that was read last. */
extern char seen[1 << 20];

/* Runs a command and keeps its output. */
void read_all(const char *format, ...);
/* Does the same, and makes one line of the output. */
void look(const char *format, ...);

/* Looks at the entry of a queue pair. */
void look_at(const struct end *e);

/*
 * Returns the text behind a word of the output, which must be there; returns it as a number;
 * returns whether it is `value`.
 */
const char *behind(const char *word);
long long number(const char *word);
bool says(const char *word, const char *value);
/* Returns whether, and how often, a text is in the output. */
bool has(const char *format, ...);
int count(const char *format, ...);

/*
 * WRITEs between two RC ends until each may have two trains in flight. Use this before a test that
 * needs both at once, because a window that meets a slow queue early stays small.
 */
void open_windows(struct end *a, struct end *b);

/* Prepares two RC ends that begin at PSN_A and PSN_B. */
void open_pair(struct end *a, struct end *b);

#endif
