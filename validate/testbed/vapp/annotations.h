/* The two tracepoints of BlkKin (thesis, 6.1, listing 6.5): a key-value and a timestamp annotation of a span. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER zipkin

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./annotations.h"

#if !defined(TAPSCOPE_ANNOTATIONS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define TAPSCOPE_ANNOTATIONS_H

#include <lttng/tracepoint.h>

#define SPAN_FIELDS                                                                                     \
    lttng_ust_field_string(trace_name, trace_name) lttng_ust_field_string(service_name, service)        \
        lttng_ust_field_integer(int, port_no, port) lttng_ust_field_string(ip, ip)                      \
            lttng_ust_field_integer(long, trace_id, trace) lttng_ust_field_integer(long, span_id, span) \
                lttng_ust_field_integer(long, parent_span_id, parent)

LTTNG_UST_TRACEPOINT_EVENT(zipkin, keyval,
                           LTTNG_UST_TP_ARGS(const char*, trace_name, const char*, service, int, port,
                                             const char*, ip, long, trace, long, span, long, parent,
                                             const char*, key, const char*, val),
                           LTTNG_UST_TP_FIELDS(SPAN_FIELDS lttng_ust_field_string(key, key)
                                                   lttng_ust_field_string(val, val)))

LTTNG_UST_TRACEPOINT_EVENT(zipkin, timestamp,
                           LTTNG_UST_TP_ARGS(const char*, trace_name, const char*, service, int, port,
                                             const char*, ip, long, trace, long, span, long, parent,
                                             const char*, event),
                           LTTNG_UST_TP_FIELDS(SPAN_FIELDS lttng_ust_field_string(event, event)))

#endif

#include <lttng/tracepoint-event.h>
