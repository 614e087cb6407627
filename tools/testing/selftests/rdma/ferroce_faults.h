/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The parts of ferroce_faults.
 */
#ifndef FERROCE_FAULTS_H
#define FERROCE_FAULTS_H

#include "ferroce_inject.h"

/* Commands of RDMA netlink. */
void test_links(void);
void test_counters(void);

/* Packets. */
void test_posted(void);
void test_posted_datagrams(void);

#endif
