/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What programs print and files say, and pairs of queue pairs of which all PSNs are known.
 */
#ifndef FERROCE_LOOK_H
#define FERROCE_LOOK_H

#include "ferroce_util.h"

#define LEN 65536
#define PSN_A 1000
#define PSN_B 2000

/* What was read last. */
extern char seen[1 << 20];

/* Runs a command and keeps its output. */
void read_all(const char *format, ...);
/* The same, on one line. */
void look(const char *format, ...);

/* What stands behind a word of it, which must be there; as a number; whether it is this. */
const char *behind(const char *word);
long long number(const char *word);
bool says(const char *word, const char *value);
/* Whether, and how often, a text is in it. */
bool has(const char *format, ...);
int count(const char *format, ...);

/* Prepares two RC ends that begin at PSN_A and PSN_B. */
void open_pair(struct end *a, struct end *b);

#endif
