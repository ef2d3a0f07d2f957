// Calls as spans (Dapper, BlkKin): every call has an id, knows that of the call it was made for, and both belong to a
// trace. Who calls sends the three along in the header X-Span.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct message;

struct span {
    long trace, id, parent;  // parent 0: none
};

// What a library that is loaded has to have under the name `annotate`: `service` at `place` (ADDRESS:PORT) notes `event`
// (cs, cr, sr, ss) of a span, or `value` under the key `event`.
typedef void annotate_function(const struct span* span, const char* service, const char* place,
                               const char* event, const char* value);

// Loads the library that notes what happens; without one nothing is noted, and no header is sent.
void load_annotations(const char* library);

// Notes an event of a span, or with a value a key.
void note(const struct span* span, const char* event, const char* value);

// The span of a request that was received, and the one of a call that is made for it.
struct span span_of(const struct message* request);
struct span span_below(const struct span* span);

// The header for a call, "" where nothing is noted.
void span_header(const struct span* span, char* line, size_t room);
