// SPDX-License-Identifier: GPL-2.0
/*
 * Asynchronous events. See ferroce_util.h.
 */
#include <poll.h>
#include "ferroce_util.h"

/*
 * Takes the next event, if there is one. Events of the port are ignored: the core reports them at
 * any time after the port is in use.
 */
static bool next_event(struct end *e, struct ibv_async_event *event)
{
	while (!ibv_get_async_event(e->dev->ctx, event)) {
		ibv_ack_async_event(event);
		if (event->event_type != IBV_EVENT_PORT_ACTIVE)
			return true;
	}
	return false;
}

bool have_event(struct end *e)
{
	struct ibv_async_event event;

	return next_event(e, &event);
}

void expect_event(struct end *e, enum ibv_event_type type)
{
	struct ibv_async_event event;

	wait_begin();
	for (;;) {
		if (next_event(e, &event)) {
			if (event.event_type == type)
				break;
			printf("# event: %s\n", ibv_event_type_str(event.event_type));
			CHECK_EQ(event.event_type, IBV_EVENT_COMM_EST);
		}
		wait_more_verb(ibv_event_type_str(type));
	}
	if (type == IBV_EVENT_CQ_ERR)
		CHECK(event.element.cq == e->cq);
	else if (type == IBV_EVENT_SRQ_LIMIT_REACHED)
		CHECK(event.element.srq == e->srq);
	else
		CHECK(event.element.qp == e->qp);
}

void expect_events(struct end *e, const enum ibv_event_type *types, int n)
{
	struct ibv_async_event event;
	bool seen[8] = {};
	int left = n, i;

	wait_begin();
	while (left) {
		if (!next_event(e, &event)) {
			wait_more_verb("asynchronous events");
			continue;
		}
		for (i = 0; i < n && (types[i] != event.event_type || seen[i]); i++)
			;
		if (i == n)
			printf("# event: %s\n", ibv_event_type_str(event.event_type));
		CHECK(i < n);
		seen[i] = true;
		left--;
	}
	CHECK(!have_event(e));
}
