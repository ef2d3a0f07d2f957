// Notes vApp's spans as events of LTTng. A library that vApp loads; compiled where LTTng is (testbed/lttng.py).
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "annotations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spans.h"

annotate_function annotate;

void annotate(const struct span* span, const char* service, const char* place, const char* event,
              const char* value) {
    char address[64];
    const char* colon = strrchr(place, ':');
    if (colon == NULL) return;
    snprintf(address, sizeof address, "%.*s", (int)(colon - place), place);
    if (value == NULL)
        lttng_ust_tracepoint(zipkin, timestamp, "GET /", service, atoi(colon + 1), address, span->trace,
                             span->id, span->parent, event);
    else
        lttng_ust_tracepoint(zipkin, keyval, "GET /", service, atoi(colon + 1), address, span->trace,
                             span->id, span->parent, event, value);
}
